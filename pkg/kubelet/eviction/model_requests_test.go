package eviction

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Requests of eviction plugins in the model: they come, change and are withdrawn at random, and name any pods: critical
// ones, pods that are terminating or gone, and pods that were never on the node.

const (
	// inForce: a pod is evicted for a request only while that is in force, with the grace period of the request.
	inForce = "only requests in force are served"
	// aloneWithoutForce: of the requests that are not forced at most one is served in a round, and none while a hard need
	// of the node is starved.
	aloneWithoutForce = "requests that are not forced are served one by one, after the hard needs of the node"
	// forcedInTime: a forced request for a pod that may be evicted is served at once, and one that leaves the pod less
	// time hastens it (requestBound).
	forcedInTime = "forced requests are served at once"
	// softInTime: a request that is not forced is served in one of the next rounds when memory and disk are not short.
	softInTime = "requests that are not forced are served on a calm node"
	// needsAlone: what a round decides for the needs of the node is what it decides without the requests.
	needsAlone = "requests change nothing about the needs of the node"
)

// modelRequest is a request of plugins that is in force.
type modelRequest struct {
	snapshot.Request
	// due is since when it could be served; zero while it cannot be.
	due time.Time
}

// modelRequests are those in force, by pod.
type modelRequests struct {
	drawn   bool
	inForce map[types.UID]*modelRequest
	// served counts evictions for requests, hastened those of pods that were being stopped already.
	served, hastened int
	// changed is called after each change. It is set while a manager runs.
	changed func()
}

// request makes a request, or changes the one for the same pod.
func (n *modelNode) request(q snapshot.Request) {
	if n.requests.inForce == nil {
		n.requests.inForce = map[types.UID]*modelRequest{}
	}
	q.Since = n.at.UTC()
	if before := n.requests.inForce[q.UID]; before != nil {
		q.Since = before.Since
	}
	n.requests.inForce[q.UID] = &modelRequest{Request: q}
	n.requestsChanged()
}

func (n *modelNode) withdraw(uid types.UID) {
	delete(n.requests.inForce, uid)
	n.requestsChanged()
}

func (n *modelNode) requestsChanged() {
	if n.requests.changed != nil {
		n.requests.changed()
	}
}

// Requests is for Config.Requests. Forced ones come first, as those of the arbiter do.
func (n *modelNode) Requests() (list []snapshot.Request) {
	defer n.locked()()
	uids := slices.Sorted(maps.Keys(n.requests.inForce))
	for _, forced := range []bool{true, false} {
		for _, uid := range uids {
			if q := n.requests.inForce[uid]; q.Forced == forced {
				list = append(list, q.Request)
			}
		}
	}
	return list
}

// drawRequests draws requests from a source of their own, so that the rest of a run is the same without them.
func (d *modelDraw) drawRequests(seed int64) {
	r := &modelDraw{Rand: rand.New(rand.NewSource(^seed)), node: d.node, traits: d.traits}
	if d.traits.plain || !r.one(3) {
		return
	}
	d.node.requests.drawn = true
	for i := range 1 + r.Intn(8) {
		uid := types.UID(fmt.Sprintf("foreign-%d", i))
		if !r.one(8) {
			uid = r.node.pods[r.Intn(len(r.node.pods))].object.UID
		}
		at := r.at()
		for range 1 + r.Intn(3) {
			r.requests(uid, at)
			if at = at.Add(r.soon()); r.one(2) {
				d.event(at, fmt.Sprintf("the request for %s is withdrawn", uid), func(n *modelNode) { n.withdraw(uid) })
				at = at.Add(r.soon())
			}
		}
	}
}

// soon is mostly some seconds, often less than a collection takes.
func (d *modelDraw) soon() time.Duration {
	if d.one(2) {
		return time.Duration(1+d.Intn(900)) * time.Millisecond
	}
	return time.Millisecond + d.seconds(30)
}

