package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// fakeAPI is an API server whose attempts end as the test says.
type fakeAPI struct {
	mu       sync.Mutex
	asked    []string
	attempts map[string]*fakeAttempt
}

type fakeAttempt struct {
	kill    APIKill
	ctx     context.Context //nolint:containedctx // the test observes its end
	endings chan APIEnding
	ended   bool
}

func (f *fakeAPI) Evict(ctx context.Context, r APIKill) <-chan APIEnding {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("%s/%s/%d", r.Pod.Name, r.Killer, r.GracePeriodSeconds))
	a := &fakeAttempt{kill: r, ctx: ctx, endings: make(chan APIEnding, 1)}
	if f.attempts == nil {
		f.attempts = map[string]*fakeAttempt{}
	}
	f.attempts[r.Pod.Name] = a
	return a.endings
}

func (f *fakeAPI) attempt(name string) *fakeAttempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attempts[name]
}

func (f *fakeAPI) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func byAPI(r snapshot.Request) snapshot.Request {
	r.Killer = snapshot.EvictionAPI
	return r
}

// of marks the requests for which an attempt is under way, as package killer does.
func (f *fakeAPI) of(a *asking) func() []snapshot.Request {
	return func() []snapshot.Request {
		list := slices.Clone(a.get())
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range list {
			attempt := f.attempts[string(list[i].UID)]
			list[i].Submitted = attempt != nil && !attempt.ended && attempt.kill.Killer == list[i].Killer
		}
		return list
	}
}

// ends ends the attempt for a pod. After one that is accepted the request still counts as submitted.
func (f *fakeAPI) ends(name string, outcome APIOutcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts[name].ended = outcome != APIAccepted
	f.attempts[name].endings <- APIEnding{Outcome: outcome, Err: errors.New("why")}
}

// kinds are the kinds of all results, in order.
func (s *sinkRecorder) kinds() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.results {
		list = append(list, string(r.Kind))
	}
	return list
}

// deletes gives a pod a deletion timestamp, as the watch of the API server does.
func (n *node) deletes(name string, grace int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[name].object.DeepCopy()
	pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)))
	pod.DeletionGracePeriodSeconds = &grace
	n.pods[name].object = pod
}

// ends removes a pod whose containers have stopped.
func (n *node) ends(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[name].stopped = true
}

// TestAPIKillIsInFlightOnceAccepted: while the API server has not accepted an eviction, the pod is not in flight, and
// the event says once why. Once it is accepted, the pod is in flight until it is released. The
// agent neither sends a kill request to its pod workers nor writes a status: that is the API server's.
func TestAPIKillIsInFlightOnceAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, api, s := newNode(), &asking{}, &fakeAPI{}, &sinkRecorder{}
		n.add("a", gi)
		n.available(20 * gi)
		n.uncleaned["a"] = true
		c := n.config(t, hard("1Gi"))
		c.Requests, c.APIKiller, c.Sinks = api.of(a), api, []Sink{s}
		metrics.Register()
		before := shown(t, "kubelet_evictions", "plugin")
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, byAPI(requestOf("a", false, 7)))
			wait(time.Millisecond)
			expect(t, "asked", api.seen(), []string{"a/EvictionAPI/7"})
			api.attempt("a").kill.Blocked(errors.New("the budget b needs 3 healthy pods"))
			wait(time.Minute)
			expect(t, "asked", api.seen(), []string{"a/EvictionAPI/7"})
			expect(t, "in flight while blocked", m.InFlight(), []InFlightPod{})
			expect(t, "evicted", n.eventsOf("Evicted"), []string{})
			if events := n.eventsOf("EvictionBlocked"); len(events) != 1 ||
				!strings.Contains(events[0], "the budget b needs 3 healthy pods") {
				t.Errorf("events %q", events)
			}
			api.ends("a", APIAccepted)
			n.deletes("a", 7)
			wait(time.Second)
			expect(t, "in flight", m.InFlight(), []InFlightPod{{UID: "a"}})
			expect(t, "evicted", len(n.eventsOf("Evicted")), 1)
			wait(7*time.Second + m.Options().Patience)
			expect(t, "in flight, late", m.InFlight(), []InFlightPod{{UID: "a", Overdue: true}})
			n.ends("a")
			wait(2 * time.Second)
			n.mu.Lock()
			n.uncleaned["a"] = false
			n.mu.Unlock()
			wait(2 * time.Second)
			expect(t, "in flight, released", m.InFlight(), []InFlightPod{})
			expect(t, "kills by the pod workers", n.killed(), []string(nil))
		})
		if status := n.statuses["a"]; status != nil {
			t.Errorf("status %+v", status)
		}
		if counted := shown(t, "kubelet_evictions", "plugin") - before; counted != 1 {
			t.Errorf("%v evictions are counted", counted)
		}
		if got := strings.Join(s.kinds(), " "); got != "KillBlocked KillAccepted PodStopped PodReleased" {
			t.Errorf("results %s", got)
		}
	})
}

// TestAcceptedPodIsInFlightAtOnce: the pod is in flight before the attempt has ended, so that none takes its place.
func TestAcceptedPodIsInFlightAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, api, s := newNode(), &asking{}, &fakeAPI{}, &sinkRecorder{}
		n.add("a", gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Requests, c.APIKiller, c.Sinks = api.of(a), api, []Sink{s}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, byAPI(requestOf("a", true, 7)))
			wait(time.Millisecond)
			expect(t, "in flight", m.InFlight(), []InFlightPod{})
			api.attempt("a").kill.Accepted()
			expect(t, "in flight, accepted", m.InFlight(), []InFlightPod{{UID: "a"}})
			api.ends("a", APIAccepted)
			n.ends("a")
			wait(3 * time.Second)
			expect(t, "in flight, released", m.InFlight(), []InFlightPod{})
			expect(t, "events", len(n.eventsOf("Evicted")), 1)
		})
		expect(t, "results", s.kinds(), []string{"KillAccepted", "PodStopped", "PodReleased"})
	})
}

