package eviction

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// asking is what plugins request at a time. It is the source of Config.Requests.
type asking struct {
	mu       sync.Mutex
	requests []snapshot.Request
	// read is how often it was read.
	read int
}

func (a *asking) get() []snapshot.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read++
	return a.requests
}

// set changes the requests and wakes the manager.
func (a *asking) set(m *Manager, requests ...snapshot.Request) {
	a.mu.Lock()
	a.requests = requests
	a.mu.Unlock()
	m.Wake()
}

func (a *asking) reads() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.read
}

func requestOf(name string, forced bool, grace int64) snapshot.Request {
	return snapshot.Request{UID: types.UID(name), Plugins: []string{"example.com/p"}, Scope: "memory", Forced: forced,
		GraceSeconds: &grace, Reason: "example.com/p: too hot", Since: time.Now()}
}

// TestRequestedPodIsEvicted: status, event, metric and ledger of a pod whose eviction plugins request.
func TestRequestedPodIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a := newNode(), &asking{}
		n.add("a", gi)
		n.add("b", gi)
		n.available(20 * gi)
		n.killTakes, n.uncleaned["a"] = 3*time.Second, true
		c := n.config(t, hard("1Gi"))
		c.Requests = a.get
		metrics.Register()
		before := shown(t, "kubelet_evictions", "plugin")
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string(nil))
			expect(t, "in flight", m.InFlight(), []InFlightPod{})
			a.set(m, requestOf("a", true, 7))
			wait(time.Second)
			expect(t, "kills", n.killed(), []string{"a/7"})
			expect(t, "in flight", m.InFlight(), []InFlightPod{{UID: "a"}})
			wait(7*time.Second + m.Options().Patience)
			expect(t, "kills", n.killed(), []string{"a/7"})
			expect(t, "in flight, not released", m.InFlight(), []InFlightPod{{UID: "a", Overdue: true}})
			n.mu.Lock()
			n.uncleaned["a"] = false
			n.mu.Unlock()
			wait(2 * time.Second)
			expect(t, "in flight", m.InFlight(), []InFlightPod{})
		})
		const message = `Eviction requested by plugin example.com/p (scope "memory"): example.com/p: too hot. `
		status := n.statuses["a"]
		if status.Phase != v1.PodFailed || status.Reason != policy.ReasonEvicted || status.Message != message ||
			len(status.Conditions) != 1 || status.Conditions[0].Type != v1.DisruptionTarget ||
			status.Conditions[0].Message != message {
			t.Errorf("%+v", status)
		}
		if events := n.eventsOf("Evicted"); len(events) != 1 || !strings.HasPrefix(events[0], message) {
			t.Errorf("events %q", events)
		}
		if counted := shown(t, "kubelet_evictions", "plugin") - before; counted != 1 {
			t.Errorf("%v evictions are counted", counted)
		}
	})
}

// TestShorterRequestHastensOnce: a forced request that stays is no new request in each round.
func TestShorterRequestHastensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a := newNode(), &asking{}
		n.add("a", gi)
		n.available(20 * gi)
		n.killTakes = 2 * time.Minute
		c := n.config(t, hard("1Gi"))
		c.Requests = a.get
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, requestOf("a", true, 100))
			wait(10 * time.Second)
			a.set(m, requestOf("a", true, 95))
			wait(10 * time.Second)
			expect(t, "kills", n.killed(), []string{"a/100"})
			a.set(m, requestOf("a", true, 40))
			for range 20 {
				m.Wake()
				wait(time.Second)
			}
			expect(t, "kills", n.killed(), []string{"a/100", "a/40"})
			wait(20 * time.Second)
			expect(t, "in flight", m.InFlight(), []InFlightPod{{UID: "a"}})
			wait(m.Options().Patience + time.Second)
			expect(t, "in flight, late", m.InFlight(), []InFlightPod{{UID: "a", Overdue: true}})
		})
	})
}

