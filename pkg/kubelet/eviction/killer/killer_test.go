package killer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/test/await"
)

var pods = schema.GroupResource{Resource: "pods"}

const second = time.Second

// wait lets virtual time pass, and everything happen that is due.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// play runs f in a bubble, with a rig.
func play(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(virtual(t)) })
}

// TestE11AWithdrawnRequestIsNeverExecuted: a pod whose eviction a disruption budget blocks is never evicted after the
// request has ended, not even when the budget allows it.
func TestE11AWithdrawnRequestIsNeverExecuted(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(string, int) error { return blockedFor(0) })
		r.asks(snapshot.EvictionAPI, "a")
		endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", 600)
		wait(12 * second)
		r.underWay(endings)
		r.asks(snapshot.EvictionAPI)
		r.api.set(nil)
		wait(2 * second)
		r.expect("outcome", r.ended(endings).Outcome, eviction.APIWithdrawn)
		wait(10 * time.Minute)
		r.expect("calls", r.api.times("a"), []time.Duration{0, 5 * second, 10 * second})
		r.expect("submitted", r.killer.Submitted("a", snapshot.EvictionAPI), false)
		r.expect("blocked", r.killer.Blocked(), "[]")
	})
}

// TestE11WithdrawnBeforeTheFirstCall: a request that has ended while the pod waited for its turn causes no call.
func TestE11WithdrawnBeforeTheFirstCall(t *testing.T) {
	play(t, func(r *rig) {
		r.asks(snapshot.EvictionAPI, "a")
		r.asks(snapshot.EvictionAPI)
		endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", 1)
		wait(0)
		r.expect("outcome", r.ended(endings).Outcome, eviction.APIWithdrawn)
		r.asks(snapshot.DeleteAPI, "a")
		endings = r.evict(r.Context(), snapshot.EvictionAPI, "a", 1)
		wait(0)
		r.expect("outcome, another killer", r.ended(endings).Outcome, eviction.APIWithdrawn)
		r.expect("calls", len(r.api.seen()), 0)
	})
}

// TestE11MoreGraceIsRequested: a pod never gets less time than plugins request now. Less time than before does not end
// the attempt.
func TestE11MoreGraceIsRequested(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(string, int) error { return blockedFor(0) })
		r.asks(snapshot.EvictionAPI, "a", "b")
		a := r.evict(r.Context(), snapshot.EvictionAPI, "a", 20)
		b := r.evict(r.Context(), snapshot.EvictionAPI, "b", 20)
		wait(3 * second)
		r.grants("a", 300)
		r.grants("b", 10)
		r.api.set(nil)
		wait(2 * second)
		r.expect("more time", r.ended(a).Outcome, eviction.APIWithdrawn)
		r.expect("calls", r.api.times("a"), []time.Duration{0})
		r.expect("less time", r.ended(b).Outcome, eviction.APIAccepted)
		again := r.evict(r.Context(), snapshot.EvictionAPI, "a", 300)
		wait(0)
		r.expect("again", r.ended(again).Outcome, eviction.APIAccepted)
	})
}

// TestE11BlockedUntilItsTimeIsOver: an attempt goes on for max(10 s, 1.5 × grace period), with a last call at that
// time if one is due then. What the API server names in Retry-After is waited for, at most 30 s.
func TestE11BlockedUntilItsTimeIsOver(t *testing.T) {
	for _, test := range []struct {
		grace      int64
		retryAfter int
		calls      []time.Duration
		gaveUp     time.Duration
	}{
		{1, 0, []time.Duration{0, 5 * second, 10 * second}, 10 * second},
		{1, 3, []time.Duration{0, 3 * second, 6 * second, 9 * second}, 10 * second},
		{20, 10, []time.Duration{0, 10 * second, 20 * second, 30 * second}, 30 * second},
		{40, 3600, []time.Duration{0, 30 * second, 60 * second}, 60 * second},
	} {
		play(t, func(r *rig) {
			r.api.set(func(string, int) error { return blockedFor(test.retryAfter) })
			r.asks(snapshot.EvictionAPI, "a")
			endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", test.grace)
			wait(test.gaveUp - time.Millisecond)
			r.underWay(endings)
			r.expect("blocked", r.killer.Blocked(), "[a]")
			wait(time.Millisecond)
			e := r.ended(endings)
			r.expect("outcome", e.Outcome, eviction.APIGaveUp)
			if !strings.Contains(e.Err.Error(), "The disruption budget web needs 3 healthy pods") {
				r.Error(e.Err)
			}
			r.expect("calls", r.api.times("a"), test.calls)
			r.expect("reported", len(r.blocked["a"]), 1)
			r.expect("submitted for a while", r.killer.Submitted("a", snapshot.EvictionAPI), true)
			changes := r.changed()
			for r.killer.Submitted("a", snapshot.EvictionAPI) {
				r.expect("changes", r.changed(), changes)
				wait(second)
			}
			r.expect("changes when another attempt may begin", r.changed(), changes+1)
		})
	}
}

