package eviction

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/notify"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pressureNotifications asks the kernel to report memory pressure (cgroup v2): of the node while there is a threshold
// on its memory, of all pods while there is one on theirs. Pressure has no level, so that a notification says nothing
// about a threshold.
type pressureNotifications struct {
	// sources has one per signal at most. tried is when each was last tried to be opened.
	sources map[snapshot.Signal]pressure
	tried   map[snapshot.Signal]time.Time
	// open may return a source and an error: then the source reports less.
	open func(sig snapshot.Signal) (pressure, error)
	// logged is true when an error was logged. There is one record in the life of the agent.
	logged bool
}

// pressure is a source of notifications without a level; notify.Pressure has the contract.
type pressure interface {
	Gone() bool
	Close() error
}

// pressureSource opens sources on the node and on the cgroup of all pods.
func pressureSource(podsCgroup string, event func()) func(snapshot.Signal) (pressure, error) {
	return func(sig snapshot.Signal) (pressure, error) {
		if sig == snapshot.MemoryAvailable {
			return orNone(notify.NewNodePressure(event))
		}
		mounts, err := cm.GetCgroupSubsystems()
		if err != nil {
			return nil, err
		}
		return orNone(notify.NewCgroupPressure(filepath.Join(mounts.MountPoints["memory"], podsCgroup), event))
	}
}

// orNone returns the source as an interface.
func orNone(p *notify.Pressure, err error) (pressure, error) {
	if p == nil {
		return nil, err
	}
	return p, err
}

// retrySources is the time after which a source that does not exist is tried again.
const retrySources = time.Minute

// arm implements kernelNotifications. A source that does not exist, because its cgroup does not yet or the kernel
// refuses it, is tried again after a minute.
func (n *pressureNotifications) arm(ctx context.Context, w watched, now time.Time) {
	n.closeUnwatched(w.Thresholds())
	for _, id := range w.Thresholds() {
		sig := id.Signal
		if tried, ok := n.tried[sig]; n.sources[sig] != nil || (ok && now.Sub(tried) < retrySources) {
			continue
		}
		source, err := n.open(sig)
		if err != nil && !n.logged && !errors.Is(err, notify.ErrNoCgroup) {
			n.logged = true
			logNoNotifications(ctx, sig, err)
		}
		if n.tried == nil {
			n.tried, n.sources = map[snapshot.Signal]time.Time{}, map[snapshot.Signal]pressure{}
		}
		n.tried[sig] = now
		if source != nil {
			n.sources[sig] = source
		}
	}
}

// closeUnwatched closes the sources of signals without a watched threshold, and those whose cgroup is gone.
func (n *pressureNotifications) closeUnwatched(watched []policy.ThresholdID) {
	unwatched := func(sig snapshot.Signal) bool {
		return !slices.ContainsFunc(watched, func(id policy.ThresholdID) bool { return id.Signal == sig })
	}
	for sig, s := range n.sources {
		if s.Gone() || unwatched(sig) {
			_ = s.Close()
			delete(n.sources, sig)
		}
	}
	// When there is a threshold again, its source is opened at once.
	maps.DeleteFunc(n.tried, func(sig snapshot.Signal, _ time.Time) bool { return unwatched(sig) })
}

// close implements kernelNotifications.
func (n *pressureNotifications) close() { n.closeUnwatched(nil) }
