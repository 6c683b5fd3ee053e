package eviction

import (
	"context"
	"math/rand"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// The agent stops while pods are evicted: the manager's context ends before the pod workers stop, and these refuse
// requests whose context has ended.

const (
	// noneAfterStop: a manager whose context has ended requests no further eviction. The requests of the decision during
	// which it ended end with it.
	noneAfterStop = "an agent that stops evicts no other pod"
	// acceptedReported: each request that the pod workers have accepted has one event and one result that says so, and
	// one that they have refused has only the result.
	acceptedReported = "accepted evictions are reported, and no others"
)

// modelStop is the stop of the agent during a run.
type modelStop struct {
	// with is the number of the request with which it comes, 0 if the agent does not stop before the end of the run;
	// requests is the number of requests so far. after is how long it comes after that request; if it is zero, the
	// agent stops before the request is accepted.
	with, requests int
	after          time.Duration
	// at is when the agent stops, zero while that is unknown. stopped is true afterwards.
	at      time.Time
	stopped bool
	cancel  context.CancelFunc
	// refused is the number of requests that the pod workers have refused.
	refused int
	// reports and answers count events and results about evictions, and those that the answers of the pod workers lead
	// to.
	reports, answers map[modelReport]int
}

// modelReport is a pod, and the reason of an event or the kind of a result.
type modelReport struct {
	uid  types.UID
	kind string
}

// drawStop draws from a source of its own, so that the rest of a run is the same up to the stop. Only a run with so
// many requests has a stop.
func (d *modelDraw) drawStop(seed int64) {
	r := &modelDraw{Rand: rand.New(rand.NewSource(-2 - seed))}
	if d.traits.plain || !r.one(8) {
		return
	}
	s := &d.node.agent
	if s.with = 1 + r.Intn(6); r.one(2) {
		s.after = r.seconds(20)
	}
}

// refuses reports whether the pod workers refuse the request: they do so when its context has ended.
func (n *modelNode) refuses(ctx context.Context, uid types.UID) bool {
	defer n.locked()()
	s := &n.agent
	if s.stopped && n.at.After(s.at) {
		n.fail(noneAfterStop, "%s is to be evicted %v after the stop", uid, n.at.Sub(s.at))
	}
	if s.requests++; s.requests == s.with && !s.stopped {
		if s.at = n.at.Add(s.after); s.after == 0 {
			n.stopAgent()
		}
	}
	if ctx.Err() == nil {
		if s.stopped {
			n.fail(noneAfterStop, "the request to evict %s does not end with the agent", uid)
		}
		return false
	}
	s.refused++
	n.log("the request to evict %s is refused", uid)
	s.answered(uid, string(KillRefused))
	return true
}

// stopAgent stops the agent. The caller holds the lock.
func (n *modelNode) stopAgent() {
	n.agent.at, n.agent.stopped = n.at, true
	n.log("the agent stops")
	n.agent.cancel()
}

// stopsNow stops the agent if that is due, and reports whether it has stopped.
func (n *modelNode) stopsNow() bool {
	defer n.locked()()
	if s := &n.agent; !s.stopped && !s.at.IsZero() && !n.at.Before(s.at) {
		n.stopAgent()
	}
	return n.agent.stopped
}

// accepts records the answer to a request that is not refused.
func (n *modelNode) accepts(uid types.UID, answer podkill.Answer) {
	defer n.locked()()
	reason := eventEvicted
	if answer == podkill.Hastened {
		reason = eventHastened
	}
	n.agent.answered(uid, reason)
	n.agent.answered(uid, string(KillAccepted))
}

func (s *modelStop) answered(uid types.UID, kind string) {
	if s.answers == nil {
		s.answers = map[modelReport]int{}
	}
	s.answers[modelReport{uid, kind}]++
}

// reported records an event or a result.
func (n *modelNode) reported(uid types.UID, kind string) {
	defer n.locked()()
	if n.agent.reports == nil {
		n.agent.reports = map[modelReport]int{}
	}
	n.agent.reports[modelReport{uid, kind}]++
}

// AnnotatedEventf records the events of evictions.
func (n *modelNode) AnnotatedEventf(o runtime.Object, _ map[string]string, _, reason, _ string, _ ...any) {
	if pod, ok := o.(*v1.ObjectReference); ok && !n.checks.stock {
		n.reported(pod.UID, reason)
	}
}

// modelResults is the sink that records the results of evictions.
type modelResults struct{ *modelNode }

func (modelResults) Name() string                  { return "results" }
func (modelResults) Round(context.Context, *Round) {}
func (r modelResults) Result(_ context.Context, result *Result) {
	if result.Victim != nil {
		r.reported(result.Victim.Pod.UID, string(result.Kind))
	}
}

// checkReports compares events and results with the answers at the end of a run.
func (n *modelNode) checkReports() {
	defer n.locked()()
	for _, p := range n.pods {
		for _, kind := range []string{eventEvicted, eventHastened, string(KillAccepted), string(KillRefused)} {
			r := modelReport{p.object.UID, kind}
			if got, want := n.agent.reports[r], n.agent.answers[r]; got != want {
				n.fail(acceptedReported, "%s is reported %d times of %s, not %d times", kind, got, p.name(), want)
			}
		}
	}
}
