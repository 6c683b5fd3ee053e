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

var errSplitUnsupported = errors.New("the container file system is apart from images, which needs the feature gate KubeletSeparateDiskGC")

// layouter keeps the layout of file systems. It belongs to the collecting goroutine.
type layouter struct {
	info     DiskInfo
	splitOK  bool
	layout   snapshot.Layout
	detected time.Time
}

// current detects the layout when it is unknown or was detected a while ago. When detection fails the last known layout
// stays; without one the layout is unknown, which concerns file systems only.
func (l *layouter) current(ctx context.Context, now time.Time) snapshot.Layout {
	if l.layout.Known && now.Sub(l.detected) < relayout && !now.Before(l.detected) {
		return l.layout
	}
	logger := klog.FromContext(ctx)
	dedicated, err := l.info.HasDedicatedImageFs(ctx)
	if err != nil {
		logger.Error(err, "Eviction manager: cannot tell whether images have a file system of their own", "layoutKnown", l.layout.Known)
		return l.layout
	}
	// Runtimes that know no container file system answer with an error, which means "not split" until the next time.
	split, err := l.info.HasDedicatedContainerFs(ctx)
	if err != nil {
		logger.V(4).Info("Eviction manager: no separate container file system found", "err", err)
	}
	split = split && dedicated
	if split && !l.splitOK {
		logger.Error(errSplitUnsupported, "Eviction manager: file systems are not watched")
		return snapshot.Layout{}
	}
	next := snapshot.Layout{Known: true, DedicatedImageFs: dedicated, SplitContainerFs: split}
	if next != l.layout {
		logger.Info("Eviction manager: file systems", "dedicatedImageFs", dedicated, "splitContainerFs", split)
	}
	l.layout, l.detected = next, now
	return next
}