// TestRequestsWithoutThresholds: a manager without thresholds and limits collects nothing until plugins request an
// eviction, serves that, and does nothing again.
func TestRequestsWithoutThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a := newSilence(), &asking{}
		n.add("a", gi)
		n.available(20 * gi)
		n.killTakes = time.Second
		c := n.config(t, settings.ThresholdConfig{})
		c.Requests = a.get
		run(t, n.node, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Hour)
			m.Wake()
			wait(time.Hour)
			expect(t, "collections", n.collections.calls.Load(), int32(0))
			a.set(m, requestOf("a", false, 5))
			wait(time.Millisecond)
			expect(t, "kills", n.killed(), []string{"a/5"})
			a.set(m)
			wait(time.Minute)
			expect(t, "in flight", m.InFlight(), []InFlightPod{})
			collections, read := n.collections.calls.Load(), a.reads()
			wait(time.Hour)
			expect(t, "collections", n.collections.calls.Load(), collections)
			expect(t, "reads", a.reads(), read)
		})
	})
}

// TestRequestsWhileTheRuntimeHangs: requests are served by rounds without the runtime, and, when even what is local
// hangs, by rounds with nothing but memory.
func TestRequestsWhileTheRuntimeHangs(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("local stats hang too: %v", all), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a := newSilence(), &asking{}
				n.add("a", gi)
				n.add("b", gi)
				n.available(20 * gi)
				c := n.config(t, hard("1Gi"))
				c.Requests = a.get
				run(t, n.node, c, func(m *Manager, wait func(time.Duration)) {
					wait(time.Second)
					answers := n.hangs()
					if all {
						stuck := make(chan struct{})
						n.stuck.Store(&stuck)
						defer close(stuck)
					}
					defer answers()
					a.set(m, requestOf("a", true, 1))
					wait(collectPatience + localPatience + time.Second)
					expect(t, "kills", n.killed(), []string{"a/1"})
					a.set(m, requestOf("b", false, 1))
					wait(localPatience + time.Second)
					expect(t, "kills", n.killed(), []string{"a/1", "b/1"})
				})
			})
		})
	}
}

// TestInFlightIsSafeForConcurrentUse: what is in flight may be read at any time, also before Run.
func TestInFlightIsSafeForConcurrentUse(t *testing.T) {
	n := newNode()
	m, err := New(n.config(t, hard("1Gi")))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for j := range 50 {
				pod := snapshot.Pod{Facts: &snapshot.Facts{UID: types.UID(fmt.Sprint(i, "-", j))}}
				m.ledger.begin(&policy.Victim{Pod: &pod, GraceSeconds: 1}, 1, m.clock.now())
				m.InFlight()
			}
		})
	}
	group.Wait()
	list := m.InFlight()
	for i := 1; i < len(list); i++ {
		if list[i-1].UID >= list[i].UID {
			t.Fatalf("%s is before %s", list[i-1].UID, list[i].UID)
		}
	}
	expect(t, "in flight", len(list), 200)
}

// TestRequestDoesNotTakeOverAnEviction: a request that hastens a pod leaves the node's cause and time of request, so
// that no need waits longer; the node's request for a plugin's victim takes both over.
func TestRequestDoesNotTakeOverAnEviction(t *testing.T) {
	start := time.Unix(1e9, 0)
	pod := snapshot.Pod{Facts: &snapshot.Facts{UID: "a"}}
	soft := policy.Cause{Kind: policy.SoftThreshold, Signal: snapshot.MemoryAvailable}
	plugin := policy.Cause{Kind: policy.PluginRequest, Plugins: "p"}
	for _, test := range []struct {
		name          string
		first, second policy.Cause
		requested     bool
		started       time.Time
	}{
		{"by the node, then by plugins", soft, plugin, false, start},
		{"by plugins, then by the node", plugin, soft, false, start.Add(time.Second)},
		{"by plugins twice", plugin, plugin, true, start},
	} {
		l := newLedger()
		l.begin(&policy.Victim{Pod: &pod, Cause: test.first, GraceSeconds: 30}, 1, start)
		l.begin(&policy.Victim{Pod: &pod, Cause: test.second, GraceSeconds: 5, Hasten: true}, 2, start.Add(time.Second))
		list, _ := l.view()
		signal := snapshot.MemoryAvailable
		if test.requested {
			signal = snapshot.NoSignal
		}
		if f := list[0]; f.Requested != test.requested || !f.Started.Equal(test.started) || f.Signal != signal || f.Hard ||
			!f.Deadline.Equal(start.Add(6*time.Second)) {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
}
