package collect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func result(uid types.UID, kind eviction.ResultKind, answer podkill.Answer) *eviction.Result {
	return &eviction.Result{
		Kind: kind, Answer: answer, Victim: &policy.Victim{Pod: &snapshot.Pod{Facts: &snapshot.Facts{UID: uid}}},
	}
}

// Evictions that have begun are counted for the owner, whatever their cause; nothing else is.
func TestEvictionsAreCountedByOwner(t *testing.T) {
	r := newRig(t)
	a, b := podIn("shop", "a", "web"), podIn("shop", "b", "web")
	other, alone := podIn("shop", "c", "db"), podIn("shop", "d", "")
	for _, pod := range []*v1.Pod{a, b, other, alone} {
		r.pods[pod.UID] = pod
	}
	for _, counted := range []*eviction.Result{
		result(a.UID, eviction.KillAccepted, podkill.Begun), result(alone.UID, eviction.KillAccepted, podkill.Begun),
	} {
		r.Result(t.Context(), counted)
	}
	for _, ignored := range []*eviction.Result{
		result(a.UID, eviction.KillAccepted, podkill.Hastened), result(a.UID, eviction.KillAccepted, podkill.Unchanged),
		result(a.UID, eviction.KillRefused, podkill.Refused), result(a.UID, eviction.PodStopped, podkill.Begun),
		result("gone", eviction.KillAccepted, podkill.Begun), {Kind: eviction.ReclaimEnded},
	} {
		r.Result(t.Context(), ignored)
	}
	r.pass(30 * time.Minute)
	r.Result(t.Context(), result(b.UID, eviction.KillAccepted, podkill.Begun))
	r.Result(t.Context(), result(b.UID, eviction.KillAccepted, podkill.Begun))
	hour := start.Truncate(time.Hour)
	want := map[types.UID]records.Record{
		a.UID:     {UID: a.UID, Buckets: []records.Bucket{{Start: hour, Count: 1}, {Start: hour.Add(time.Hour), Count: 2}}},
		b.UID:     {UID: b.UID, Buckets: []records.Bucket{{Start: hour, Count: 1}, {Start: hour.Add(time.Hour), Count: 2}}},
		other.UID: {UID: other.UID},
		alone.UID: {UID: alone.UID, Buckets: []records.Bucket{{Start: hour, Count: 1}}},
	}
	if diff := cmp.Diff(want, r.Records(t.Context(), []*v1.Pod{a, b, other, alone})); diff != "" {
		t.Error(diff)
	}
	r.pass(24 * time.Hour)
	for _, record := range r.Records(t.Context(), []*v1.Pod{a, alone}) {
		if len(record.Buckets) > 1 || (record.UID == alone.UID && len(record.Buckets) > 0) {
			t.Errorf("a day later: %+v", record)
		}
	}
}

// Without an API server there are evictions, and no budgets.
func TestStandalone(t *testing.T) {
	pod := podIn("shop", "a", "web")
	c := New(Config{
		PodByUID: func(types.UID) (*v1.Pod, bool) { return pod, true }, Clock: clocktesting.NewFakePassiveClock(start),
	})
	c.Result(t.Context(), result(pod.UID, eviction.KillAccepted, podkill.Begun))
	got := c.Records(t.Context(), []*v1.Pod{pod})[pod.UID]
	if len(got.Buckets) != 1 || got.Budget != nil {
		t.Errorf("got %+v", got)
	}
}

// Rounds are not queued for the collector.
func TestRoundsAreOfNoInterest(t *testing.T) {
	if newRig(t).NeedsRound(&eviction.Round{}) {
		t.Error("the collector is called for a round")
	}
}
