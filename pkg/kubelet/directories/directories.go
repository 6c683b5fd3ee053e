// Package directories creates the directories of the agent at its start.
package directories

import (
	"context"
	"fmt"
	"os"

	"github.com/opencontainers/selinux/go-selinux"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// Config is what Create works with.
type Config struct {
	Layout paths.Layout
	// ContainerLogLinks holds the symbolic links to container logs that log shippers read.
	ContainerLogLinks string
	// Checkpoints is the gate ContainerCheckpoint, which has a directory.
	Checkpoints bool
	// MakeShared makes mounts below a directory visible to containers.
	MakeShared func(path string) error
}

// Create creates the directories with stock's modes and makes the root directory a shared mount. A directory of our own
// that cannot be created is only logged: a disk that has become full under stock must not keep the agent from running.
func Create(ctx context.Context, c Config) error {
	l, logger := c.Layout, klog.FromContext(ctx)
	type directory struct {
		path string
		mode os.FileMode
	}
	list := []directory{
		{l.Root(), 0o750},
		{l.PodLogs(), 0o750},
		{l.Pods(), 0o750},
		{l.Plugins(), 0o750},
		{l.PluginsRegistry(), 0o750},
		{l.PodResources(), 0o750},
		{c.ContainerLogLinks, 0o755},
	}
	if c.Checkpoints {
		list = append(list, directory{l.Checkpoints(), 0o700})
	}
	for _, d := range list {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("creating %s: %w", d.path, err)
		}
	}
	if err := os.MkdirAll(l.Terminations(), 0o750); err != nil {
		logger.Error(err, "Cannot create the directory of terminations, trying again when there is one to record")
	}
	if err := c.MakeShared(l.Root()); err != nil {
		return fmt.Errorf("making %s a shared mount: %w", l.Root(), err)
	}
	labelForPlugins(logger, l.PluginsRegistry(), l.Plugins())
	return nil
}

// labelForPlugins lets containerized plugins without privileges put their sockets into the directories while SELinux is
// on.
func labelForPlugins(logger klog.Logger, directories ...string) {
	if !selinux.GetEnabled() {
		return
	}
	for _, path := range directories {
		if err := selinux.SetFileLabel(path, kubeletconfig.KubeletPluginsDirSELinuxLabel); err != nil {
			logger.Info("Unprivileged containerized plugins might not work, could not set the SELinux context", "path", path,
				"err", err)
		}
	}
}