// TestE12TenBlockedDoNotStarveTheEleventh: pods that wait hold none of the ten calls. The eleventh is evicted at once.
func TestE12TenBlockedDoNotStarveTheEleventh(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(pod string, _ int) error {
			if strings.HasPrefix(pod, "blocked") {
				return blockedFor(10)
			}
			return nil
		})
		names := []string{"z"}
		for i := range 25 {
			names = append(names, fmt.Sprintf("blocked-%02d", i))
		}
		r.asks(snapshot.EvictionAPI, names...)
		for _, name := range names[1:] {
			r.evict(r.Context(), snapshot.EvictionAPI, name, 60)
		}
		wait(second)
		r.expect("blocked", r.killer.Blocked(), names[1:])
		endings := r.evict(r.Context(), snapshot.EvictionAPI, "z", 60)
		wait(0)
		r.expect("outcome", r.ended(endings).Outcome, eviction.APIAccepted)
		r.expect("time of the call", r.api.times("z"), []time.Duration{second})
		// The budget is relaxed.
		r.api.set(nil)
		wait(10 * second)
		r.expect("blocked", r.killer.Blocked(), "[]")
		r.expect("calls", len(r.api.seen()), 51)
	})
}

// TestE12AHungAPIServer: at most ten calls are under way, each for at most 10 s, and every pod has its turn.
func TestE12AHungAPIServer(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(pod string, _ int) error {
			if pod == "z" {
				return nil
			}
			return errHang
		})
		var names []string
		for i := range 10 {
			names = append(names, fmt.Sprintf("hung-%d", i))
		}
		r.asks(snapshot.EvictionAPI, append(names, "z")...)
		for _, name := range names {
			r.evict(r.Context(), snapshot.EvictionAPI, name, 600)
		}
		wait(second)
		endings := r.evict(r.Context(), snapshot.EvictionAPI, "z", 1)
		wait(8 * second)
		r.underWay(endings)
		wait(second)
		r.expect("outcome", r.ended(endings).Outcome, eviction.APIAccepted)
		r.expect("calls under way", r.api.most, 10)
		r.expect("blocked", r.killer.Blocked(), names)
		r.asks(snapshot.EvictionAPI)
		wait(time.Minute)
	})
}

// TestTheCallIsAnEvictionOfThisPod: the call has the grace period, and the UID of the pod as its precondition.
func TestTheCallIsAnEvictionOfThisPod(t *testing.T) {
	for killer, want := range map[snapshot.Killer]string{
		snapshot.EvictionAPI: "POST /api/v1/namespaces/ns/pods/a/eviction",
		snapshot.DeleteAPI:   "DELETE /api/v1/namespaces/ns/pods/a",
	} {
		play(t, func(r *rig) {
			r.asks(killer, "a")
			endings := r.evict(r.Context(), killer, "a", 7)
			r.expect("submitted", r.killer.Submitted("a", killer), true)
			r.expect("submitted to the pod workers", r.killer.Submitted("a", snapshot.PodWorker), false)
			wait(0)
			r.expect("outcome", r.ended(endings).Outcome, eviction.APIAccepted)
			c := r.api.seen()[0]
			r.expect("call", c.method+" "+c.path, want)
			if o := c.options; o.Preconditions == nil || *o.Preconditions.UID != "a" || *o.GracePeriodSeconds != 7 {
				r.Errorf("options %+v", o)
			}
			r.expect("still submitted", r.killer.Mark(r.get())[0].Submitted, true)
			r.expect("unchanged", r.get()[0].Submitted, false)
			wait(holdAccepted)
			r.expect("submitted", r.killer.Mark(r.get())[0].Submitted, false)
		})
	}
}

