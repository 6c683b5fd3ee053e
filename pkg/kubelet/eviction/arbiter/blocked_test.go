package arbiter

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Killers that the pods of requests get, by the kind of the request and by the level of the pod.
func TestKillers(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b", QoSLevel: ReclaimedCores}, Pod{UID: "c", QoSLevel: "other_cores"})
	h.rules.Killers = Killers{
		Forced: snapshot.PodWorker, Soft: snapshot.EvictionAPI,
		ByQoSLevel: map[string]snapshot.Killer{ReclaimedCores: snapshot.DeleteAPI, "": snapshot.DeleteAPI},
	}
	killers := func(out Outcome) (text string) {
		for i := range out.Requests {
			text += fmt.Sprintf("%s/%s ", out.Requests[i].UID, out.Requests[i].Killer)
		}
		return text
	}
	softly := soft("p", "a", "b", "c")
	h.round(softly)
	h.round(softly)
	h.expect("soft", killers(h.round(softly)), "b/DeleteAPI a/EvictionAPI c/EvictionAPI ")
	h.expect("forced", killers(h.round(forced("p", "a", "b", "c"))), "b/DeleteAPI a/PodWorker c/PodWorker ")
	h.expect("one plugin with force", killers(h.round(softly, forced("q", "a"))),
		"a/PodWorker b/DeleteAPI c/EvictionAPI ")
}

// soft is the answer of a plugin that asks for pods without force.
func soft(plugin string, pods ...types.UID) Answer {
	d := &Demand{}
	for _, uid := range pods {
		d.Pods = append(d.Pods, PodDemand{UID: uid, Reason: "r"})
	}
	return Answer{Plugin: plugin, Threshold: &Threshold{}, Demand: d}
}

// blockedPods returns so many pods whose evictions are blocked.
func blockedPods(n int) (pods []Pod, uids []types.UID) {
	for i := range n {
		uids = append(uids, types.UID(fmt.Sprintf("blocked%02d", i)))
		pods = append(pods, Pod{UID: uids[i], Blocked: true})
	}
	return pods, uids
}

func newAPIHistory(t *testing.T, pods ...Pod) *history {
	h := newHistory(t, pods...)
	h.rules.Killers = Killers{Forced: snapshot.EvictionAPI, Soft: snapshot.EvictionAPI}
	return h
}

// E12: twenty blocked soft candidates and ten places: one that is fresh is requested in the round in which it is asked
// for, though its plugin answers after another one and its priority is higher, or in the next one if another candidate
// had the turn of the round.
func TestE12BlockedPodsKeepNoFreshOneWaiting(t *testing.T) {
	pods, names := blockedPods(20)
	h := newAPIHistory(t, append(pods, Pod{UID: "fresh", Priority: 1})...)
	blocked := soft("p", names...)
	for range 30 {
		h.round(blocked)
	}
	if n := len(h.round(blocked).Requests); n != h.rules.MaxInFlight {
		t.Fatalf("%d of the blocked pods are requested", n)
	}
	h.active = append(h.active, "q")
	taken := h.state.FreshSoft
	h.answer(soft("q", "fresh"))
	_, requested := slices.BinarySearch(h.state.Offered, "fresh")
	h.expect("in the round, if it had a turn left", fmt.Sprint(requested), fmt.Sprint(taken == 0))
	asked := h.settle(Answers{Active: h.active, Begun: true})
	_, requested = slices.BinarySearch(h.state.Offered, "fresh")
	h.expect("in the next round", fmt.Sprint(requested), "true")
	h.expect("places", fmt.Sprint(len(asked.Requests)), "10")
}

// E12: blocked pods take turns: of those that wait for places each is requested within as many rounds as there are.
// One that was requested longest gives its place back first.
func TestE12BlockedPodsTakeTurns(t *testing.T) {
	for _, force := range []bool{true, false} {
		pods, names := blockedPods(20)
		h := newAPIHistory(t, pods...)
		ask := soft("p", names...)
		for i := range ask.Demand.Pods {
			ask.Demand.Pods[i].Force = force
		}
		for range 20 {
			h.round(ask)
		}
		requested, turns := map[types.UID]int{}, 2*len(names)
		for range turns {
			before := h.state.Offered
			for _, r := range h.round(ask).Requests {
				if _, kept := slices.BinarySearch(before, r.UID); !kept {
					requested[r.UID]++
				}
			}
		}
		want := turns / len(names)
		if force {
			want *= h.rules.Burst
		}
		for _, uid := range names {
			if n := requested[uid]; n < want-1 || n > want+1 {
				t.Errorf("force %v: %s was newly requested %d times, not %d", force, uid, n, want)
			}
		}
	}
}

// A blocked pod keeps its place while no other candidate needs it.
func TestBlockedPodStaysRequested(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	h.rules.MaxInFlight = 2
	h.round(soft("p", "a", "b"))
	h.round(soft("p", "a", "b"))
	h.pod("a").Blocked, h.pod("b").Blocked = true, true
	for range 20 {
		h.expect("requests", uids(h.round(soft("p", "a", "b")).Requests), "a b")
	}
}

