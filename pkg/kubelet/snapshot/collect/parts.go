package collect

import (
	"context"
	"errors"

	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// collectParts returns a summary of the parts that can be read, when the summary as a whole fails. silent is true when
// the stats of pods cannot be read. PIDs of pods and memory are not among the parts; package eviction reads them from
// cgroup files.
func (c *Collector) collectParts(ctx context.Context, layout snapshot.Layout) (s *statsapi.Summary, silent bool) {
	logger := klog.FromContext(ctx)
	s = c.localParts(ctx, layout)
	var err error
	if s.Pods, err = c.sources.Parts.ListPodStats(ctx); err != nil {
		logger.Error(err, "Failed to read stats of pods, no pod is evicted because of file systems")
		silent = true
	}
	images, containers, err := c.sources.Parts.ImageFsStats(ctx)
	if err != nil {
		logger.Error(err, "Failed to read stats of the image file system")
		return s, silent
	}
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: images, ContainerFs: containers}
	return s, silent
}

// nodeParts returns the parts of a summary that concern the node. The one that waits for the container runtime comes
// first, so that the others are not old when it takes long.
func (c *Collector) nodeParts(ctx context.Context) (*statsapi.Summary, error) {
	s, runtime := &statsapi.Summary{}, &statsapi.RuntimeStats{}
	var errImages, errRoot, errProcesses error
	if runtime.ImageFs, runtime.ContainerFs, errImages = c.sources.Parts.ImageFsStats(ctx); errImages != nil {
		return nil, errImages
	}
	s.Node.Runtime = runtime
	s.Node.Fs, errRoot = c.sources.Parts.RootFsStats()
	s.Node.Rlimit, errProcesses = c.sources.Parts.RlimitStats()
	return s, errors.Join(errRoot, errProcesses)
}

// localParts returns the part of a summary that needs no container runtime. Where images lie on the root file system,
// its stats are those of the image file system too.
func (c *Collector) localParts(ctx context.Context, layout snapshot.Layout) *statsapi.Summary {
	logger := klog.FromContext(ctx)
	s := &statsapi.Summary{}
	var err error
	if s.Node.Rlimit, err = c.sources.Parts.RlimitStats(); err != nil {
		logger.Error(err, "Failed to read the number of processes")
	}
	if s.Node.Fs, err = c.sources.Parts.RootFsStats(); err != nil {
		logger.Error(err, "Failed to read stats of the root file system")
		return s
	}
	if layout.Known && !layout.DedicatedImageFs {
		s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: s.Node.Fs, ContainerFs: s.Node.Fs}
	}
	return s
}

// refresh replaces the local parts of a summary that took long to collect: they may have been read at its beginning,
// and CollectLocal may have returned newer ones since.
func (c *Collector) refresh(ctx context.Context, layout snapshot.Layout, summary *statsapi.Summary) {
	node, local := &summary.Node, &c.localParts(ctx, layout).Node
	if local.Fs != nil {
		node.Fs = local.Fs
	}
	if local.Rlimit != nil {
		node.Rlimit = local.Rlimit
	}
	if local.Runtime != nil {
		node.Runtime = local.Runtime
	}
}
