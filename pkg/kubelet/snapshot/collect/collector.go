package collect

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// refreshAfter is the duration of a collection from which on its local stats are read again at its end.
const refreshAfter = time.Second

var errNoParts = errors.New("stats of the node cannot be read apart from those of pods")

// Summary returns the stats summary of the node. Get may take long and should end with its context; it is never called
// twice at a time.
type Summary interface {
	Get(ctx context.Context, updateStats bool) (*statsapi.Summary, error)
}

// DiskInfo reports how file systems are spread over devices.
type DiskInfo interface {
	HasDedicatedImageFs(ctx context.Context) (bool, error)
	HasDedicatedContainerFs(ctx context.Context) (bool, error)
}

// Parts returns each part of a summary on its own, except memory. The methods without a context need no container
// runtime; they may be called while any other method is under way.
type Parts interface {
	RootFsStats() (*statsapi.FsStats, error)
	RlimitStats() (*statsapi.RlimitStats, error)
	ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error)
	ListPodStats(ctx context.Context) ([]statsapi.PodStats, error)
}

// Sources are what a Collector reads. Summary and DiskInfo are required.
type Sources struct {
	Summary  Summary
	DiskInfo DiskInfo
	// Parts replaces a summary that fails, which it does as a whole when any part of it does. Without it CollectLocal
	// reads nothing.
	Parts Parts
	// PodImages returns for each pod the bytes of the images that no other pod uses. It is called where the image device
	// carries nothing else of pods, and may take long. Without it pods have the same rank there if their priorities are
	// equal.
	PodImages func(ctx context.Context) (map[types.UID]snapshot.Bytes, error)
	// CPURates: CPU rates of containers in the stats API are computed from one Collect to the next, so that CollectNode
	// must not replace any (feature gate PodAndContainerStatsFromCRI).
	CPURates bool
	// SeparateDiskGC is the feature gate KubeletSeparateDiskGC: a file system of containers apart from that of images is
	// supported.
	SeparateDiskGC bool
	// Clock measures durations; the real clock when nil.
	Clock clock.PassiveClock
}

// Collector reads stats of the node and its pods.
type Collector struct {
	sources Sources
	layout  layoutDetector
}

// New returns a Collector. It fails when a required source is missing.
func New(s Sources) (*Collector, error) {
	if s.Summary == nil || s.DiskInfo == nil {
		return nil, errors.New("stats collector: Summary and DiskInfo are required")
	}
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	return &Collector{sources: s, layout: layoutDetector{info: s.DiskInfo, splitSupported: s.SeparateDiskGC}}, nil
}

// Collect reads everything that Stats has. It blocks as long as its sources do; those that respect ctx end with it. It
// must not be called twice at a time.
func (c *Collector) Collect(ctx context.Context) snapshot.Stats {
	start := c.sources.Clock.Now()
	stats := snapshot.Stats{Layout: c.layout.detect(ctx, start)}
	var summary *statsapi.Summary
	summary, stats.Err = c.sources.Summary.Get(ctx, true)
	if stats.Err != nil && c.sources.Parts != nil {
		summary, stats.RuntimeSilent = c.collectParts(ctx, stats.Layout)
	}
	if c.sources.PodImages != nil && stats.Layout.MeasureOf(snapshot.ImageDevice).Images {
		var err error
		if stats.Images, err = c.sources.PodImages(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to read which pods use which images")
		}
	}
	// Not Clock.Since: it may measure by another clock than Now.
	if elapsed := c.sources.Clock.Now().Sub(start); stats.Err == nil && c.sources.Parts != nil && elapsed >= refreshAfter {
		c.refresh(ctx, stats.Layout, summary)
	}
	stats.Signals = FromSummary(summary)
	if stats.Err != nil {
		stats.FailUnknown(stats.Err)
	}
	if summary != nil {
		stats.Pods = (*podStats)(&summary.Pods)
	}
	return stats
}

// CollectNode reads what a summary has of the node, except memory, and nothing of pods. It needs one answer of the
// container runtime, where Collect has the runtime and cAdvisor read each container. It fails (Stats.Err) if anything
// cannot be read, and without Parts. It may be called when Collect may be.
func (c *Collector) CollectNode(ctx context.Context) snapshot.Stats {
	stats := snapshot.Stats{Layout: c.layout.detect(ctx, c.sources.Clock.Now()), Signals: snapshot.Unobserved()}
	if c.sources.Parts == nil || c.sources.CPURates {
		stats.Err = errNoParts
		return stats
	}
	summary, err := c.nodeParts(ctx)
	if err != nil {
		stats.Err = err
		return stats
	}
	stats.Signals = FromSummary(summary)
	return stats
}

// CollectLocal reads what needs no container runtime, on a node with this layout. It may be called during Collect, but
// not twice at a time. It fails (Stats.Err) without Parts.
func (c *Collector) CollectLocal(ctx context.Context, layout snapshot.Layout) snapshot.Stats {
	if c.sources.Parts == nil {
		return snapshot.Stats{Layout: layout, Signals: snapshot.Unobserved(), Err: errNoParts}
	}
	return snapshot.Stats{Layout: layout, Signals: FromSummary(c.localParts(ctx, layout))}
}
