package policy

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// checkOrder: the order of pods and of what is in flight makes no difference.
func (g *requestGame) checkOrder(s *snapshot.Snapshot, d *Decision) {
	other := *s
	seed := g.Int64()
	other.Pods, other.InFlight = shuffled(s.Pods, seed), shuffled(s.InFlight, seed)
	again, _ := Decide(&other, g.rules, g.state)
	if !slices.Equal(explained(again.Victims), explained(d.Victims)) {
		g.failf("victims %q, and in another order %q", explained(d.Victims), explained(again.Victims))
	}
}

// checkNeeds: requests change nothing about the rest of the decision, except that a victim may have less grace; and a
// hard need awaits its turn only because of what the node has evicted.
func (g *requestGame) checkNeeds(s *snapshot.Snapshot, d *Decision, next State) {
	without := *s
	without.Requests = nil
	alone, state := Decide(&without, g.rules, g.state)
	own := *d
	own.Victims = slices.DeleteFunc(slices.Clone(d.Victims), func(v Victim) bool { return v.Cause.Kind == PluginRequest })
	for i := range min(len(own.Victims), len(alone.Victims)) {
		v, asked := &own.Victims[i], g.request(own.Victims[i].Pod.UID)
		if asked == nil {
			continue
		}
		g.count.shared++
		if want := g.wantedGrace(asked, v.Pod); g.mayServe(d, asked, v.Pod) && v.GraceSeconds > want {
			g.failf("%s has %d s of grace, plugins request %d s", v.Pod.Name, v.GraceSeconds, want)
		}
		v.GraceSeconds = max(v.GraceSeconds, alone.Victims[i].GraceSeconds)
	}
	if !reflect.DeepEqual(own.Victims, alone.Victims) && len(own.Victims)+len(alone.Victims) > 0 {
		g.failf("victims of the node %q, without requests %q", explained(own.Victims), explained(alone.Victims))
	}
	for _, uid := range own.Withdrawn {
		if q := g.request(uid); q == nil || !q.Submitted || q.Forced {
			g.failf("%s is withdrawn", uid)
		}
	}
	own.Victims, alone.Victims, own.Withdrawn = nil, nil, nil
	if !reflect.DeepEqual(own, alone) || !reflect.DeepEqual(next, state) {
		g.failf("requests change the rest of the decision: %+v, without %+v", own, alone)
	}
	ofNode := func(f snapshot.InFlight) bool { return !f.Requested }
	for i := range d.Needs {
		if nd := &d.Needs[i]; nd.Hard && nd.Outcome == AwaitTurn && !slices.ContainsFunc(s.InFlight, ofNode) {
			g.failf("a hard need waits for the effect of evictions that plugins request")
		}
	}
}

func (g *requestGame) wantedGrace(q *snapshot.Request, pod *snapshot.Pod) int64 {
	return max(1, *cmp.Or(q.GraceSeconds, new(pod.Grace())))
}

// mayServe reports whether the rules for requests that are not forced allow this one.
func (g *requestGame) mayServe(d *Decision, q *snapshot.Request, pod *snapshot.Pod) bool {
	if q.Forced {
		return true
	}
	for i := range d.Needs {
		if d.Needs[i].Hard && d.Needs[i].Outcome != AwaitRelease {
			g.count.waiting++
			return false
		}
	}
	if a := g.rules.Protection.granted(g.pods)[pod.UID]; len(a.optOut) > 0 {
		g.count.spared++
		return false
	}
	return true
}