func (d *modelDraw) requests(uid types.UID, at time.Time) {
	q := snapshot.Request{UID: uid, Plugins: []string{"p"}, Scope: "memory", Forced: d.one(2), Reason: "too hot"}
	text := "the pod's own grace"
	if !d.one(4) {
		// Not below two seconds: by the grace period the checks tell victims of a soft threshold from others.
		q.GraceSeconds = new(int64(2 + d.Intn([]int{5, 30, 90}[d.Intn(3)])))
		text = fmt.Sprintf("%d s of grace", *q.GraceSeconds)
	}
	what := fmt.Sprintf("plugins request %s, forced=%v, with %s", uid, q.Forced, text)
	d.event(at, what, func(n *modelNode) { n.request(q) })
}

// requested is true for a pod that only requests of plugins have evicted.
func (p *modelPod) requested() bool {
	return len(p.orders) > 0 && !slices.ContainsFunc(p.orders, func(o *modelOrder) bool { return o.cause != forRequest })
}

// lastForNode is the newest request to stop the pod that plugins have not made, nil before the first. No need waits for
// the effect of what plugins have evicted or hastened.
func (p *modelPod) lastForNode() *modelOrder {
	for i := len(p.orders) - 1; i >= 0; i-- {
		if p.orders[i].cause != forRequest {
			return p.orders[i]
		}
	}
	return nil
}

// hastens is true for an order of the node for a pod that only requests of plugins had evicted before.
func (o *modelOrder) hastens() bool {
	before := o.pod.orders[:slices.Index(o.pod.orders, o)]
	return o.cause != forRequest && len(before) > 0 &&
		!slices.ContainsFunc(before, func(o *modelOrder) bool { return o.cause != forRequest })
}

// forNode are the victims that no request of plugins has.
func forNode(all []*modelOrder) []*modelOrder {
	return slices.DeleteFunc(slices.Clone(all), func(o *modelOrder) bool { return o.cause == forRequest })
}

// checkRequested checks an eviction for a request when the pod workers get it, before it has an effect.
func (n *modelNode) checkRequested(o *modelOrder) {
	q := n.requests.inForce[o.pod.object.UID]
	if q == nil {
		n.fail(inForce, "%s is evicted, and no request for it is in force", o.pod.name())
		return
	}
	if want := q.grace(o.pod); o.grace != want {
		n.fail(inForce, "%s is evicted with %v of grace, not %v", o.pod.name(), o.grace, want)
	}
	if n.requests.served++; o.joins {
		n.requests.hastened++
	}
}

