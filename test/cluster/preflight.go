package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// minMemory is the least memory a machine must have, in bytes.
const minMemory = 3 << 30

// CheckMachine returns an error, with one sentence per obstacle, if the real parts cannot run on this machine. It
// changes nothing and needs nothing that is built.
func CheckMachine() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if runtime.GOOS != "linux" {
		fail("the node runs on Linux only, this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		fail("starting containers needs root; run it as root")
	}
	if err := unix.Access("/sys/fs/cgroup", unix.W_OK); err != nil {
		fail("/sys/fs/cgroup cannot be written: %v; a container needs --privileged for this", err)
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if !hasController(controller) {
			fail("the %s controller of control groups is missing", controller)
		}
	}
	if total, err := totalMemory(); err == nil && total < minMemory {
		fail("the machine has %d MiB of memory, the cluster needs %d MiB", total/mebibyte, minMemory/mebibyte)
	}
	return errors.Join(errs...)
}

// CheckFree returns an error if no cluster can be started now, because something else uses what it needs.
func CheckFree(config Config) error {
	var errs []error
	pids, err := host.CgroupProcesses(config.podsCgroup())
	if err != nil {
		errs = append(errs, err)
	}
	kubelets := host.Kubelets()
	if config.CgroupRoot == "" && len(kubelets) > 0 {
		errs = append(errs, fmt.Errorf("another kubelet runs on this machine: process %d", kubelets[0]))
	} else if len(pids) > 0 {
		errs = append(errs, fmt.Errorf("pods of another kubelet run here: control group %s holds %d processes",
			config.podsCgroup(), len(pids)))
	}
	for _, port := range []int{
		portAPIServer, portEtcd, portEtcdPeer, portScheduler, portController, portKubelet, portKubeletHealth, RegistryPort,
	} {
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			errs = append(errs, fmt.Errorf("port %d is taken (\"make stop\" ends a development cluster): %w", port, err))
			continue
		}
		listener.Close()
	}
	return errors.Join(errs...)
}

// hasController supports both versions of cgroups.
func hasController(name string) bool {
	if data, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return strings.Contains(" "+strings.TrimSpace(string(data))+" ", " "+name+" ")
	}
	matches, _ := filepath.Glob("/sys/fs/cgroup/*" + name + "*/cgroup.procs")
	return len(matches) > 0
}

func inspectMachine(layout Layout) (machine, error) {
	if len(layout.Socket()) > maxSocketPath-len(".ttrpc") {
		return machine{}, fmt.Errorf("the repository lies too deep in the file system for unix sockets: %s", layout.Socket())
	}
	ip, err := utilnet.ChooseHostInterface()
	if err != nil {
		return machine{}, fmt.Errorf("the node needs an address: no network interface with a default route: %w", err)
	}
	memory, err := totalMemory()
	if err != nil {
		return machine{}, err
	}
	dir := build.CNIPluginDir()
	if dir == "" {
		return machine{}, errors.New("no CNI plugins found; install the package containernetworking-plugins")
	}
	return machine{nodeIP: ip, memory: memory, snapshotter: chooseSnapshotter(layout), pluginDir: dir}, nil
}

func totalMemory() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit), nil
}

// chooseSnapshotter prefers overlayfs, and copies images where the state
// folder's file system cannot hold an overlay (as inside some containers).
func chooseSnapshotter(layout Layout) string {
	dir, err := os.MkdirTemp(layout.run(""), "overlay")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(dir)
	parts := map[string]string{}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		parts[name] = filepath.Join(dir, name)
		if err := os.Mkdir(parts[name], 0o755); err != nil {
			return "native"
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", parts["lower"], parts["upper"], parts["work"])
	if err := unix.Mount("overlay", parts["merged"], "overlay", 0, options); err != nil {
		return "native"
	}
	if err := unix.Unmount(parts["merged"], 0); err != nil {
		return "native"
	}
	return "overlayfs"
}
