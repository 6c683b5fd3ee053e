package arbiter

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func (d *draw) killers() Killers {
	killer := func() snapshot.Killer { return snapshot.Killer(d.IntN(3)) }
	return Killers{Forced: killer(), Soft: killer(), ByQoSLevel: map[string]snapshot.Killer{"other_cores": killer()}}
}

// expected is what follows for one pod from what is asked for, reckoned without the code under test.
type expected struct {
	*Pod
	forced, blocked bool
	killer          snapshot.Killer
}

// asked returns the pods that are asked for and not in flight.
func (h *history) asked() map[types.UID]expected {
	list := map[types.UID]expected{}
	for _, a := range h.state.Asks {
		if p := h.pod(a.UID); !p.InFlight {
			list[a.UID] = expected{Pod: p, forced: list[a.UID].forced || a.Force}
		}
	}
	for uid, e := range list {
		e.killer = h.killer(e.Pod, e.forced)
		e.blocked = e.Blocked && e.killer != snapshot.PodWorker
		list[uid] = e
	}
	return list
}

func (h *history) killer(p *Pod, forced bool) snapshot.Killer {
	switch {
	case p.QoSLevel == "other_cores":
		return h.rules.Killers.ByQoSLevel[p.QoSLevel]
	case forced:
		return h.rules.Killers.Forced
	}
	return h.rules.Killers.Soft
}

// checkNotices checks that exactly the pods are given notice that are asked for without force, and have opted for it.
func (h *history) checkNotices(out Outcome) {
	var got, want []types.UID
	for _, n := range out.Notices {
		got = append(got, n.UID)
	}
	for uid, e := range h.asked() {
		if e.NotifyOnly && !e.forced {
			want = append(want, uid)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		h.t.Errorf("notices for %q, not %q", got, want)
	}
}

// checkBlocked checks the killers of requests, and that no blocked pod keeps its place while a candidate that is new,
// or has waited for its turn, could have it.
func (h *history) checkBlocked(before State, out Outcome) {
	asked, keeps := h.asked(), types.UID("")
	requested := map[types.UID]bool{}
	for i := range out.Requests {
		r := &out.Requests[i]
		requested[r.UID] = true
		if want := h.killer(h.pod(r.UID), r.Forced); r.Killer != want {
			h.t.Errorf("killer %d, not %d: %+v", r.Killer, want, r)
		}
		if _, kept := slices.BinarySearch(before.Offered, r.UID); kept && asked[r.UID].blocked && before.waits(r.UID) {
			keeps = r.UID
		}
	}
	for uid, e := range asked {
		_, kept := slices.BinarySearch(before.Offered, uid)
		spent := (h.rules.Burst >= 0 && h.state.Fresh >= h.rules.Burst) || (!e.forced && h.state.FreshSoft > 0)
		if keeps != "" && !requested[uid] && !kept && !spent && (e.forced || !e.NotifyOnly) {
			h.t.Errorf("%s is blocked and keeps its place from %s", keeps, uid)
		}
	}
}

func (s *State) waits(uid types.UID) bool {
	return slices.ContainsFunc(s.Waits, func(w Wait) bool { return w.UID == uid })
}

// checkQuestion checks that no pod is a candidate that is in flight or whose eviction by force is blocked.
func (h *history) checkQuestion(q *Question) {
	for i := range h.pods {
		p := &h.pods[i]
		blocked := q.Kind == Hard && p.Blocked && h.killer(p, true) != snapshot.PodWorker
		if _, omitted := slices.BinarySearch(q.Omitted, p.UID); omitted != (p.InFlight || blocked) {
			h.t.Errorf("omitted: %v, not %v: %+v", omitted, !omitted, p)
		} else if omitted && slices.Contains(q.Candidates, p.UID) {
			h.t.Errorf("must be no candidate: %+v", p)
		}
	}
}
