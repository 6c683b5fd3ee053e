package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// OutputDir is the directory of the repository for everything that is generated.
const OutputDir = "_output"

// Names of the clusters that a repository can have, one at a time: that of make run, and that of the tests.
const (
	DevName  = "cluster"
	TestName = "e2e"
)

// Names are the names of all clusters.
var Names = []string{DevName, TestName}

// maxSocketPath is the longest path that a unix socket can have.
const maxSocketPath = 107

// Layout has the paths of a cluster's files. All are absolute.
type Layout struct {
	// Root is the repository.
	Root string
	// Bin holds the programs.
	Bin string
	// Images holds the archives of the images that are imported.
	Images string
	// State holds everything that a cluster writes; it is deleted with the cluster.
	State string
	// Logs holds the logs of the processes; they outlive the cluster.
	Logs string
}

// NewLayout returns the layout of the cluster called name in the repository at root.
func NewLayout(root, name string) Layout {
	out := filepath.Join(root, OutputDir)
	return Layout{
		Root:   root,
		Bin:    filepath.Join(out, "bin"),
		Images: filepath.Join(out, "images"),
		State:  filepath.Join(out, name),
		Logs:   filepath.Join(out, "logs", name),
	}
}

// FindRoot returns the repository that contains dir: the first directory, going up, with a go.mod.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the repository: no go.mod found")
		}
	}
}

// AdminConfig is the kubeconfig of the cluster's administrator.
func (l Layout) AdminConfig() string { return l.kubeconfig(userAdmin) }

// TaintsConfig is the kubeconfig of the identity that changes the taints of the node. It has no permissions before
// config/rbac/node-taints.yaml is applied.
func (l Layout) TaintsConfig() string { return l.kubeconfig(userTaints) }

// Manifests is the directory of static pods.
func (l Layout) Manifests() string { return filepath.Join(l.State, "manifests") }

// PressureConfig is the path for a pressure configuration. A kubelet reads it only if PLIMSOLL_PRESSURE_CONFIG has this
// path.
func (l Layout) PressureConfig() string { return l.config("pressure.yaml") }

// KubeletRoot is the kubelet's root directory.
func (l Layout) KubeletRoot() string { return filepath.Join(l.State, "kubelet") }

// PodLogs is the directory of container logs.
func (l Layout) PodLogs() string { return filepath.Join(l.State, "pods") }

// Socket is where containerd listens.
func (l Layout) Socket() string { return filepath.Join(l.State, "containerd.sock") }

// ContainerdRoot is the directory of containerd's images and containers.
func (l Layout) ContainerdRoot() string { return l.run("containerd/root") }

// CDI is a directory of device descriptions (Container Device Interface) that containerd reads, in addition to those of
// the machine.
func (l Layout) CDI() string { return l.run("cdi") }

// Program is the path of the program called name.
func (l Layout) Program(name string) string { return filepath.Join(l.Bin, name) }

func (l Layout) kubeconfig(user string) string {
	return filepath.Join(l.State, "config", user+".kubeconfig")
}

func (l Layout) config(name string) string { return filepath.Join(l.State, "config", name) }

func (l Layout) pki(name string) string { return filepath.Join(l.State, "pki", name) }

func (l Layout) run(name string) string { return filepath.Join(l.State, "run", name) }

func (l Layout) footprint() string { return l.run("footprint.json") }

func (l Layout) processes() host.Processes {
	return host.Processes{LogDir: l.Logs, RunDir: l.run("")}
}

// keepOldLogs renames the logs of the previous cluster, and deletes those of the one before it.
func (l Layout) keepOldLogs() error {
	old := l.Logs + ".old"
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	if err := os.Rename(l.Logs, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep old logs: %w", err)
	}
	return nil
}

// exists returns whether a cluster left anything in this layout.
func (l Layout) exists() bool {
	_, err := os.Stat(l.State)
	return !errors.Is(err, fs.ErrNotExist)
}

// makeDirs creates every directory that the parts expect.
func (l Layout) makeDirs() error {
	dirs := []string{
		l.Logs, l.Manifests(), l.KubeletRoot(), l.PodLogs(), l.CDI(),
		l.config("cni"), l.pki(""), l.run(""),
		// containerd would create this one without access for the users of pods, whose root file systems are below.
		l.run("containerd"),
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}
