package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// DiskDir is where the disk of StartWithDisk is mounted in the machine.
	DiskDir = "/suite"
	// diskMemoryMiB is the memory of a machine with a disk of its own: pods may use 2 GiB, as on a bigger machine.
	diskMemoryMiB = 5120
	// extraDiskSize is the size of the disk, in bytes. The file has holes where nothing is written.
	extraDiskSize = int64(8) << 30
)

// StartWithDisk is Start for programs that start the kubelet themselves: the kubelet's unit is masked, and the machine
// has a disk of 8 GiB at DiskDir. Fill writes the files of that disk into a folder of this machine, when the control
// plane has its credentials. StartWithDisk waits until commands can be run in the machine.
func StartWithDisk(ctx context.Context, config Config, image Image, fill func(dir string) error) (*Node, error) {
	config.fillDisk, config.masked = fill, append(config.masked, "kubelet.service")
	config.MemoryMiB = cmp.Or(config.MemoryMiB, diskMemoryMiB)
	node, err := Start(ctx, config, image)
	if err != nil {
		return nil, err
	}
	if _, err := node.Run(ctx, fmt.Sprintf("mkdir -p %[1]s && mount /dev/nvme2n1 %[1]s", DiskDir)); err != nil {
		return nil, errors.Join(err, node.Stop(context.WithoutCancel(ctx)))
	}
	return node, nil
}

// extraDisk is the file of the disk of StartWithDisk.
func (c Config) extraDisk() string { return filepath.Join(c.Layout.State, "disk.img") }

// writeExtraDisk writes the disk of StartWithDisk.
func (c Config) writeExtraDisk() error {
	tree := c.extraDisk() + ".tree"
	defer os.RemoveAll(tree)
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := c.fillDisk(tree); err != nil {
		return err
	}
	return makeDisk(tree, c.extraDisk(), extraDiskSize)
}
