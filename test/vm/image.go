package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// diskSize is the size of the machine's disk, in bytes. The file has holes where nothing is written.
const diskSize = int64(8) << 30

// packages are the packages of the machine, beside those that Debian calls required.
var packages = []string{
	"busybox-static", "ca-certificates", "conntrack", "containernetworking-plugins", "dbus", "e2fsprogs", "ethtool",
	"iproute2", "iptables", "kmod", "less", "libpam-systemd", "libseccomp2", "linux-image-cloud-amd64", "mount",
	"openssh-server", "procps", "socat", "systemd", "systemd-sysv", "udev", "util-linux",
}

// programs are the parts of package build that the image holds. The kubelets are on the node's disk.
var programs = []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}

// Image is a disk with everything that is the same in each run.
type Image struct {
	// Disk is an ext4 file system. It is never written after it was built.
	Disk string
	// Kernel is the kernel of the packages.
	Kernel string
}

// BuildImage returns the image for what is in layout.Bin and layout.Images. It builds it if it is not there, which
// takes some minutes and needs the mirror of Debian from which this machine has its packages; the images of other
// contents are removed then.
func BuildImage(ctx context.Context, layout cluster.Layout, log io.Writer) (Image, error) {
	sources, suite, err := debianSources(ctx)
	if err != nil {
		return Image{}, err
	}
	digest, err := imageDigest(layout, sources)
	if err != nil {
		return Image{}, err
	}
	images := imageDir(layout)
	image := Image{
		Disk:   filepath.Join(images, digest, "disk.img"),
		Kernel: filepath.Join(images, digest, "vmlinuz"),
	}
	if _, err := os.Stat(image.Disk); err == nil {
		return image, nil
	}
	began := time.Now()
	fmt.Fprintln(log, "Building the image of the machine from packages (two minutes, more on a busy machine).")
	temp := filepath.Join(images, "building")
	defer func() { _ = removeTree(temp) }()
	if err := buildImage(ctx, layout, temp, sources, suite); err != nil {
		return Image{}, fmt.Errorf("build image: %w", err)
	}
	if err := keepOnly(images, temp, digest); err != nil {
		return Image{}, err
	}
	fmt.Fprintf(log, "The image is built, after %s.\n", time.Since(began).Round(time.Second))
	return image, nil
}

// imageDir is beside the files of a run, and outlives them.
func imageDir(layout cluster.Layout) string {
	return filepath.Join(layout.Root, cluster.OutputDir, "vm", "images")
}

func imageDigest(layout cluster.Layout, sources []string) (string, error) {
	texts := slices.Concat(packages, sources, []string{fmt.Sprint(diskSize)})
	for _, name := range slices.Sorted(maps.Keys(links)) {
		texts = append(texts, name, links[name])
	}
	err := fs.WalkDir(guest, "guest", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := guest.ReadFile(path)
		texts = append(texts, path, string(data))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("digest of the image: %w", err)
	}
	archives, err := imageArchives(layout)
	if err != nil {
		return "", err
	}
	var files []string
	for _, name := range programs {
		files = append(files, layout.Program(name))
	}
	return sum(texts, append(files, archives...))
}

// buildImage makes the folder temp with the disk and the kernel.
func buildImage(ctx context.Context, layout cluster.Layout, temp string, sources []string, suite string) error {
	if err := removeTree(temp); err != nil {
		return err
	}
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	tree := filepath.Join(temp, "tree")
	if err := installPackages(ctx, tree, sources, suite); err != nil {
		return err
	}
	if err := addGuest(tree); err != nil {
		return err
	}
	for _, name := range programs {
		if err := CopyFile(layout.Program(name), filepath.Join(tree, "usr/local/bin", name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(tree, "opt/node"), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	scratch := filepath.Join(temp, "run")
	if err := importImages(ctx, layout, filepath.Join(tree, "var/lib/containerd"), scratch); err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(tree, "boot/vmlinuz-*"))
	if err != nil {
		return fmt.Errorf("find the kernel: %w", err)
	}
	if len(kernels) != 1 {
		return fmt.Errorf("the packages have %d kernels, want one", len(kernels))
	}
	if err := CopyFile(kernels[0], filepath.Join(temp, "vmlinuz")); err != nil {
		return err
	}
	if err := makeDisk(tree, filepath.Join(temp, "disk.img"), diskSize); err != nil {
		return err
	}
	return errors.Join(removeTree(tree), os.RemoveAll(scratch))
}

// installPackages makes the tree. No initial RAM disk is made: the kernel has what it needs to mount the disk.
func installPackages(ctx context.Context, tree string, sources []string, suite string) error {
	args := []string{
		"--mode=root", "--variant=minbase", "--quiet", "--include=" + strings.Join(packages, ","),
	}
	for _, left := range []string{"doc", "man", "locale", "info"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+left+"/*")
	}
	args = append(args, suite, tree)
	cmd := exec.CommandContext(ctx, "mmdebstrap", append(args, sources...)...)
	cmd.Env = append(os.Environ(), "INITRD=No")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, tail(string(out)))
	}
	// A machine with an ID is not booted for the first time, which systemd would take fifteen seconds for.
	id := strings.Repeat("0123456789abcdef", 2) + "\n"
	return file{data: []byte(id), mode: 0o444}.write(filepath.Join(tree, "etc/machine-id"))
}

// debianSources returns the lines of sources.list for the mirrors of Debian that apt uses, and the name of the release.
func debianSources(ctx context.Context) (lines []string, suite string, err error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format",
		"$(ORIGIN) $(SITE) $(RELEASE) $(COMPONENT) $(CODENAME)", "Created-By: Packages").Output()
	if err != nil {
		return nil, "", fmt.Errorf("list the sources of apt: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 5 || fields[0] != "Debian" || fields[3] != "main" {
			continue
		}
		lines = append(lines, strings.Join([]string{"deb", fields[1], fields[2], fields[3]}, " "))
		if fields[2] == fields[4] && !strings.Contains(fields[2], "-") {
			suite = fields[4]
		}
	}
	if suite == "" {
		return nil, "", errors.New("apt has no source of Debian here; the machine is built from Debian's packages")
	}
	slices.Sort(lines)
	return slices.Compact(lines), suite, nil
}

// keepOnly renames temp to the image called digest, and removes all other images.
func keepOnly(images, temp, digest string) error {
	if err := os.Rename(temp, filepath.Join(images, digest)); err != nil {
		return fmt.Errorf("keep image: %w", err)
	}
	entries, err := os.ReadDir(images)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if entry.Name() != digest {
			errs = append(errs, os.RemoveAll(filepath.Join(images, entry.Name())))
		}
	}
	return errors.Join(errs...)
}

func imageArchives(layout cluster.Layout) ([]string, error) {
	archives, err := filepath.Glob(filepath.Join(layout.Images, "*.tar"))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	slices.Sort(archives)
	return archives, nil
}

// InstallPackages installs what builds and runs the machine.
func InstallPackages(ctx context.Context, log io.Writer) error {
	for _, needed := range []struct{ name, command string }{
		{"e2fsprogs", "mke2fs"}, {"mmdebstrap", "mmdebstrap"}, {"openssh-client", "ssh"},
		{"qemu-system-x86", "qemu-system-x86_64"}, {"util-linux", "nsenter"},
	} {
		if err := build.InstallPackage(ctx, log, needed.name, needed.command); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program whose output matters only if it fails.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// tail returns the last lines of a text.
func tail(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
