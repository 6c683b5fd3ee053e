package eviction

import (
	"context"

	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Parts are what a summary is made of beside memory and pods, each to be asked on its own. They are asked when the summary fails, which
// it does as a whole when any part of it does.
type Parts interface {
	RootFsStats() (*statsapi.FsStats, error)
	ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error)
	RlimitStats() (*statsapi.RlimitStats, error)
}

// pieces is as much of a summary as can be had, nil when that is nothing. File systems are left out when there are no figures of
// pods: nobody could say who fills them. PIDs of pods are read elsewhere, and so is memory.
func (c *collector) pieces(ctx context.Context) *statsapi.Summary {
	if c.parts == nil {
		return nil
	}
	logger := klog.FromContext(ctx)
	s := &statsapi.Summary{}
	var err error
	if s.Node.Rlimit, err = c.parts.RlimitStats(); err != nil {
		logger.Error(err, "Eviction manager: cannot tell how many processes there are")
	}
	if s.Pods, err = c.pods(ctx); err != nil {
		logger.Error(err, "Eviction manager: no figures of pods, so that file systems are not looked at")
		return s
	}
	if s.Node.Fs, err = c.parts.RootFsStats(); err != nil {
		logger.Error(err, "Eviction manager: no figures of the node's file system")
	}
	images, containers, err := c.parts.ImageFsStats(ctx)
	if err != nil {
		logger.Error(err, "Eviction manager: no figures of the file system of images")
		return s
	}
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: images, ContainerFs: containers}
	return s
}
