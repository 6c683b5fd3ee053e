package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/cluster/systembus"
)

// inhibitDelay is how long logind allows a kubelet to delay a shutdown: longer than any spec needs, so that no kubelet
// changes the configuration of the machine's logind.
const inhibitDelay = time.Hour

// kubeletRoot is the root directory of the suite's kubelet.
const kubeletRoot = "/var/lib/kubelet"

// nodeSuite is the upstream node suite. It needs a container runtime, and starts a control plane and the kubelet
// itself.
type nodeSuite struct{ Suite }

func (nodeSuite) part() build.Part { return build.NodeSuite() }

func (s nodeSuite) call(ctx context.Context, c *cluster.Cluster) (call, error) {
	unit := &runtimeUnit{runtime: c, pid: c.ContainerdPID, pidFile: filepath.Join(s.Dir, "containerd.pid")}
	if err := errors.Join(s.makePath(), unit.writePID(), s.writeConfig()); err != nil {
		return call{}, err
	}
	bus, err := s.startBus(ctx, unit)
	if err != nil {
		return call{}, err
	}
	layout := c.Layout()
	return call{
		args: []string{
			"--k8s-bin-dir=" + filepath.Join(s.Dir, "kubelet"),
			"--container-runtime-endpoint=unix://" + layout.Socket(), "--container-runtime-pid-file=" + unit.pidFile,
			"--node-name=" + cluster.NodeName, "--kubelet-config-file=" + s.configFile(),
			"--prepull-images=false", "--report-dir=" + s.file("artifacts"),
		},
		// The replacement for systemd-run passes the suite's environment to the kubelet.
		env: []string{
			"PATH=" + s.path() + ":" + layout.Bin + ":" + os.Getenv("PATH"),
			"FAKESYSTEMD_UNITS=" + filepath.Join(s.Dir, "units"),
			systembus.Variable + "=" + bus.Address(),
		},
		before: forgetAllocations,
		beside: func(ctx context.Context) { s.keepRuntime(ctx, unit) },
		end:    bus.Stop,
	}, nil
}

// startBus starts a system bus for specs that announce a shutdown of the machine, and for those that stop the container
// runtime, which an interrupted suite still starts again.
func (s nodeSuite) startBus(ctx context.Context, unit *runtimeUnit) (*systembus.Bus, error) {
	bus, err := systembus.Start(ctx, filepath.Join(s.Dir, "bus"), s.Log)
	if err != nil {
		return nil, err
	}
	lasting := context.WithoutCancel(ctx)
	_, err = bus.ServeLogind(inhibitDelay)
	err = errors.Join(err, bus.ServeSystemd(lasting, map[string]systembus.Service{runtimeUnitName: unit}))
	if err != nil {
		return nil, errors.Join(err, bus.Stop(lasting))
	}
	return bus, nil
}

// forgetAllocations removes the checkpoints of the CPU and memory managers of the suite's last kubelet. Some specs
// leave them behind when they fail, and then no kubelet with another policy starts.
func forgetAllocations() error {
	for _, file := range []string{"cpu_manager_state", "memory_manager_state"} {
		if err := os.Remove(filepath.Join(kubeletRoot, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove what the last kubelet left: %w", err)
		}
	}
	return nil
}

// keepRuntime starts the container runtime if earlier specs left it stopped, and again whenever one has killed it.
func (s nodeSuite) keepRuntime(ctx context.Context, unit *runtimeUnit) {
	look := unit.Start
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := look(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(s.Log, "  the container runtime does not start again: %v\n", err)
		}
		look = unit.keep
	}, time.Second)
}

func (s nodeSuite) path() string { return filepath.Join(s.Dir, "path") }

func (s nodeSuite) configFile() string { return filepath.Join(s.Dir, "kubelet.yaml") }

// makePath creates a directory for the PATH with the replacements for systemd's programs and the kubelet.
func (s nodeSuite) makePath() error {
	links := map[string]string{filepath.Join(s.Dir, "kubelet", "kubelet"): s.Kubelet}
	for _, name := range []string{"systemd-run", "systemctl", "journalctl", "sudo"} {
		links[filepath.Join(s.path(), name)] = s.layout().Program("fakesystemd")
	}
	for link, target := range links {
		err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.RemoveAll(link), os.Symlink(target, link))
		if err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	return nil
}

func (s nodeSuite) writeConfig() error { return cluster.WriteConfig(s.configFile(), suiteConfig()) }

// suiteConfig is the configuration of the suite's kubelet.
func suiteConfig() *kubeletv1beta1.KubeletConfiguration {
	return &kubeletv1beta1.KubeletConfiguration{
		CgroupDriver:        "cgroupfs",
		CgroupRoot:          "/",
		FailCgroupV1:        new(false),
		FailSwapOn:          new(false),
		SerializeImagePulls: new(false),
		PodCIDR:             "10.100.0.0/24",
		EvictionHard: map[string]string{
			"memory.available": "250Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		},
		EvictionMinimumReclaim: map[string]string{"nodefs.available": "5%", "nodefs.inodesFree": "5%"},
	}
}