// TestAPIKillThatEndsWithoutEffect: nothing is in flight, no event says that the pod is evicted, and the pod is asked
// for again as soon as the request is not submitted any more.
func TestAPIKillThatEndsWithoutEffect(t *testing.T) {
	for outcome, want := range map[APIOutcome]ResultKind{
		APIGone: PodGone, APIWithdrawn: KillWithdrawn, APIGaveUp: KillFailed, APIRejected: KillFailed,
	} {
		t.Run(string(outcome), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, a, api, s := newNode(), &asking{}, &fakeAPI{}, &sinkRecorder{}
				n.add("a", gi)
				n.available(20 * gi)
				c := n.config(t, hard("1Gi"))
				c.Requests, c.APIKiller, c.Sinks = api.of(a), api, []Sink{s}
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					a.set(m, byAPI(requestOf("a", true, 7)))
					wait(time.Millisecond)
					wait(time.Second)
					a.set(m)
					api.ends("a", outcome)
					wait(time.Minute)
					expect(t, "in flight", m.InFlight(), []InFlightPod{})
					expect(t, "events", n.eventsOf("Evicted"), []string{})
					expect(t, "asked", len(api.seen()), 1)
					expect(t, "results", s.kinds(), []string{string(want)})
					a.set(m, byAPI(requestOf("a", true, 7)))
					wait(time.Millisecond)
					expect(t, "asked again", len(api.seen()), 2)
					a.set(m)
					api.ends("a", APIGone)
				})
			})
		})
	}
}

// TestEvictionByTheNodeWithdrawsTheAttempt: when the node itself needs the pod, or the killer of the request becomes
// another one, the attempt ends, and what the API server accepted meanwhile adds nothing.
func TestEvictionByTheNodeWithdrawsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, api, s := newNode(), &asking{}, &fakeAPI{}, &sinkRecorder{}
		n.add("a", 9*gi)
		n.add("b", gi)
		n.available(20 * gi)
		n.killTakes = 30 * time.Second
		c := n.config(t, hard("1Gi"))
		c.Requests, c.APIKiller, c.Sinks = api.of(a), api, []Sink{s}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, byAPI(requestOf("a", true, 7)), byAPI(requestOf("b", true, 7)))
			wait(time.Millisecond)
			expect(t, "asked", api.seen(), []string{"a/EvictionAPI/7", "b/EvictionAPI/7"})
			// What is set wakes the manager: the shortage comes first, so that one round sees both.
			n.available(100 * mi)
			a.set(m, byAPI(requestOf("a", true, 7)), requestOf("b", true, 7))
			wait(15 * time.Second)
			expect(t, "kills", slices.Sorted(slices.Values(n.killed())), []string{"a/1", "b/7"})
			for _, name := range []string{"a", "b"} {
				if err := api.attempt(name).ctx.Err(); err == nil {
					t.Errorf("the attempt for %s is not withdrawn", name)
				}
				api.ends(name, APIAccepted)
			}
			wait(time.Second)
			expect(t, "events", len(n.eventsOf("Evicted")), 2)
			wait(time.Minute)
			expect(t, "in flight", m.InFlight(), []InFlightPod{})
		})
	})
}

// TestAttemptForAPodThatOptedOutMeanwhile: the API server is not asked any more to evict a pod that opted out after
// the attempt had begun, unless the request is forced.
func TestAttemptForAPodThatOptedOutMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, api := newNode(), &asking{}, &fakeAPI{}
		n.add("soft", gi)
		n.add("forced", gi)
		n.available(20 * gi)
		options := settings.DefaultOptions()
		options.Protection = policy.Protection{Namespaces: []string{"*"}, MaxPods: 2, MaxMemory: 10 * snapshot.Bytes(gi)}
		c := n.config(t, hard("1Gi"))
		c.Requests, c.APIKiller, c.Options = api.of(a), api, &options
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, byAPI(requestOf("forced", true, 600)), byAPI(requestOf("soft", false, 600)))
			wait(time.Second)
			expect(t, "asked", len(api.seen()), 2)
			n.mu.Lock()
			for _, pod := range n.pods {
				pod.object = pod.object.DeepCopy()
				pod.object.Annotations = map[string]string{policy.OptOutAnnotation: "memory"}
			}
			n.mu.Unlock()
			wait(m.Options().MonitoringPeriod)
			expect(t, "soft", api.attempt("soft").ctx.Err(), context.Canceled)
			expect(t, "forced", api.attempt("forced").ctx.Err(), error(nil))
			api.ends("soft", APIWithdrawn)
			wait(time.Minute)
			expect(t, "asked once more", len(api.seen()), 2)
			api.ends("forced", APIGone)
		})
	})
}

// TestWithoutAPIServerPodWorkersEvict: a manager without API killer uses the pod workers for every request.
func TestWithoutAPIServerPodWorkersEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a := newNode(), &asking{}
		n.add("a", gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Requests = a.get
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			a.set(m, byAPI(requestOf("a", true, 7)))
			wait(time.Second)
			expect(t, "kills", n.killed(), []string{"a/7"})
		})
		if status := n.statuses["a"]; status.Phase != v1.PodFailed {
			t.Errorf("%+v", status)
		}
	})
}