func (q *modelRequest) grace(p *modelPod) time.Duration {
	switch own := p.object.Spec.TerminationGracePeriodSeconds; {
	case q.GraceSeconds != nil:
		return time.Duration(*q.GraceSeconds) * time.Second
	case own != nil:
		return time.Duration(*own) * time.Second
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// requestBound is how long it takes until a request that may be served is served: a collection may be under way that
// began before the request.
func (n *modelNode) requestBound() time.Duration { return modelReaction + 2*n.summaryTook }

// watchRequests checks that requests are served in time. It is called every modelTick.
func (n *modelNode) watchRequests() {
	waiting := 0
	for _, uid := range slices.Sorted(maps.Keys(n.requests.inForce)) {
		q := n.requests.inForce[uid]
		if !n.servable(q) {
			q.due = time.Time{}
			continue
		}
		if q.due.IsZero() {
			q.due = n.at
		}
		if !q.Forced {
			waiting++
		}
		bound, check := n.requestBound(), forcedInTime
		if !q.Forced {
			bound, check = time.Duration(waiting+1)*(n.settings.timing.Period+bound), softInTime
		}
		if n.at.Sub(q.due) > bound {
			n.fail(check, "the request for %s waits for %v", uid, n.at.Sub(q.due))
			q.due = n.at
		}
	}
}

// servable is true when nothing is a reason not to serve a request.
func (n *modelNode) servable(q *modelRequest) bool {
	p := n.byUID[q.UID]
	if p == nil || p.critical || !p.here() || !slices.Contains(n.pods, p) {
		return false
	}
	if q.Forced && p.dying && len(n.steppedAt) == 0 {
		return q.GraceSeconds != nil && p.failedAt.IsZero() && p.deadline.Sub(n.at) > q.grace(p)+2*time.Second
	}
	// A pod whose kill has failed is terminating: the pod workers go on with that.
	return n.candidate(p) && len(p.orders) == 0 && (q.Forced || !n.perhapsShort())
}

// perhapsShort is true when the stats of a round may show that something is missing.
func (n *modelNode) perhapsShort() bool {
	return n.deficit(true) > -modelSlack || (n.images != nil && n.diskDeficit() > -modelSlack)
}

// requestsWait is true while a request can be served and is not.
func (n *modelNode) requestsWait() bool {
	for _, q := range n.requests.inForce {
		if n.servable(q) {
			return true
		}
	}
	return false
}

// judgeRequest checks a request for a pod that was evicted before: it leaves the pod less time than it had.
func (n *modelNode) judgeRequest(o *modelOrder) {
	if len(n.steppedAt) == 0 && o.grace >= o.left {
		n.fail(oneKill, "%s had %v left, and is asked again with %v", o.pod.name(), o.left, o.grace)
	}
}

// alone is a sink that makes each decision again, without the requests of plugins.
type alone struct {
	rules  policy.Rules
	state  policy.State
	faults []modelFault
}

func newAlone(c *Config) *alone { return &alone{rules: c.Rules(new(settings.DefaultOptions()))} }

func (*alone) Name() string                    { return "alone" }
func (*alone) Result(context.Context, *Result) {}

func (a *alone) fail(check, f string, args ...any) {
	a.faults = append(a.faults, modelFault{check, fmt.Sprintf(f, args...)})
}

func (a *alone) Round(_ context.Context, r *Round) {
	rules := a.rules
	rules.Thresholds, _ = policy.Effective(a.rules.Thresholds, r.Snapshot.Layout)
	without := *r.Snapshot
	without.Requests = nil
	want, next := policy.Decide(&without, &rules, a.state)
	a.state = next
	a.judgeSoft(r)
	for i, v := range r.Decision.Victims {
		if slices.ContainsFunc(r.Decision.Victims[:i], func(o policy.Victim) bool { return o.Pod.UID == v.Pod.UID }) {
			a.fail(oneKill, "%s is in one decision twice", v.Pod.Name)
		}
	}
	got := r.Decision
	got.Victims = slices.DeleteFunc(slices.Clone(got.Victims), func(v policy.Victim) bool {
		return v.Cause.Kind == policy.PluginRequest
	})
	for i := range got.Victims {
		v := &got.Victims[i]
		if j := slices.IndexFunc(want.Victims, func(w policy.Victim) bool { return w.Pod.UID == v.Pod.UID }); j >= 0 {
			if v.GraceSeconds > want.Victims[j].GraceSeconds {
				a.fail(needsAlone, "%s gets %d s of grace", v.Pod.Name, v.GraceSeconds)
			}
			v.GraceSeconds = want.Victims[j].GraceSeconds
		}
	}
	if len(got.Victims) == 0 && len(want.Victims) == 0 {
		got.Victims, want.Victims = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		everything := cmp.Exporter(func(reflect.Type) bool { return true })
		a.fail(needsAlone, "the decision differs (-without +with):\n%s", cmp.Diff(want, got, everything))
	}
}

// judgeSoft checks the victims of a round whose requests are not forced.
func (a *alone) judgeSoft(r *Round) {
	var served []string
	for i := range r.Decision.Victims {
		v := &r.Decision.Victims[i]
		forced := slices.ContainsFunc(r.Snapshot.Requests, func(q snapshot.Request) bool {
			return q.UID == v.Pod.UID && q.Forced
		})
		if v.Cause.Kind == policy.PluginRequest && !forced {
			served = append(served, v.Pod.Name)
		}
	}
	if len(served) > 1 {
		a.fail(aloneWithoutForce, "%s are served in one round", strings.Join(served, ", "))
	}
	for _, nd := range r.Decision.Needs {
		if len(served) > 0 && nd.Hard && nd.Outcome != policy.AwaitRelease {
			a.fail(aloneWithoutForce, "%s is served while the node needs %v", served[0], nd)
		}
	}
}

// adds adds the faults of the sink to those of the run.
func (a *alone) adds(n *modelNode) {
	for _, f := range a.faults {
		n.fail(f.check, "%s", f.text)
	}
}
