package numamemory

import (
	"cmp"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

// Name is the name of the plugin, which is Katalyst's.
const Name = v1alpha1.NUMAMemoryPressurePlugin

const (
	// scope is the scope of the threshold.
	scope = "memory"
	// cacheMargin is by how much the lower threshold is raised while there is little page cache.
	cacheMargin = 1 << 30
	// missingRounds is after how many missing rounds those before do not count any more.
	missingRounds = 3
)

// Settings are those of the plugin. Amounts are in bytes.
type Settings struct {
	// CriticalGap is added to the watermark min, LowGap to the watermark low.
	CriticalGap, LowGap int64
	// MinInactiveFile is how much there must be of inactive file pages for the threshold not to be raised.
	MinInactiveFile int64
	// ReclaimedRounds and AllRounds: reclaimed pods are proposed when more rounds than the former were low, all pods from
	// the latter on.
	ReclaimedRounds, AllRounds int
	// PodShare is which share of the memory of a NUMA node a pod must have there to be proposed.
	PodShare rule.Millionths
	// Period is the time between two rounds.
	Period time.Duration
	Levels arbiter.Levels
}

// Zone is the memory of a NUMA node in bytes: the sums of its zones.
type Zone struct {
	// Node is the number of the NUMA node.
	Node int
	// Total is all memory of the zones, Min and Low are watermarks.
	Total, Free, Min, Low, InactiveFile int64
}

// Facts are what the rule decides on.
type Facts struct {
	Now time.Time
	// Zones are the NUMA nodes that are known, at most one of each number.
	Zones []Zone
	Pods  []*v1.Pod
	// Ending are the pods that are being stopped, which are not proposed.
	Ending map[types.UID]bool
	// Memory has the memory of pods by NUMA node, in bytes.
	Memory map[types.UID]map[int]int64
}

// State is what one round passes on to the next, by NUMA node. The zero value is that at the start.
type State map[int]NodeState

// NodeState is the state of a NUMA node.
type NodeState struct {
	// Rounds is how many rounds were low, less those that were not, from 0 to AllRounds.
	Rounds int
	// Critical is how many of the last rounds were critical without another one between them, at most 2.
	Critical int
	// At is when the last round was counted.
	At time.Time
}

// shortage is a NUMA node from which a pod should be evicted.
type shortage struct {
	zone Zone
	// all: not only reclaimed pods; critical: because of the watermark min.
	all, critical bool
	threshold     int64
}

// Decide returns whether a NUMA node is short of memory, and the pods to evict, and the next state. Of several NUMA
// nodes the one counts that has the worst shortage, and pods to evict.
func Decide(f *Facts, s *Settings, last State) (rule.Finding, State) {
	next := State{}
	for number, state := range last {
		next[number] = state
	}
	var worst *shortage
	var top []types.UID
	for _, zone := range f.Zones {
		state, t := judge(f.Now, zone, s, last[zone.Node])
		if state != nil {
			next[zone.Node] = *state
		}
		if t == nil || (worst != nil && !t.worseThan(worst)) {
			continue
		}
		candidates := candidatesOf(f, s, &zone)
		if !t.all {
			candidates = rule.OnlyReclaimed(candidates)
		}
		if len(candidates) > 0 {
			worst, top = t, rule.Rank(candidates)
		}
	}
	if worst == nil {
		return rule.Finding{}, next
	}
	return rule.Finding{
		Threshold: arbiter.Threshold{
			Kind: arbiter.Hard, Scope: scope, Target: float64(worst.threshold), Observed: float64(worst.zone.Free),
			LessThan: true, Candidates: top,
		},
		Top:   top,
		Notes: []rule.Note{{Text: worst.String()}},
	}, next
}

// judge returns the next state of a NUMA node, nil if it stays unknown, and its shortage, nil if it has none. In a
// round soon after the last one nothing is counted: it is judged by what was counted before.
func judge(now time.Time, z Zone, s *Settings, state NodeState) (*NodeState, *shortage) {
	if z.Min <= 0 || z.Low <= 0 || z.Total <= 0 {
		return nil, nil
	}
	since := now.Sub(state.At)
	if since < 0 || since > missingRounds*s.Period {
		state = NodeState{}
	}
	low := lowThreshold(&z, s)
	t := &shortage{zone: z, threshold: low}
	critical, isLow := z.Free < z.Min+s.CriticalGap, z.Free < low
	if state.At.IsZero() || since >= s.Period/2 {
		state.At = now
		if critical {
			state.Critical = min(state.Critical+1, 2)
		} else {
			state.Critical = 0
		}
		if isLow {
			state.Rounds = min(state.Rounds+1, s.AllRounds)
		} else {
			state.Rounds = max(0, state.Rounds-1)
		}
	}
	switch {
	case critical:
		t.critical, t.threshold = true, z.Min+s.CriticalGap
		t.all = state.Critical > 1 || (isLow && state.Rounds >= s.AllRounds)
	case isLow && (state.Rounds > s.ReclaimedRounds || state.Rounds >= s.AllRounds):
		t.all = state.Rounds >= s.AllRounds
	default:
		t = nil
	}
	return &state, t
}

// lowThreshold returns the threshold of rounds that are low. Page cache that is about to be reclaimed keeps free memory
// near the watermark; while there is little of it, more must be free, so that it does not thrash.
func lowThreshold(z *Zone, s *Settings) int64 {
	low := z.Low + s.LowGap
	if z.InactiveFile < max(s.MinInactiveFile, low) {
		low = max(s.MinInactiveFile, low+cacheMargin)
	}
	return low
}

// worseThan compares first which pods may be evicted, then whether the watermark min is near, then how far free memory
// is below the threshold.
func (t *shortage) worseThan(o *shortage) bool {
	return cmp.Or(compareBool(t.all, o.all), compareBool(t.critical, o.critical),
		cmp.Compare(o.zone.Free-o.threshold, t.zone.Free-t.threshold), cmp.Compare(o.zone.Node, t.zone.Node)) > 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// String returns which NUMA node is short of memory, without amounts, which change all the time.
func (t *shortage) String() string {
	reason, pods := "for several rounds", "reclaimed pods"
	if t.critical {
		reason = "and close to the watermark min"
	}
	if t.all {
		pods = "all pods"
	}
	return fmt.Sprintf("NUMA node %d has been short of memory %s: %s may be evicted", t.zone.Node, reason, pods)
}

func candidatesOf(f *Facts, s *Settings, z *Zone) (list []rule.Candidate) {
	for _, pod := range f.Pods {
		memory, known := f.Memory[pod.UID][z.Node]
		if known && memory > 0 && !f.Ending[pod.UID] && !rule.Below(memory, s.PodShare, z.Total) {
			list = append(list, rule.CandidateOf(pod, &s.Levels, float64(memory)))
		}
	}
	return list
}
