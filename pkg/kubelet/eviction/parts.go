package eviction

import (
	"context"

	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Parts are what a summary is made of beside memory and pods, each to be asked on its own. They are asked when the
// summary fails, which it does as a whole when any part of it does. Those that take no context need no container
// runtime: they are asked too while the summary hangs, at the same time.
type Parts interface {
	RootFsStats() (*statsapi.FsStats, error)
	ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error)
	RlimitStats() (*statsapi.RlimitStats, error)
}

// pieces is as much of a summary as can be had. silent says that nobody told what pods use. PIDs of pods are read
// elsewhere, and so is memory.
func (c *collector) pieces(ctx context.Context, layout snapshot.Layout) (s *statsapi.Summary, silent bool) {
	logger := klog.FromContext(ctx)
	s = c.local(ctx, layout)
	var err error
	if s.Pods, err = c.pods(ctx); err != nil {
		logger.Error(err, "Eviction manager: no figures of pods, so that nobody is evicted for file systems")
		silent = true
	}
	images, containers, err := c.parts.ImageFsStats(ctx)
	if err != nil {
		logger.Error(err, "Eviction manager: no figures of the file system of images")
		return s, silent
	}
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: images, ContainerFs: containers}
	return s, silent
}

// local is the part of a summary that needs no container runtime. Where images lie on the node's file system, its
// figures are theirs.
func (c *collector) local(ctx context.Context, layout snapshot.Layout) *statsapi.Summary {
	logger := klog.FromContext(ctx)
	s := &statsapi.Summary{}
	var err error
	if s.Node.Rlimit, err = c.parts.RlimitStats(); err != nil {
		logger.Error(err, "Eviction manager: cannot tell how many processes there are")
	}
	if s.Node.Fs, err = c.parts.RootFsStats(); err != nil {
		logger.Error(err, "Eviction manager: no figures of the node's file system")
		return s
	}
	if layout.Known && !layout.DedicatedImageFs {
		s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: s.Node.Fs, ContainerFs: s.Node.Fs}
	}
	return s
}
