package cpupressure

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

// Name is the name of the plugin.
const Name = v1alpha1.CPUPressurePlugin

const (
	// leastInterval is the shortest interval over which rates are measured.
	leastInterval = time.Second
	// missingRounds is after how many missing rounds it is not known any more that something has been so all the time.
	missingRounds = 3
)

// Settings are those of the plugin.
type Settings struct {
	// Stall is the share of time in which tasks wait for a CPU (some avg10), Busy the share of CPUs that are busy,
	// Throttled the share of periods in which the cgroup of all pods is throttled, each in percent.
	Stall, Busy, Throttled float64
	// Window is for how long a threshold must be reached.
	Window time.Duration
	// PodCPU is the share of the node's CPUs that a pod must use to be requested, in percent.
	PodCPU float64
	Period time.Duration
	Levels arbiter.Levels
}

// Node is what is known of the node. Pointers are nil for what is unknown.
type Node struct {
	// Stall is some avg10 in percent.
	Stall *float64
	// Idle and Total are the time that all CPUs have been idle, and all time, in any unit.
	Idle, Total *int64
	// Periods and Throttled are how many periods the cgroup of all pods has had, and in how many it was throttled.
	Periods, Throttled *int64
	// CPUs is the number of CPUs.
	CPUs int
}

// Facts are what the rule decides on.
type Facts struct {
	Now  time.Time
	Node Node
	Pods []*v1.Pod
	// Ending are the pods that are being stopped.
	Ending map[types.UID]bool
	// Used is the CPU time that pods have used. A pod that is missing is unknown.
	Used map[types.UID]time.Duration
}

// sample are the counters at a time. Those that are nil are unknown.
type sample struct {
	At   time.Time
	Node Node
	Used map[types.UID]time.Duration
}

// State is what one round passes on to the next. The zero value is that at the start.
type State struct {
	last sample
	// waits and throttled are since when the thresholds are reached.
	waits, throttled rule.Since
	// rates are the CPUs that pods use, nil if they are unknown; stall and share are the tasks that wait and the throttled
	// periods in percent.
	rates        map[types.UID]float64
	stall, share float64
	// requested is the pod that was last requested, empty if there is none or its end has been noticed. Of several it is
	// the one that is evicted.
	requested types.UID
	// knowsWaits and knowsThrottled: waits and throttled are those of the last round, whose sources were known.
	knowsWaits, knowsThrottled bool
}

// errUnknown: nothing is known that the rule decides on.
var errUnknown = errors.New("neither pressure stall information nor throttling of CPUs can be read")

// Decide returns the reclaimed pod to evict, if a threshold has been reached for the window, and the next state. It
// fails if nothing is known; the state stays then.
func Decide(f *Facts, s *Settings, last State) (rule.Finding, State, error) {
	n := &f.Node
	if (n.Stall == nil || n.Idle == nil || n.Total == nil) && (n.Periods == nil || n.Throttled == nil) {
		return rule.Finding{}, last, errUnknown
	}
	next, measured := last.observe(f, s)
	if !measured {
		return rule.Finding{}, next, nil
	}
	if next.relieved(f, s) {
		// The window begins again: what is used then decides.
		next.waits, next.throttled, next.requested = rule.Since{}, rule.Since{}, ""
		return rule.Finding{}, next, nil
	}
	var reason string
	switch {
	case next.knowsWaits && next.waits.AtLeast(s.Window):
		reason = fmt.Sprintf("tasks of the node have waited for CPUs for %.2f %% of the time, the threshold is %g %%",
			next.stall, s.Stall)
	case next.knowsThrottled && next.throttled.AtLeast(s.Window):
		reason = fmt.Sprintf("the cgroup of all pods was throttled in %.2f %% of its periods, the threshold is %g %%",
			next.share, s.Throttled)
	default:
		return rule.Finding{}, next, nil
	}
	var candidates []rule.Candidate
	for _, pod := range f.Pods {
		if !f.Ending[pod.UID] && next.uses(pod.UID, n, s) {
			candidates = append(candidates, rule.CandidateOf(pod, &s.Levels, next.rates[pod.UID]))
		}
	}
	candidates = rule.OnlyReclaimed(candidates)
	if len(candidates) == 0 {
		return rule.Finding{}, next, nil
	}
	var found rule.Finding
	for _, next.requested = range rule.Requested(rule.Rank(candidates), f.Pods) {
		found.Pods = append(found.Pods, arbiter.PodDemand{
			UID: next.requested, Reason: fmt.Sprintf("%s; the pod uses %.2f CPUs", reason, next.rates[next.requested]),
		})
	}
	return found, next, nil
}

