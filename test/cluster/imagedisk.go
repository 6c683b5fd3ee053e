package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// mountImageDisk gives containerd a small file system for its images and the
// writable layers of containers, if the cluster is to have one. Clean unmounts
// it with everything else, and the kernel frees the loop device with that.
func mountImageDisk(ctx context.Context, config Config) error {
	if config.ImageDisk == 0 {
		return nil
	}
	file, dir := config.Layout.run("images.ext4"), config.Layout.ContainerdRoot()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder of images: %w", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return fmt.Errorf("make disk of images: %w", err)
	}
	if err := os.Truncate(file, config.ImageDisk); err != nil {
		return fmt.Errorf("make disk of images: %w", err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", file}, {"mount", "-o", "loop", file, dir}} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
