package eviction

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// modelStock is the node as stock's manager reads it. Stock's loop never ends by itself: it is ended where it reads.
type modelStock struct {
	*modelNode
	over atomic.Bool
}

func (s *modelStock) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	if s.over.Load() {
		runtime.Goexit()
	}
	return s.modelNode.Get(ctx, update)
}

func (s *modelStock) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return s.Get(ctx, true)
}

// driveStock runs stock's manager with the monitoring interval of the stock kubelet.
func (n *modelNode) driveStock(t *testing.T) {
	t.Helper()
	c := n.settings.config
	thresholds, err := stock.ParseThresholdConfig(
		c.AllocatableEnforced, c.Hard, c.Soft, c.SoftGracePeriods, c.MinimumReclaim)
	if err != nil {
		t.Fatal(err)
	}
	n.checks.stock = true
	s := &modelStock{modelNode: n}
	config := stock.Config{
		Thresholds: thresholds, PressureTransitionPeriod: modelTransition, MaxPodGracePeriodSeconds: modelMaxGrace,
	}
	node := &v1.ObjectReference{Kind: "Node", Name: "node"}
	m, _ := stock.NewManager(s, config, n.kill, s, s, n, node, modelClock{node: n}, true)
	ctx, cancel := context.WithCancel(context.Background())
	cleanedUp := func(pod *v1.Pod) bool { return n.cleanedUp(pod.UID) }
	m.Start(ctx, s, n.active, cleanedUp, settings.DefaultOptions().MonitoringPeriod)
	n.play()
	s.over.Store(true)
	<-time.After(time.Hour)
	cancel()
}

// compare counts victims. Stock synchronizes every ten seconds and waits for what it has evicted, so ours may be one
// ahead at any time. One more is allowed for each victim that was not gone after patience. Once memory of one of the
// two has run out, what found no room on one was used on the other: they differ from then on.
func (n *modelNode) compare(theirs *modelNode) {
	for i, o := range n.orders {
		limit := n.sinceStart(o.at) + n.settings.timing.Period
		if theirs.ranOut(limit) || n.ranOut(limit) || theirs.blocked(limit) {
			return
		}
		n.checks.compared++
		count := 0
		for _, s := range theirs.orders {
			if theirs.sinceStart(s.at) <= limit {
				count++
			}
		}
		if i+1 > count+1+n.replaced(n.orders[:i], o.at) {
			n.fail(notAheadOfStock, "at %v, eviction %d is that of %s; stock has evicted %d\n--- stock:\n%s\n---",
				n.sinceStart(o.at), i+1, o.pod.name(), count, strings.Join(theirs.trace[1:], "\n"))
			return
		}
	}
}

// blocked is true when stock's loop has waited for a victim for longer than a monitoring period. It evicts no other pod
// meanwhile.
func (n *modelNode) blocked(until time.Duration) bool {
	for _, o := range n.orders {
		late := o.at.Add(n.settings.timing.Period)
		if n.sinceStart(late) <= until && (!o.pod.clean || o.pod.cleanAt.After(late)) {
			return true
		}
	}
	return false
}

// replaced is how many of the victims were not gone after patience, at a time.
func (n *modelNode) replaced(orders []*modelOrder, now time.Time) (count int) {
	for _, o := range orders {
		late := o.at.Add(n.settings.timing.Patience)
		if !now.Before(late) && (!o.pod.clean || o.pod.cleanAt.After(late)) {
			count++
		}
	}
	return count
}

// ranOut is true when memory was used up in the first part of a run.
func (n *modelNode) ranOut(until time.Duration) bool {
	return !n.firstFull.IsZero() && n.sinceStart(n.firstFull) <= until
}