// checkVictims: no foreign or critical pod, nobody twice, and what is terminating only with less time.
func (g *requestGame) checkVictims(s *snapshot.Snapshot, d *Decision) {
	seen, soft := map[types.UID]bool{}, 0
	for i := range d.Victims {
		v := &d.Victims[i]
		if seen[v.Pod.UID] || v.Pod.Critical {
			g.failf("%s is critical or twice among the victims", v.Pod.Name)
		}
		seen[v.Pod.UID] = true
		if v.Cause.Kind != PluginRequest {
			continue
		}
		q := g.request(v.Pod.UID)
		if q == nil {
			g.failf("%s was not requested", v.Pod.Name)
			return
		}
		if !g.mayServe(d, q, v.Pod) {
			g.failf("%s must wait or is spared", v.Pod.Name)
		}
		if want := g.wantedGrace(q, v.Pod); v.GraceSeconds != want {
			g.failf("%s has %d s of grace, not %d", v.Pod.Name, v.GraceSeconds, want)
		}
		if !q.Forced && g.notifyOnly[v.Pod.UID] {
			g.failf("%s is evicted, not given notice", v.Pod.Name)
		}
		g.checkHasten(s, v, q)
		if g.count.forced++; !q.Forced {
			g.count.forced, g.count.soft = g.count.forced-1, g.count.soft+1
			soft++
		}
	}
	if soft > 1 {
		g.failf("%d victims that are not forced", soft)
	}
}

func (g *requestGame) checkHasten(s *snapshot.Snapshot, v *Victim, q *snapshot.Request) {
	var deadline time.Time
	f := g.inFlight(v.Pod.UID)
	switch {
	case f != nil:
		deadline = f.Deadline
	case v.Pod.Terminating != nil:
		deadline = v.Pod.Terminating.Deadline
	default:
		if v.Hasten {
			g.failf("%s is not terminating", v.Pod.Name)
		}
		return
	}
	g.count.hastened++
	shorter := s.Taken.Add(time.Duration(v.GraceSeconds) * time.Second).Before(deadline)
	if !v.Hasten || !q.Forced || !shorter || (f != nil && f.State != snapshot.Stopping) {
		g.failf("%s is evicted twice", v.Pod.Name)
	}
}

// checkServed: every forced request is served at once, unless the pod may not be evicted, is terminating or is
// submitted, and the first other one that may be. A forced one that leaves a terminating pod less time is also served
// if it is submitted.
func (g *requestGame) checkServed(d *Decision) {
	waits := false
	for i := range g.requests {
		q := &g.requests[i]
		j := g.indexOf(q.UID)
		if j < 0 || g.pods[j].Critical {
			continue
		}
		pod := &g.pods[j]
		k := slices.IndexFunc(d.Victims, func(v Victim) bool { return v.Pod.UID == q.UID })
		if terminating, deadline := g.deadline(pod); terminating {
			left := int64(deadline.Sub(g.now) / time.Second)
			if q.Forced && q.GraceSeconds != nil && !deadline.IsZero() && g.wantedGrace(q, pod) < left && k < 0 {
				g.failf("%s has %d s left and is not hastened to %d s", q.UID, left, *q.GraceSeconds)
			}
			continue
		}
		if q.Submitted {
			g.count.held++
			if k >= 0 && d.Victims[k].Cause.Kind == PluginRequest {
				g.failf("%s is submitted and served again", q.UID)
			}
			continue
		}
		if !g.mayServe(d, q, pod) || (!q.Forced && waits) {
			continue
		}
		if k < 0 {
			g.failf("%s is not evicted, forced %v", q.UID, q.Forced)
		} else if !q.Forced && d.Victims[k].Cause.Kind == PluginRequest {
			waits = true
		}
	}
}

// deadline reports whether a pod is terminating, and when its grace period ends; zero if no shorter one has an effect.
func (g *requestGame) deadline(pod *snapshot.Pod) (terminating bool, deadline time.Time) {
	f := g.inFlight(pod.UID)
	switch {
	case f != nil && f.State != snapshot.Stopping:
		return true, time.Time{}
	case f != nil:
		return true, f.Deadline
	case pod.Terminating != nil:
		return true, pod.Terminating.Deadline
	}
	return false, time.Time{}
}

