package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// mountDisks mounts small file systems for containerd and the kubelet, if they are configured. Clean unmounts them, and
// the kernel frees the loop devices with that.
func mountDisks(ctx context.Context, config Config) error {
	layout := config.Layout
	if err := mountDisk(ctx, layout.ContainerdRoot(), layout.run("images.ext4"), config.ImageDisk); err != nil {
		return fmt.Errorf("disk of images: %w", err)
	}
	if err := mountDisk(ctx, layout.KubeletRoot(), layout.run("kubelet.ext4"), config.NodeDisk); err != nil {
		return fmt.Errorf("disk of the kubelet: %w", err)
	}
	return nil
}

// mountDisk creates a file system of that many bytes in file and mounts it on dir. With 0 bytes it does nothing.
func mountDisk(ctx context.Context, dir, file string, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, bytes); err != nil {
		return err
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", file}, {"mount", "-o", "loop", file, dir}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
