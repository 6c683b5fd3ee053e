package eviction

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestVeryLongGraceEndsInTheFuture: a soft eviction may leave a pod its own grace period, of which the API allows more
// than a time.Duration can hold. Such a pod is not overdue.
func TestVeryLongGraceEndsInTheFuture(t *testing.T) {
	pod := snapshot.Pod{Facts: snapshot.NewFacts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, false)}
	l, now := newLedger(), time.Unix(1e9, 0)
	l.begin(&policy.Victim{Pod: &pod, GraceSeconds: math.MaxInt64}, 1, now)
	inFlight, _ := l.view()
	if end := inFlight[0].Deadline; !end.After(now) {
		t.Errorf("the grace period is over at %v, now is %v", end, now)
	}
}

// A pod may be cleaned up as soon as its kill request has ended. The sinks receive that it has stopped, and only then
// that it is released.
func TestReleaseIsReportedAfterTheStop(t *testing.T) {
	l, now := newLedger(), time.Unix(1e9, 0)
	yes := func(types.UID) bool { return true }
	released := func() (kinds []ResultKind) {
		_, results := l.sweep(fixed(now), false, lives{stopped: yes, cleanedUp: yes})
		for i := range results {
			kinds = append(kinds, results[i].Kind)
		}
		return kinds
	}
	l.begin(victimOf("uid"), 1, now)
	l.accepted("uid", podkill.Begun)
	expect(t, "evicted", l.ended("uid", podkill.Ending{Outcome: podkill.Stopped}, now), true)
	expect(t, "results before the stop is reported", released(), nil)
	l.reported("uid")
	expect(t, "results afterwards", released(), []ResultKind{PodReleased})
	expect(t, "the ledger is empty", l.empty(), true)
}

// A pod that did not stop in time, and whose deletion the API server accepts later, is in flight again.
func TestAbandonedPodThatTheAPIServerDeletes(t *testing.T) {
	pod := snapshot.Pod{Facts: snapshot.NewFacts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, false)}
	l, now := newLedger(), time.Unix(1e9, 0)
	no := func(types.UID) bool { return false }
	v := &policy.Victim{Pod: &pod, GraceSeconds: 10, Cause: policy.Cause{Kind: policy.PluginRequest}}
	expect(t, "first", l.deleted(v, 1, now), true)
	expect(t, "twice", l.deleted(v, 2, now), false)
	now = now.Add(10*time.Second + abandonOverdue)
	l.sweep(fixed(now), false, lives{stopped: no, cleanedUp: no})
	expect(t, "abandoned", l.empty(), true)
	expect(t, "again", l.deleted(v, 3, now), false)
	inFlight, _ := l.view()
	if len(inFlight) != 1 || !inFlight[0].Deadline.Equal(now.Add(10*time.Second)) || !inFlight[0].Requested {
		t.Errorf("in flight: %+v", inFlight)
	}
}

func victimOf(uid types.UID) *policy.Victim {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	return &policy.Victim{Pod: &snapshot.Pod{Facts: snapshot.NewFacts(pod, false)}}
}

// fixed returns a clock that always shows this time.
func fixed(now time.Time) func() time.Time { return func() time.Time { return now } }

// The volumes of a victim hang for longer than its entry counts. Their release is recorded all the same: stats from
// before it do not show it.
func TestReleaseOfAPodWhoseVolumesHangForLong(t *testing.T) {
	l, now := newLedger(), time.Unix(1e9, 0)
	cleanedUp := false
	pods := lives{
		stopped:   func(types.UID) bool { return true },
		cleanedUp: func(types.UID) bool { return cleanedUp },
	}
	l.begin(victimOf("uid"), 1, now)
	l.accepted("uid", podkill.Begun)
	l.ended("uid", podkill.Ending{Outcome: podkill.Stopped}, now)
	l.reported("uid")
	now = now.Add(forgetAfter)
	l.sweep(fixed(now), false, pods)
	expect(t, "nothing is in flight", l.empty(), true)
	cleanedUp, now = true, now.Add(time.Hour)
	changed, results := l.sweep(fixed(now), false, pods)
	if !changed || len(results) != 1 || results[0].Kind != PodReleased {
		t.Errorf("changed: %t, results %+v", changed, results)
	}
	_, lastRelease := l.view()
	expect(t, "last release", lastRelease, now)
	expect(t, "the ledger has no entry", l.unused(), true)
}

// The usage of a pod whose kill has failed is followed until it has stopped: what its volumes hold then comes back.
func TestReleaseOfAFailedKillIsUpToDate(t *testing.T) {
	l, now := newLedger(), time.Unix(1e9, 0)
	stopped := false
	pods := lives{
		stopped: func(types.UID) bool { return stopped }, cleanedUp: func(types.UID) bool { return false },
	}
	facts := snapshot.NewFacts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, false)
	using := func(n snapshot.Bytes) snapshot.Pod {
		return snapshot.Pod{Facts: facts, Images: snapshot.Unknown,
			Usage: &snapshot.Usage{Memory: n, AnonymousMemory: 0, LocalStorage: snapshot.Unknown}}
	}
	pod, layout := using(1<<30), snapshot.Layout{Known: true}
	l.begin(&policy.Victim{Pod: &pod, Expected: pod.Release(layout)}, 1, now)
	l.accepted("uid", podkill.Begun)
	l.ended("uid", podkill.Ending{Outcome: podkill.Failed}, now)
	l.reported("uid")
	now = now.Add(20 * time.Second)
	l.observe([]snapshot.Pod{using(3 << 30)}, layout)
	stopped = true
	l.sweep(fixed(now), false, pods)
	inFlight, _ := l.view()
	expect(t, "state", inFlight[0].State, snapshot.Stopped)
	expect(t, "expected release", inFlight[0].Expected.Memory, snapshot.Bytes(3<<30))
}

// A pod may stop between the snapshot of a round and the request of that round to hasten it. It counts as evicted once,
// and stays stopped.
func TestPodThatStopsBeforeItIsHastenedIsEvictedOnce(t *testing.T) {
	l, now := newLedger(), time.Unix(1e9, 0)
	l.begin(victimOf("uid"), 1, now)
	l.accepted("uid", podkill.Begun)
	expect(t, "evicted", l.ended("uid", podkill.Ending{Outcome: podkill.Stopped}, now), true)
	l.begin(victimOf("uid"), 2, now)
	l.accepted("uid", podkill.Unchanged)
	inFlight, _ := l.view()
	expect(t, "state", inFlight[0].State, snapshot.Stopped)
	expect(t, "evicted again", l.ended("uid", podkill.Ending{Outcome: podkill.Stopped}, now), false)
}
