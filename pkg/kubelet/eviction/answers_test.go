package eviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// evictionsCounted is the metric of evictions for a lack of memory.
func evictionsCounted(t *testing.T) float64 {
	t.Helper()
	metrics.Register()
	value, err := testutil.GetCounterMetricValue(metrics.Evictions.WithLabelValues("memory.available"))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// answering is a node whose pod workers give the same two answers to every request.
func answering(n *node, answer podkill.Answer, ending podkill.Ending) podkill.Func {
	return func(_ context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.kills = append(n.kills, r.Pod.Name)
		return answer, podkill.Ended(ending)
	}
}

// TestARefusedRequestIsNoEviction: a request that the pod workers refuse, since the agent is stopping, causes no event,
// no metric, and no other eviction.
func TestARefusedRequestIsNoEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 9*gi)
		n.add("b", 8*gi)
		n.available(100 * mi)
		c := n.config(t, hard("1Gi"))
		c.Kill = answering(n, podkill.Refused, podkill.Ending{Err: errors.New("the agent stops")})
		before := evictionsCounted(t)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			for _, name := range n.killed() {
				expect(t, "the pod that is tried", name, "a")
			}
			expect(t, "events", n.eventsOf("Evicted"), []string{})
			expect(t, "evictions counted", evictionsCounted(t)-before, 0)
			expect(t, "the ledger is empty", m.ledger.empty(), true)
		})
	})
}

// TestTheEventOfAnEvictionFollowsTheAnswer: the event is recorded when the pod workers have accepted the request, with
// the reason for their answer.
func TestTheEventOfAnEvictionFollowsTheAnswer(t *testing.T) {
	for answer, want := range map[podkill.Answer]struct{ evicted, hastened int }{
		podkill.Begun: {evicted: 1}, podkill.Hastened: {hastened: 1}, podkill.Unchanged: {}, podkill.AlreadyStopped: {},
	} {
		t.Run(answer.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("a", 9*gi)
				n.available(100 * mi)
				c := n.config(t, hard("1Gi"))
				accept := answering(n, answer, podkill.Ending{Outcome: podkill.Stopped})
				c.Kill = func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
					expect(t, "events before the answer", len(n.eventsOf("Evicted"))+len(n.eventsOf("EvictionHastened")), 0)
					return accept(ctx, r)
				}
				before := evictionsCounted(t)
				run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
					wait(5 * time.Second)
					expect(t, "kills", n.killed(), []string{"a"})
					expect(t, "evicted", len(n.eventsOf("Evicted")), want.evicted)
					expect(t, "hastened", len(n.eventsOf("EvictionHastened")), want.hastened)
					expect(t, "evictions counted", evictionsCounted(t)-before, float64(want.evicted))
				})
			})
		})
	}
}

// TestAPodThatIsGoneIsNotEvicted: for a pod that has ended between the snapshot and the eviction there is no request,
// event, metric or entry of the ledger. Sinks receive a result, and another pod is evicted if the need remains.
func TestAPodThatIsGoneIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 9*gi)
		n.add("b", 8*gi)
		n.available(100 * mi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		s := &sinkRecorder{}
		c.Sinks = []Sink{s}
		var entries []int
		started := make(chan *Manager, 1)
		manager := sync.OnceValue(func() *Manager { return <-started })
		c.PodByUID = func(uid types.UID) (*v1.Pod, bool) {
			if uid == "a" {
				n.mu.Lock()
				delete(n.pods, "a")
				n.mu.Unlock()
				n.available(100 * mi)
			}
			inFlight, _ := manager().ledger.view()
			entries = append(entries, len(inFlight))
			return n.byUID(uid)
		}
		before := evictionsCounted(t)
		run(t, n, c, func(running *Manager, wait func(time.Duration)) {
			started <- running
			wait(time.Second)
			expect(t, "kills", n.killed(), []string{"b/1"})
			expect(t, "events", len(n.eventsOf("Evicted")), 1)
			expect(t, "evictions counted", evictionsCounted(t)-before, 1)
			expect(t, "entries of the ledger before each eviction", entries, []int{0, 0})
			expect(t, "the first result", s.seen()[0], fmt.Sprint(s.evicting(t), " ", PodGone))
		})
	})
}

// TestAManagerThatStopsEvictsNoOtherPod: the manager is stopped while its victim is terminating.
func TestAManagerThatStopsEvictsNoOtherPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 9*gi)
		n.add("b", 8*gi)
		n.available(100 * mi)
		n.killTakes = time.Hour
		run(t, n, n.config(t, hard("1Gi")), func(_ *Manager, wait func(time.Duration)) { wait(5 * time.Second) })
		expect(t, "kills", n.killed(), []string{"a/1"})
		expect(t, "events", len(n.eventsOf("Evicted")), 1)
	})
}
