package fence

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Left repairs the fences that an earlier run of the agent has left, each before the pod is synchronized or stopped for
// the first time. It is safe for concurrent use.
type Left struct {
	fencer *Fencer

	mu sync.Mutex
	// pods are those whose cgroups were there at the start, and that were not handled yet. list is nil unless they could
	// not be listed yet.
	pods map[types.UID]bool
	list func() (map[types.UID]bool, error)
}

// NewLeft returns a Left that repairs nothing before Begin.
func NewLeft(f *Fencer) *Left { return &Left{fencer: f} }

// Begin lists the pods that have cgroups at the start of the agent. It is called before the first sync of a pod. If the
// list fails, Repair calls it again: then newer pods are on it too, which have no fence.
func (l *Left) Begin(list func() (map[types.UID]bool, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = list
	return l.begin()
}

func (l *Left) begin() error {
	pods, err := l.list()
	if err != nil {
		return fmt.Errorf("listing the cgroups of pods: %w", err)
	}
	l.pods, l.list = maps.Clone(pods), nil
	return nil
}

// mayHave reports whether a pod may have a fence of an earlier run. All may while their cgroups cannot be listed.
func (l *Left) mayHave(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list != nil && l.begin() != nil || l.pods[uid]
}

// Pod is a pod that is about to be synchronized or stopped.
type Pod struct {
	UID types.UID
	// Cgroup is the path of its cgroup.
	Cgroup string
	// Expected are the limits of its allocated resources.
	Expected Expected
	// Evicted: an eviction of the earlier run goes on. Then the pod is killed, otherwise it gets its limits back.
	Evicted bool
	// Fenced reports whether the fence is one of this run.
	Fenced func() bool
	// Kill kills the processes of the pod.
	Kill func() error
}

// Repair repairs the pod if it has a fence of an earlier run. It returns at once for a pod that has none, or was
// repaired. With an error it can be called again.
func (l *Left) Repair(ctx context.Context, p *Pod) error {
	if !l.mayHave(p.UID) {
		return nil
	}
	if err := l.repair(ctx, p); err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.pods, p.UID)
	l.mu.Unlock()
	return nil
}

func (l *Left) repair(ctx context.Context, p *Pod) error {
	found, err := l.fencer.Find(p.Cgroup, p.Expected)
	// This run adds a pod to those with a fence before it sets one.
	if err != nil || found.None() || p.Fenced() {
		return err
	}
	logger := klog.FromContext(ctx)
	if p.Evicted {
		logger.Info("Killing a pod that an earlier run of the agent has fenced", "podUID", p.UID, "fence", found)
		return p.Kill()
	}
	logger.Info("Lifting the fence that an earlier run of the agent has left", "podUID", p.UID, "fence", found,
		"limits", p.Expected)
	return l.fencer.Lift(p.Cgroup, found, p.Expected)
}
