package eviction

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/notify"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// kernelNotifications are notifications of the kernel about memory (the flag --kernel-memcg-notification). A
// notification makes the memory watcher read sooner and does nothing else. The value belongs to the loop.
type kernelNotifications interface {
	// arm requests those that the thresholds of the watcher need. It is called before each read of the counters.
	arm(ctx context.Context, w watched, now time.Time)
	close()
}

// watched are the thresholds that the memory watcher watches.
type watched interface {
	Thresholds() []policy.ThresholdID
	UsageAt(policy.ThresholdID) (usage int64, ok bool)
}

// kernelNotifications returns those that the machine has: of levels with cgroup v1, of pressure with v2.
func (c *Config) kernelNotifications(event func()) kernelNotifications {
	if c.CgroupV2 {
		return &pressureNotifications{open: pressureSource(c.PodCgroupRoot, event)}
	}
	return &notifications{open: memcgSource(c.PodCgroupRoot, event)}
}

// logNoNotifications logs that the kernel refuses notifications, so that only the pauses of the watcher are left.
func logNoNotifications(ctx context.Context, sig snapshot.Signal, err error) {
	klog.FromContext(ctx).Info("Eviction manager: no kernel notifications of memory, polling by headroom instead",
		"signal", sig, "err", err)
}

// notifications asks the kernel to report when memory thresholds are crossed (cgroup v1).
type notifications struct {
	// sources has at most one per threshold of the watcher.
	sources map[policy.ThresholdID]notify.Source
	open    func(sig snapshot.Signal) (notify.Source, error)
	refused bool
	// armed is when levels were last computed.
	armed time.Time
}

// rearmNotifications is the time after which levels are computed again: spare memory changes.
const rearmNotifications = time.Second

// memcgSource opens sources on the cgroup of the node and on that of all pods.
func memcgSource(podsCgroup string, event func()) func(snapshot.Signal) (notify.Source, error) {
	return func(sig snapshot.Signal) (notify.Source, error) {
		mounts, err := cm.GetCgroupSubsystems()
		if err != nil {
			return nil, err
		}
		dir := mounts.MountPoints["memory"]
		if sig == snapshot.AllocatableMemoryAvailable {
			dir = filepath.Join(dir, podsCgroup)
		}
		source, err := notify.NewMemcg(dir, event)
		if err != nil {
			return nil, err
		}
		return source, nil
	}
}

// arm sets the levels of usage at which the kernel notifies.
func (n *notifications) arm(ctx context.Context, w watched, now time.Time) {
	if !n.armed.IsZero() && now.Sub(n.armed) < rearmNotifications {
		return
	}
	n.armed = now
	n.closeUnwatched(w.Thresholds())
	for _, id := range w.Thresholds() {
		level, ok := w.UsageAt(id)
		if !ok {
			continue
		}
		if err := n.armOne(id, level); err != nil && !n.refused {
			n.refused = true
			logNoNotifications(ctx, id.Signal, err)
		}
	}
}

func (n *notifications) armOne(id policy.ThresholdID, level int64) error {
	if n.refused {
		return nil
	}
	source, ok := n.sources[id]
	if !ok {
		var err error
		if source, err = n.open(id.Signal); err != nil {
			return err
		}
		if n.sources == nil {
			n.sources = map[policy.ThresholdID]notify.Source{}
		}
		n.sources[id] = source
	}
	return source.Arm(level)
}

// closeUnwatched closes the sources of thresholds that are not watched any more.
func (n *notifications) closeUnwatched(watched []policy.ThresholdID) {
	for id, s := range n.sources {
		if !slices.Contains(watched, id) {
			_ = s.Close()
			delete(n.sources, id)
		}
	}
}

func (n *notifications) close() {
	n.closeUnwatched(nil)
}
