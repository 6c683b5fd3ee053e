package build

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// aptPackage is a package of the distribution, with a check whether the files that are needed from it exist, however
// they were installed.
type aptPackage struct {
	name    string
	present func() bool
}

func aptPackages() []aptPackage {
	return []aptPackage{
		{"busybox-static", func() bool { return BusyboxPath() != "" }},
		{"containernetworking-plugins", func() bool { return CNIPluginDir() != "" }},
		{"conntrack", program("conntrack")},
		{"gcc", program("gcc")},
		{"iproute2", program("ip")},
		{"iptables", program("iptables")},
		{"libc6-dev", file("/usr/include/stdlib.h")},
		{"libseccomp-dev", file("/usr/include/seccomp.h")},
		{"mount", program("mount")},
		{"pkg-config", program("pkg-config")},
		{"procps", program("ps")},
	}
}

func program(name string) func() bool {
	return func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	}
}

func file(path string) func() bool {
	return func() bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

// CNIPluginDir returns the directory of the network plugins, or "" if there are none.
func CNIPluginDir() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if file(dir+"/bridge")() && file(dir+"/host-local")() {
			return dir
		}
	}
	return ""
}

// BusyboxPath returns the path of a static busybox, or "" if there is none.
func BusyboxPath() string {
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		if isStatic(path) {
			return path
		}
	}
	return ""
}

func isStatic(path string) bool {
	binary, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer binary.Close()
	for _, prog := range binary.Progs {
		if prog.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// InstallPackages installs missing packages with apt. Without apt, the error lists what to install by hand.
func InstallPackages(ctx context.Context, log io.Writer) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if !program("apt-get")() {
		return fmt.Errorf("this machine lacks %s (names of Debian packages), and there is no apt-get to install them",
			strings.Join(missing, ", "))
	}
	fmt.Fprintf(log, "Installing with apt (about a minute): %s\n", strings.Join(missing, " "))
	if err := apt(ctx, "update", "-qq"); err != nil {
		return err
	}
	if err := apt(ctx, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)...); err != nil {
		return err
	}
	if still := missingPackages(); len(still) > 0 {
		return errors.New("installed, but still not found: " + strings.Join(still, ", "))
	}
	return nil
}

// InstallPackage installs one more package, which provides the program called command.
func InstallPackage(ctx context.Context, log io.Writer, name, command string) error {
	if program(command)() {
		return nil
	}
	fmt.Fprintf(log, "Installing with apt: %s\n", name)
	return errors.Join(apt(ctx, "update", "-qq"), apt(ctx, "install", "-y", "-qq", "--no-install-recommends", name))
}

func missingPackages() []string {
	var missing []string
	for _, pkg := range aptPackages() {
		if !pkg.present() {
			missing = append(missing, pkg.name)
		}
	}
	return missing
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return nil
}