// TestAnswersOfTheAPIServer: what becomes of an attempt after each answer to its first call.
func TestAnswersOfTheAPIServer(t *testing.T) {
	conflict := apierrors.NewConflict(pods, "a", fmt.Errorf("precondition"))
	for name, test := range map[string]struct {
		answer   error
		existing string
		want     eviction.APIOutcome
		text     string
		calls    int
	}{
		"accepted":         {want: eviction.APIAccepted, calls: 1},
		"not found":        {answer: apierrors.NewNotFound(pods, "a"), want: eviction.APIGone, calls: 1},
		"another UID":      {answer: conflict, existing: "b", want: eviction.APIGone, calls: 1},
		"another conflict": {answer: conflict, want: eviction.APIAccepted, calls: 2},
		"forbidden": {
			answer: apierrors.NewForbidden(pods, "a", fmt.Errorf("no")), want: eviction.APIRejected, calls: 1,
			text: "needs the permission to create on pods/eviction",
		},
		"invalid":      {answer: apierrors.NewBadRequest("bad"), want: eviction.APIRejected, calls: 1, text: "bad"},
		"unauthorized": {answer: apierrors.NewUnauthorized("expired"), want: eviction.APIAccepted, calls: 2},
		"server error": {answer: apierrors.NewInternalError(fmt.Errorf("etcd")), want: eviction.APIAccepted, calls: 2},
		"unavailable":  {answer: apierrors.NewServiceUnavailable("away"), want: eviction.APIAccepted, calls: 2},
		"broken":       {answer: errBroken, want: eviction.APIAccepted, calls: 2},
		"hung":         {answer: errHang, want: eviction.APIAccepted, calls: 2},
		"blocked":      {answer: blockedFor(10), want: eviction.APIAccepted, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				r.api.existing = v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b"}}.UID
				if test.existing == "" {
					r.api.existing = ""
				}
				r.api.set(func(_ string, n int) error {
					if n > 0 {
						return nil
					}
					return test.answer
				})
				r.asks(snapshot.EvictionAPI, "a")
				endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", 20)
				wait(16 * second)
				e := r.ended(endings)
				r.expect("outcome", e.Outcome, test.want)
				if test.text != "" && !strings.Contains(e.Err.Error(), test.text) {
					r.Error(e.Err)
				}
				r.expect("calls", len(r.api.seen()), test.calls)
				_, reported := r.blocked["a"]
				r.expect("reported", reported, name == "blocked")
			})
		})
	}
}

// TestAnAPIServerThatIsAway: the attempt goes on until its time is over, without a report of a budget.
func TestAnAPIServerThatIsAway(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(string, int) error { return errBroken })
		r.asks(snapshot.DeleteAPI, "a")
		endings := r.evict(r.Context(), snapshot.DeleteAPI, "a", 1)
		wait(10 * second)
		r.expect("outcome", r.ended(endings).Outcome, eviction.APIGaveUp)
		r.expect("calls", r.api.times("a"), []time.Duration{0, 5 * second, 10 * second})
		r.expect("reported", len(r.blocked), 0)
		r.expect("blocked", r.killer.Blocked(), "[a]")
	})
}