// relieved reports whether CPUs are about to be free, or have been since the last round: a reclaimed pod that uses them
// is being stopped, or the pod that was requested is, or is gone. A pod that does not end and uses none frees none.
func (s State) relieved(f *Facts, settings *Settings) bool {
	gone := s.requested != ""
	for _, pod := range f.Pods {
		ending := f.Ending[pod.UID]
		if ending && rule.LevelOf(pod, &settings.Levels) == rule.Reclaimed && s.uses(pod.UID, &f.Node, settings) {
			return true
		}
		gone = gone && (pod.UID != s.requested || ending)
	}
	return gone
}

// uses reports whether a pod uses at least the share of the CPUs that counts, false if that is unknown.
func (s State) uses(pod types.UID, n *Node, settings *Settings) bool {
	cpus, known := s.rates[pod]
	return known && cpus >= settings.PodCPU*float64(max(1, n.CPUs))/100
}

// observe measures rates since the last round. If that was a moment ago, its rates stay. It returns false if there are
// none, since there is no round before or that is too long ago.
func (s State) observe(f *Facts, settings *Settings) (State, bool) {
	since, most := f.Now.Sub(s.last.At), missingRounds*settings.Period
	if !s.last.At.IsZero() && since >= 0 && since < leastInterval {
		return s, s.rates != nil
	}
	before := s.last
	next := State{last: sample{At: f.Now, Node: f.Node, Used: f.Used}, requested: s.requested}
	if before.At.IsZero() || since < 0 || since > most {
		return next, false
	}
	next.rates = map[types.UID]float64{}
	for uid, used := range f.Used {
		if earlier, ok := before.Used[uid]; ok && used >= earlier {
			// A single rounding, as in the threshold: a pod that uses exactly as much reaches it.
			next.rates[uid] = float64(used-earlier) / float64(since)
		}
	}
	n := &f.Node
	next.last.Node.keep(&before.Node)
	next.waits, next.throttled = s.waits, s.throttled
	idle, known := share(before.Node.Idle, notBelow(before.Node.Idle, n.Idle), before.Node.Total, n.Total)
	if next.knowsWaits = known && n.Stall != nil; next.knowsWaits {
		next.stall = *n.Stall
		next.waits = s.waits.Observe(next.stall >= settings.Stall && 100-idle >= settings.Busy, f.Now, most)
	}
	next.share, next.knowsThrottled = share(before.Node.Throttled, n.Throttled, before.Node.Periods, n.Periods)
	if next.knowsThrottled {
		next.throttled = s.throttled.Observe(next.share >= settings.Throttled, f.Now, most)
	}
	return next, true
}

// keep takes over the counters that are unknown in this round, so that the next one is compared with the last that was
// known.
func (n *Node) keep(before *Node) {
	if n.Idle == nil || n.Total == nil {
		n.Idle, n.Total = before.Idle, before.Total
	}
	if n.Periods == nil || n.Throttled == nil {
		n.Periods, n.Throttled = before.Periods, before.Throttled
	}
}

// notBelow returns the time that CPUs have been idle now. It is not less than before: what CPUs wait for disks is part
// of it, which may decrease (proc(5)).
func notBelow(before, now *int64) *int64 {
	if before != nil && now != nil && *now < *before {
		return before
	}
	return now
}

// share returns in percent by how much a part has grown of what the whole has, false if one of them was or is unknown,
// or if that is no share.
func share(partBefore, partNow, wholeBefore, wholeNow *int64) (float64, bool) {
	if partBefore == nil || partNow == nil || wholeBefore == nil || wholeNow == nil {
		return 0, false
	}
	part, whole := *partNow-*partBefore, *wholeNow-*wholeBefore
	if whole <= 0 || part < 0 || part > whole {
		return 0, false
	}
	return 100 * float64(part) / float64(whole), true
}
