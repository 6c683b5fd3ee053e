package systemmemory

import (
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

// Name is the name of the plugin, which is Katalyst's.
const Name = v1alpha1.SystemMemoryPressurePlugin

const (
	// scope is the scope of the threshold.
	scope = "memory"
	// condition is the name of the condition that is reported, without its prefix. It is not that of the Node itself.
	condition = "MemoryPressure"
	// leastPods is how many pods must have pressure stall information for their mean to count.
	leastPods = 3
	// leastInterval is the shortest interval over which the rate of kswapd is measured.
	leastInterval = time.Second
	// missingRounds is after how many missing rounds it is not known any more that something has been so all the time.
	missingRounds = 3
)

// Settings are those of the plugin.
type Settings struct {
	// KswapdPages is the rate of kswapd in pages per second, KswapdFor for how long it must be reached.
	KswapdPages float64
	KswapdFor   time.Duration
	// NodeStall is some avg10 of the node, PodStall the mean of that of pods, both in percent.
	NodeStall, PodStall float64
	// ReclaimedAfter and AllAfter are for how long both must be reached until reclaimed pods, or all pods, are proposed.
	ReclaimedAfter, AllAfter time.Duration
	// CoolDown is how long no other pod is proposed after one was.
	CoolDown time.Duration
	// Period is the time between two rounds.
	Period time.Duration
	Levels arbiter.Levels
}

// Node is what is known of the node. Pointers are nil for what is unknown.
type Node struct {
	// Free and Total are free and all memory in bytes, ScaleFactor is watermark_scale_factor.
	Free, Total, ScaleFactor *int64
	// Stolen is how many pages kswapd has reclaimed since the machine was started.
	Stolen *int64
	// Stall is some avg10 of the node in percent.
	Stall *float64
}

// Facts are what the rule decides on.
type Facts struct {
	Now  time.Time
	Node Node
	Pods []*v1.Pod
	// Ending are the pods that are being stopped, which are not proposed.
	Ending map[types.UID]bool
	// Usage has the memory usage of pods in bytes; a pod that is missing is not proposed.
	Usage map[types.UID]int64
	// Stalls has some avg10 of pods in percent, nil if pods have none: cgroup v1.
	Stalls map[types.UID]float64
}

// State is what one round passes on to the next. The zero value is that at the start.
type State struct {
	// Stolen is Node.Stolen at a time, zero before the first.
	Stolen   int64
	StolenAt time.Time
	// Rate is the last rate of kswapd in pages per second, if it has been Measured.
	Rate            float64
	Measured        bool
	Kswapd, Stalled rule.Since
	// Proposed is when a pod was last proposed.
	Proposed time.Time
}

// Propose returns the state after a pod was proposed.
func (s State) Propose(at time.Time) State {
	s.Proposed = at
	return s
}

// cause is a reason why memory is scarce.
type cause struct {
	all              bool
	target, observed float64
	lessThan         bool
}

// Decide returns whether memory is scarce, and the pods to evict, and the next state.
func Decide(f *Facts, s *Settings, last State) (rule.Finding, State) {
	next := last
	next.observeKswapd(f, s)
	var found rule.Finding
	found.Notes = next.observeStalls(f, s)
	c, scarce := next.causeOf(f, s)
	if scarce || !next.pending(f) {
		found.Threshold.Condition = &arbiter.ConditionReport{
			Name: condition, Met: scarce, Effects: []string{string(v1.TaintEffectNoSchedule)},
		}
	}
	if !scarce {
		return found, next
	}
	candidates := candidatesOf(f, s)
	if !c.all {
		candidates = rule.OnlyReclaimed(candidates)
	}
	if len(candidates) == 0 {
		return found, next
	}
	top := rule.Rank(candidates)
	t := &found.Threshold
	t.Kind, t.Scope, t.Target, t.Observed, t.LessThan = arbiter.Hard, scope, c.target, c.observed, c.lessThan
	t.Candidates = top
	if cooled := f.Now.Sub(next.Proposed); next.Proposed.IsZero() || cooled < 0 || cooled >= s.CoolDown {
		found.Top = top
	}
	return found, next
}

// pending reports whether memory may prove to be scarce, since a time is being measured or the rate of kswapd has not
// been. Then nothing is reported on the condition: that of an earlier run of the agent stays until it is known whether
// it still holds.
func (s *State) pending(f *Facts) bool {
	_, reclaims := s.Kswapd.For()
	_, stalled := s.Stalled.For()
	return reclaims || stalled || (f.Node.Stolen != nil && !s.Measured)
}

func (s *State) observeKswapd(f *Facts, settings *Settings) {
	stolen := f.Node.Stolen
	if stolen == nil {
		return
	}
	since := f.Now.Sub(s.StolenAt)
	switch {
	case s.StolenAt.IsZero() || since < 0 || *stolen < s.Stolen || since > missingRounds*settings.Period:
		s.Kswapd, s.Rate, s.Measured = rule.Since{}, 0, false
	case since < leastInterval:
		return
	default:
		s.Rate, s.Measured = float64(*stolen-s.Stolen)/since.Seconds(), true
		s.Kswapd = s.Kswapd.Observe(s.Rate >= settings.KswapdPages, f.Now, missingRounds*settings.Period)
	}
	s.Stolen, s.StolenAt = *stolen, f.Now
}

// observeStalls returns what it does without.
func (s *State) observeStalls(f *Facts, settings *Settings) (notes []rule.Note) {
	if f.Node.Stall == nil {
		return []rule.Note{{Text: "pressure stall information of the node cannot be read: it is not considered"}}
	}
	stalled := *f.Node.Stall >= settings.NodeStall
	if f.Stalls == nil {
		notes = []rule.Note{{Text: "pods have no pressure stall information with cgroup v1: that of the node counts alone"}}
	} else {
		stalled = stalled && meanReaches(f.Stalls, settings.PodStall)
	}
	s.Stalled = s.Stalled.Observe(stalled, f.Now, missingRounds*settings.Period)
	return notes
}

// meanReaches reports whether there are enough pods, and their mean is at least the threshold. It is exact, and does
// not depend on the order: the kernel writes hundredths (accounting/psi), whose sums are whole numbers.
func meanReaches(stalls map[types.UID]float64, threshold float64) bool {
	var hundredths float64
	for _, stall := range stalls {
		hundredths += math.Round(100 * stall)
	}
	return len(stalls) >= leastPods && hundredths >= 100*threshold*float64(len(stalls))
}

// causeOf returns the cause that allows most pods to be proposed: of those that allow the same, the first. What is
// unknown in this round is none.
func (s *State) causeOf(f *Facts, settings *Settings) (cause, bool) {
	stalled := func(d time.Duration) bool { return f.Node.Stall != nil && s.Stalled.AtLeast(d) }
	if stalled(settings.AllAfter) {
		return cause{all: true, target: settings.NodeStall, observed: *f.Node.Stall}, true
	}
	if n := &f.Node; n.Free != nil && n.Total != nil && n.ScaleFactor != nil {
		ratio := rule.Millionths(max(0, *n.ScaleFactor)) * 100
		if rule.Below(*n.Free, ratio, *n.Total) {
			return cause{target: float64(rule.Times(ratio, *n.Total)), observed: float64(*n.Free), lessThan: true}, true
		}
	}
	if f.Node.Stolen != nil && s.Kswapd.AtLeast(settings.KswapdFor) {
		return cause{target: settings.KswapdPages, observed: s.Rate}, true
	}
	if stalled(settings.ReclaimedAfter) {
		return cause{target: settings.NodeStall, observed: *f.Node.Stall}, true
	}
	return cause{}, false
}

func candidatesOf(f *Facts, s *Settings) (list []rule.Candidate) {
	for _, pod := range f.Pods {
		if usage, known := f.Usage[pod.UID]; known && !f.Ending[pod.UID] {
			list = append(list, rule.CandidateOf(pod, &s.Levels, float64(usage)))
		}
	}
	return list
}

// Unknown returns an error if nothing is known that the rule decides on.
func (n *Node) Unknown() error {
	memory := n.Free != nil && n.Total != nil && n.ScaleFactor != nil
	if !memory && n.Stolen == nil && n.Stall == nil {
		return fmt.Errorf("neither free memory nor kswapd nor pressure stall information of the node can be read")
	}
	return nil
}