// checkInFlight: no more than maxInFlight pods are evicted for plugins at a time, those that were overdue left out.
func (g *requestGame) checkInFlight() {
	n := 0
	for i := range g.flight {
		f := &g.flight[i]
		g.late[f.UID] = g.late[f.UID] || g.overdue(f)
		if f.Requested && !g.late[f.UID] {
			n++
		}
	}
	for key, a := range g.attempts {
		q := g.request(key.uid)
		if a.held.IsZero() && q != nil && q.Killer == key.killer && g.inFlight(key.uid) == nil && !g.late[key.uid] {
			n++
		}
	}
	if n > g.limits.MaxInFlight {
		g.failf("%d evictions for plugins are in flight, at most %d", n, g.limits.MaxInFlight)
	}
}

// checkKiller: a victim of the node, and one that is terminating, is evicted by the pod workers, and another one by the
// killer of its request; never by a killer to which it is submitted already.
func (g *requestGame) checkKiller(v *Victim) {
	want := snapshot.PodWorker
	if v.Cause.Kind == PluginRequest && !v.Hasten {
		want = g.request(v.Pod.UID).Killer
	}
	if v.Killer != want {
		g.failf("%s is evicted by %s, not by %s", v.Pod.Name, v.Killer, want)
	}
	if g.submitted(v.Pod.UID, v.Killer) {
		g.failf("%s is submitted twice to %s", v.Pod.Name, v.Killer)
	}
}

// checkKillers: the killer of a request is that of the level of its pod if there is one, else that of its kind.
func (g *requestGame) checkKillers(out *arbiter.Outcome) {
	k := &g.limits.Killers
	for i := range out.Requests {
		q := &out.Requests[i]
		want := map[bool]snapshot.Killer{true: k.Forced, false: k.Soft}[q.Forced]
		if killer, ok := k.ByQoSLevel[g.levels[q.UID]]; ok && g.levels[q.UID] != "" {
			want = killer
			g.count.byLevel++
		}
		if q.Killer != want {
			g.failf("%s of level %q is requested by %s, not by %s", q.UID, g.levels[q.UID], q.Killer, want)
		}
		if !q.Forced && g.notifyOnly[q.UID] {
			g.failf("%s is requested, not given notice", q.UID)
		}
	}
}

// checkNotices: notices are for pods that plugins may name, that are not in flight and that are not requested.
func (g *requestGame) checkNotices(out *arbiter.Outcome, pods []arbiter.Pod) {
	for i := range out.Notices {
		uid := out.Notices[i].UID
		g.count.noticed++
		j := slices.IndexFunc(pods, func(p arbiter.Pod) bool { return p.UID == uid })
		if j < 0 || !pods[j].NotifyOnly || pods[j].InFlight || pods[j].Excluded != arbiter.NotExcluded {
			g.failf("%s is given notice", uid)
		}
		if slices.ContainsFunc(out.Requests, func(q snapshot.Request) bool { return q.UID == uid }) {
			g.failf("%s is given notice and requested", uid)
		}
	}
}

// checkPlaces: no more pods are requested than there are places for.
func (g *requestGame) checkPlaces(out *arbiter.Outcome) {
	places, requested := g.limits.MaxInFlight, 0
	for i := range g.flight {
		if !g.overdue(&g.flight[i]) {
			places--
		}
	}
	isRequested := func(uid types.UID) bool {
		return slices.ContainsFunc(out.Requests, func(q snapshot.Request) bool { return q.UID == uid })
	}
	for i := range out.Requests {
		if g.inFlight(out.Requests[i].UID) == nil {
			requested++
		}
	}
	if requested > max(0, places) {
		g.failf("%d pods are requested, and there are %d places", requested, places)
	}
	for i := range g.requests {
		if q := &g.requests[i]; g.blocked(q.UID) && q.Killer != snapshot.PodWorker && !isRequested(q.UID) {
			g.count.gaveBack++
		}
	}
}