// TestPodsThatEndMeanwhile: no call is made for a pod that is gone or terminating. After a call without an answer,
// a pod that terminates counts as evicted by it.
func TestPodsThatEndMeanwhile(t *testing.T) {
	deleted := func(pod *v1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }
	for name, test := range map[string]struct {
		answer error
		change func(*v1.Pod)
		want   eviction.APIOutcome
	}{
		"gone":                           {blockedFor(0), nil, eviction.APIGone},
		"deleted by others":              {blockedFor(0), deleted, eviction.APIGone},
		"deleted, but without an answer": {errBroken, deleted, eviction.APIAccepted},
		"deleted, after a server error":  {apierrors.NewInternalError(fmt.Errorf("etcd")), deleted, eviction.APIAccepted},
		"deleted by others, unauthorized": {
			apierrors.NewUnauthorized("expired"), deleted, eviction.APIGone,
		},
		"deleted by others, conflict": {
			apierrors.NewConflict(pods, "a", fmt.Errorf("precondition")), deleted, eviction.APIGone,
		},
		"deleted by others, no connection": {errRefused, deleted, eviction.APIGone},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig) {
				r.api.set(func(string, int) error { return test.answer })
				r.asks(snapshot.EvictionAPI, "a")
				endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", 20)
				wait(second)
				r.change("a", test.change)
				wait(second)
				r.expect("outcome", r.ended(endings).Outcome, test.want)
				r.expect("calls", len(r.api.seen()), 1)
			})
		})
	}
}

// TestAnAcceptedEvictionIsRecordedFirst: what Changed causes already finds the pod among those that are being evicted.
func TestAnAcceptedEvictionIsRecordedFirst(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(pod string, _ int) error {
			if pod == "b" {
				return apierrors.NewBadRequest("bad")
			}
			return nil
		})
		r.asks(snapshot.EvictionAPI, "a", "b")
		for _, name := range []string{"a", "b"} {
			ending := r.evict(r.Context(), snapshot.EvictionAPI, name, 20)
			wait(0)
			r.ended(ending)
		}
		r.expect("order", r.log, "[accepted a changed changed]")
	})
}

// TestOneAttemptOfAKillerAtATime: a second attempt does nothing, one of another killer is independent, and one that
// follows a withdrawn one comes not before the next call would have.
func TestOneAttemptOfAKillerAtATime(t *testing.T) {
	play(t, func(r *rig) {
		r.api.set(func(string, int) error { return blockedFor(20) })
		r.asks(snapshot.EvictionAPI, "a")
		ctx, cancel := context.WithCancel(r.Context())
		first := r.evict(ctx, snapshot.EvictionAPI, "a", 60)
		wait(second)
		r.expect("second", r.ended(r.evict(r.Context(), snapshot.EvictionAPI, "a", 60)).Outcome, eviction.APIWithdrawn)
		changes := r.changed()
		cancel()
		wait(0)
		r.expect("first", r.ended(first).Outcome, eviction.APIWithdrawn)
		r.expect("changes", r.changed(), changes+1)
		r.expect("blocked", r.killer.Blocked(), "[a]")
		r.asks(snapshot.DeleteAPI, "a")
		r.expect("submitted to the other killer", r.killer.Submitted("a", snapshot.DeleteAPI), false)
		r.api.set(nil)
		other := r.evict(r.Context(), snapshot.DeleteAPI, "a", 60)
		wait(0)
		r.expect("other", r.ended(other).Outcome, eviction.APIAccepted)
		wait(20 * second)
		r.expect("blocked", r.killer.Blocked(), "[]")
		r.expect("submitted", r.killer.Submitted("a", snapshot.EvictionAPI), false)
	})
}

// TestOnARealConnection: through sockets, the client does not repeat a call that is answered with 429 by itself.
func TestOnARealConnection(t *testing.T) {
	api := &server{began: time.Now()}
	api.set(func(_ string, n int) error {
		if n == 0 {
			return blockedFor(1)
		}
		return nil
	})
	listener := httptest.NewServer(http.Handler(api))
	defer listener.Close()
	fake := clocktesting.NewFakeClock(time.Now())
	r := newRig(t, api, &rest.Config{Host: listener.URL}, fake)
	r.asks(snapshot.EvictionAPI, "a")
	endings := r.evict(r.Context(), snapshot.EvictionAPI, "a", 60)
	await.True(t, "the pod waits", fake.HasWaiters)
	r.expect("calls", len(api.seen()), 1)
	r.expect("blocked", r.killer.Blocked(), "[a]")
	fake.Step(second)
	if e := <-endings; e.Outcome != eviction.APIAccepted {
		t.Errorf("%+v", e)
	}
	r.expect("calls", len(api.seen()), 2)
}

// TestConfigIsComplete: every field is required.
func TestConfigIsComplete(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a killer without a client is made")
	}
}
