package collect

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// layoutPeriod is the time between two detections of the layout: disks are attached and runtimes reconfigured.
const layoutPeriod = time.Minute

var errSplitUnsupported = errors.New(
	"the container file system is apart from images, which needs the feature gate KubeletSeparateDiskGC")

// layoutDetector detects the layout of file systems and caches it. It is not safe for concurrent use.
type layoutDetector struct {
	info           DiskInfo
	splitSupported bool
	layout         snapshot.Layout
	// dedicated is the result of the last successful HasDedicatedImageFs, detected its time. split is true when
	// HasDedicatedContainerFs has succeeded since.
	dedicated bool
	detected  time.Time
	split     bool
}

// detect returns the layout. It detects it again when it is unknown or older than layoutPeriod. When detection fails
// the last known layout holds. Without one the layout is unknown, which concerns file systems only.
func (d *layoutDetector) detect(ctx context.Context, now time.Time) snapshot.Layout {
	if age := now.Sub(d.detected); d.detected.IsZero() || age < 0 || age >= layoutPeriod {
		dedicated, err := d.info.HasDedicatedImageFs(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to detect whether images have a file system of their own",
				"layoutKnown", d.layout.Known)
			return d.layout
		}
		d.dedicated, d.detected, d.split = dedicated, now, false
	}
	if !d.split {
		d.set(ctx, snapshot.Layout{Known: true, DedicatedImageFs: d.dedicated, SplitContainerFs: d.dedicated &&
			d.detectSplit(ctx)})
	}
	return d.layout
}

// detectSplit reports whether containers have a file system of their own. A failure is tried again with the next
// collection, since a runtime may fail for a moment (D12 of docs/defects.md); until then the last result holds. The
// call always fails, at no cost, for runtimes without container file systems: of those that stock's statistics support,
// only CRI-O reports one. Containerd 2 leaves ContainerFilesystems of ImageFsInfo empty (KEP-4191).
func (d *layoutDetector) detectSplit(ctx context.Context) bool {
	split, err := d.info.HasDedicatedContainerFs(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("No separate container file system detected", "err", err, "split",
			d.layout.SplitContainerFs)
		return d.layout.SplitContainerFs
	}
	d.split = true
	return split
}

func (d *layoutDetector) set(ctx context.Context, next snapshot.Layout) {
	logger := klog.FromContext(ctx)
	if next.SplitContainerFs && !d.splitSupported {
		logger.Error(errSplitUnsupported, "File systems are not watched for eviction")
		next = snapshot.Layout{}
	}
	if next != d.layout {
		logger.Info("Layout of file systems changed", "known", next.Known, "dedicatedImageFs", next.DedicatedImageFs,
			"splitContainerFs", next.SplitContainerFs)
	}
	d.layout = next
}
