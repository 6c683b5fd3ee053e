package vm

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

const (
	processMachine = "machine"
	emulator       = "qemu-system-x86_64"
	// undisturbedNice: where two programs want a processor, this one gets nearly all of it.
	undisturbedNice = "-15"
	// probeTime is how long a guest may take to write its first line with hardware acceleration, which takes a second.
	probeTime = 10 * time.Second
)

// commandLine has the options of the machine's kernel. Without mitigations of the processor's defects, which protect
// nobody here, it is faster. It uses the counter of the processor as its clock (tsc=reliable): of an emulated one it
// does not know that it can, and would use a device, which is slow.
const commandLine = "console=ttyS0 root=/dev/nvme0n1 rw rootfstype=ext4 init=/usr/sbin/node-init panic=-1 " +
	"net.ifnames=0 mitigations=off tsc=reliable psi=1 systemd.unified_cgroup_hierarchy=1 systemd.log_color=0 " +
	"systemd.show_status=1"

// machineCommand runs the machine in the network, fast with hardware acceleration. Its first disk is image. Changes of
// that disk and of the one of StartWithDisk go to files that QEMU has removed from their folder already.
func machineCommand(config Config, net network, image Image, nodeDisk string, fast bool) host.Command {
	layout, kernel := config.Layout, commandLine
	for _, unit := range config.masked {
		kernel += " systemd.mask=" + unit
	}
	disk := func(id, path, options string) []string {
		return []string{
			"-drive", "file=" + path + ",format=raw,if=none,id=" + id + ",cache=unsafe" + options,
			"-device", "nvme,drive=" + id + ",serial=" + id,
		}
	}
	args := []string{"--net=" + net.file(), "--"}
	if config.undisturbed {
		args = append(args, "nice", "-n", undisturbedNice)
	}
	args = append(args, emulator)
	args = append(args, hardware(fast)...)
	args = append(args,
		"-nodefaults", "-no-user-config", "-display", "none",
		"-smp", fmt.Sprint(processors), "-m", fmt.Sprint(cmp.Or(config.MemoryMiB, defaultMemoryMiB)), "-rtc", "base=utc",
		"-kernel", image.Kernel, "-append", kernel,
		"-netdev", "tap,id=net0,ifname="+tap+",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=net0,romfile=,mac=52:54:00:00:48:02",
		"-serial", "file:"+consoleFile(layout),
		// A machine that switches itself off can be switched on again, with its disks.
		"-no-shutdown", "-monitor", "unix:"+monitorSocket(layout)+",server=on,wait=off",
	)
	args = append(args, disk("root", image.Disk, ",snapshot=on")...)
	args = append(args, disk("node", nodeDisk, ",readonly=on")...)
	if config.fillDisk != nil {
		args = append(args, disk("extra", config.extraDisk(), ",snapshot=on")...)
	}
	return host.Command{
		Name: processMachine, Path: "nsenter", Args: args, Env: []string{"TMPDIR=" + layout.State},
	}
}

// emulatedProcessor has no fast string operations: QEMU emulates them byte by byte, and the kernel would use them for
// each page that it clears or copies. Without them a process starts in less than half the time.
const emulatedProcessor = "max,-erms,-fsrm"

func hardware(accelerated bool) []string {
	if accelerated {
		return []string{"-machine", "q35,accel=kvm", "-cpu", "host"}
	}
	return []string{"-machine", "q35", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", emulatedProcessor}
}

// accelerated returns whether the kernel runs with hardware acceleration: whether it writes to its console, and reboots
// since it has no disk. On machines that are virtual themselves /dev/kvm may exist and run no guest.
func accelerated(ctx context.Context, kernel string) bool {
	if unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	args := append(hardware(true), "-nodefaults", "-no-user-config", "-display", "none", "-m", "512", "-no-reboot",
		"-kernel", kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio")
	out, err := exec.CommandContext(ctx, emulator, args...).Output()
	return err == nil && strings.Contains(string(out), "Linux version")
}
