package eviction

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// relayout is how often the layout of file systems is looked at again: disks are attached and runtimes reconfigured.
const relayout = time.Minute

var errSplitUnsupported = errors.New(
	"the container file system is apart from images, which needs the feature gate KubeletSeparateDiskGC")

// layouter keeps the layout of file systems. It belongs to the collecting goroutine.
type layouter struct {
	info    DiskInfo
	splitOK bool
	layout  snapshot.Layout
	// dedicated is what was detected last, and when; split says that the other half of the question was answered too.
	dedicated bool
	detected  time.Time
	split     bool
}

// current detects the layout when it is unknown or was detected a while ago. When detection fails the last known layout
// stays; without one the layout is unknown, which concerns file systems only.
func (l *layouter) current(ctx context.Context, now time.Time) snapshot.Layout {
	if age := now.Sub(l.detected); l.detected.IsZero() || age < 0 || age >= relayout {
		dedicated, err := l.info.HasDedicatedImageFs(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Eviction manager: cannot tell whether images have a file system of their own",
				"layoutKnown", l.layout.Known)
			return l.layout
		}
		l.dedicated, l.detected, l.split = dedicated, now, false
	}
	if !l.split {
		l.adopt(ctx, snapshot.Layout{Known: true, DedicatedImageFs: l.dedicated, SplitContainerFs: l.dedicated &&
			l.detectSplit(ctx)})
	}
	return l.layout
}

// detectSplit is asked for again with the next figures when it fails, since a runtime may fail for a moment (D12 of the
// list of stock's defects); until then what was known holds. Runtimes that know no container file system fail always,
// at no cost: of those that stock's statistics understand only CRI-O tells of one. Containerd 2 leaves
// ContainerFilesystems of ImageFsInfo empty (KEP-4191).
func (l *layouter) detectSplit(ctx context.Context) bool {
	split, err := l.info.HasDedicatedContainerFs(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Eviction manager: no separate container file system found", "err", err, "split",
			l.layout.SplitContainerFs)
		return l.layout.SplitContainerFs
	}
	l.split = true
	return split
}

func (l *layouter) adopt(ctx context.Context, next snapshot.Layout) {
	logger := klog.FromContext(ctx)
	if next.SplitContainerFs && !l.splitOK {
		logger.Error(errSplitUnsupported, "Eviction manager: file systems are not watched")
		next = snapshot.Layout{}
	}
	if next != l.layout {
		logger.Info("Eviction manager: file systems", "known", next.Known, "dedicatedImageFs", next.DedicatedImageFs,
			"splitContainerFs", next.SplitContainerFs)
	}
	l.layout = next
}