// A pod that was blocked gives its place back also between two attempts to evict it. Once it has got another place, it
// keeps that until it is blocked again.
func TestPodBetweenTwoAttemptsGivesItsPlaceBack(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	h.rules.MaxInFlight = 1
	h.expect("alone", uids(h.round(soft("p", "a")).Requests), "a")
	h.pod("a").Blocked = true
	h.round(soft("p", "a"))
	h.pod("a").Blocked = false
	h.expect("another one needs the place", uids(h.round(soft("p", "a", "b")).Requests), "b")
	h.expect("not blocked", uids(h.round(soft("p", "a", "b")).Requests), "b")
	h.pod("b").Blocked = true
	h.expect("blocked", uids(h.round(soft("p", "a", "b")).Requests), "a")
}

// A blocked pod that is now asked for by force and stopped by the pod workers has a place as if it had not waited. A
// plugin that asks with force every other time gains no more than that.
func TestForceEndsTheBlock(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a"}, Pod{UID: "b"}, Pod{UID: "c"})
	h.rules.Killers.Forced, h.rules.MaxInFlight = snapshot.PodWorker, 1
	h.round(soft("p", "a"))
	h.pod("a").Blocked = true
	h.expect("gave it back", uids(h.round(soft("p", "a", "b")).Requests), "b")
	h.pod("b").Blocked = true
	h.expect("forced", uids(h.round(soft("p", "b"), forced("q", "a")).Requests), "a")
	h.expect("soft again", uids(h.round(soft("p", "a", "c")).Requests), "c")
	h.expect("forced again", uids(h.round(soft("p", "c"), forced("q", "a")).Requests), "c")
}

// A pod that pod workers stop is not blocked, though an earlier attempt by the API server still is.
func TestPodWorkersAreNotBlocked(t *testing.T) {
	h := newHistory(t, Pod{UID: "a", Blocked: true}, Pod{UID: "b"})
	h.rules.MaxInFlight = 1
	for range 3 {
		h.expect("requests", uids(h.round(soft("p", "a", "b")).Requests), "a")
	}
}

// E11: a blocked request ends when it is no longer asked for, one of a threshold when that is no longer met.
func TestE11BlockedRequestsAreWithdrawn(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	q := h.round(hard("p", 0), soft("q", "b")).Questions[0]
	h.expect("both", uids(h.replies(Reply{Question: q, Pods: []types.UID{"a"}}).Requests), "a b")
	h.pod("a").Blocked, h.pod("b").Blocked = true, true
	h.expect("blocked", uids(h.round(hard("p", 0), soft("q", "b")).Requests), "a b")
	h.expect("the threshold has ended", uids(h.round(soft("p"), soft("q", "b")).Requests), "b")
	h.expect("not asked for", uids(h.round(soft("p"), soft("q")).Requests), "")
	if len(h.state.Waits) != 0 {
		t.Errorf("left: %+v", h.state.Waits)
	}
}

// E10: a hard threshold whose victim is blocked asks for another pod, which takes its place. When the plugin names no
// other, the blocked one stays requested.
func TestE10BlockedVictimOfAHardThreshold(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a"}, Pod{UID: "b"}, Pod{UID: "c"})
	met := hard("p", 0)
	q := h.round(met).Questions[0]
	h.expect("victim", uids(h.replies(Reply{Question: q, Pods: []types.UID{"a", "b"}}).Requests), "a")
	if out := h.round(met); len(out.Questions) != 0 {
		t.Errorf("asked again before the victim is blocked: %+v", out.Questions)
	}
	h.pod("a").Blocked, h.pod("b").Blocked = true, true
	met.Threshold.Candidates = []types.UID{"a", "b", "c"}
	q = h.round(met).Questions[0]
	h.expect("candidates", fmt.Sprint(q.Candidates, q.Omitted), "[c] [a b]")
	h.expect("nobody named", uids(h.replies(Reply{Question: q}).Requests), "a")
	h.expect("blocked ones named", uids(h.replies(Reply{Question: q, Pods: []types.UID{"b", "a"}}).Requests), "a")
	h.expect("another", uids(h.replies(Reply{Question: q, Pods: []types.UID{"b", "c"}}).Requests), "c")
	h.pod("c").Blocked = true
	if out := h.round(met); len(out.Questions) != 0 || uids(out.Requests) != "c" {
		t.Errorf("all candidates are blocked: %+v", out)
	}
	h.rules.Killers.Forced = snapshot.PodWorker
	if out := h.round(met); len(out.Questions) != 0 || uids(out.Requests) != "c" {
		t.Errorf("pod workers stop the victim: %+v", out)
	}
}

// E10: a hard threshold takes a pod that is blocked if there is no other.
func TestE10OnlyBlockedPodsAreNamed(t *testing.T) {
	h := newAPIHistory(t, Pod{UID: "a", Blocked: true}, Pod{UID: "b", Blocked: true})
	q := h.round(hard("p", 0)).Questions[0]
	h.expect("victim", uids(h.replies(Reply{Question: q, Pods: []types.UID{"foreign", "b", "a"}}).Requests), "b")
}
