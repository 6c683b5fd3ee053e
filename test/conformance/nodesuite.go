package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// nodeSuite is upstream's suite for nodes. It wants a container runtime, and
// starts its own control plane and the kubelet itself.
type nodeSuite struct{ Suite }

func (nodeSuite) part() build.Part { return build.NodeSuite() }

func (s nodeSuite) call(c *cluster.Cluster) (call, error) {
	if err := errors.Join(s.makePath(), s.writePID(c), s.writeConfig()); err != nil {
		return call{}, err
	}
	layout := c.Layout()
	return call{
		args: []string{
			"--k8s-bin-dir=" + filepath.Join(s.Dir, "kubelet"),
			"--container-runtime-endpoint=unix://" + layout.Socket(), "--container-runtime-pid-file=" + s.pidFile(),
			"--node-name=" + cluster.NodeName, "--kubelet-config-file=" + s.configFile(),
			"--prepull-images=false", "--report-dir=" + s.file("artifacts"),
		},
		env:    []string{"PATH=" + s.path() + ":" + layout.Bin + ":" + os.Getenv("PATH"), "FAKESYSTEMD_UNITS=" + filepath.Join(s.Dir, "units")},
		beside: func(ctx context.Context) { s.keepRuntime(ctx, c) },
	}, nil
}

// keepRuntime starts the container runtime again whenever a spec has killed it,
// which elsewhere is the work of systemd.
func (s nodeSuite) keepRuntime(ctx context.Context, c *cluster.Cluster) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if alive, err := c.RuntimeAlive(); alive && err == nil {
			return
		}
		if err := errors.Join(c.ReviveRuntime(ctx), s.writePID(c)); err != nil && ctx.Err() == nil {
			fmt.Fprintf(s.Log, "  the container runtime does not start again: %v\n", err)
		}
	}, time.Second)
}

func (s nodeSuite) path() string { return filepath.Join(s.Dir, "path") }

func (s nodeSuite) pidFile() string { return filepath.Join(s.Dir, "containerd.pid") }

func (s nodeSuite) configFile() string { return filepath.Join(s.Dir, "kubelet.yaml") }

func (s nodeSuite) writePID(c *cluster.Cluster) error {
	pid, err := c.ContainerdPID()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.pidFile(), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// makePath puts the stand-ins for systemd's programs, and the kubelet, where
// the suite looks for them.
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

func (s nodeSuite) writeConfig() error {
	return cluster.WriteConfig(s.configFile(), &kubeletv1beta1.KubeletConfiguration{
		CgroupDriver:           "cgroupfs",
		CgroupRoot:             "/",
		FailCgroupV1:           new(false),
		FailSwapOn:             new(false),
		SerializeImagePulls:    new(false),
		PodCIDR:                "10.100.0.0/24",
		EvictionHard:           map[string]string{"memory.available": "250Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"},
		EvictionMinimumReclaim: map[string]string{"nodefs.available": "5%", "nodefs.inodesFree": "5%"},
	})
}
