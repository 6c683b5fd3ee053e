package policy

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// leastSlack and slackTime define the slack of a fence: by how much the victim may grow until the limit is in force.
	leastSlack = snapshot.Bytes(8 << 20)
	slackTime  = 5 * time.Millisecond
	// slackShare: all slacks of a decision are at most this fraction (one half) of what is left.
	slackShare = 2
)

// setFences decides which victims of a need are fenced. evicted has their candidates in the same order. Only victims of
// a hard threshold that is not in dry run are fenced:
//
//   - memory: if the victims together use up what is left before a kill takes effect, those whose own growth is a
//     significant part of that.
//   - PIDs: those that use far more than an equal share. Their growth is not measured: a fork bomb uses up what is left
//     within milliseconds.
//
// A pod with overhead is never fenced: its containers may run in a virtual machine, whose kernel cannot handle a limit
// on the cgroup around it (ADR 6).
func (r *round) setFences(n *need, victims []Victim, evicted []candidate) {
	if !r.rules.Fence || r.rules.dryRun || !n.hard {
		return
	}
	if n.group == memoryGroup {
		r.setMemoryFences(victims, evicted)
	}
	if n.group == pidGroup {
		for i := range evicted {
			if evicted[i].first && evicted[i].mayBeFenced() {
				victims[i].Fence = &Fence{PIDs: true}
			}
		}
	}
}

func (r *round) setMemoryFences(victims []Victim, evicted []candidate) {
	left, ok := memoryLeft(r.snapshot)
	if !ok {
		return
	}
	var total float64
	for i := range evicted {
		total += evicted[i].fenceable()
	}
	if !usedUp(left, total, r.rules.Timing.KillTime) {
		return
	}
	var fences []*Fence
	for i := range evicted {
		if rate := evicted[i].fenceable(); rate >= max(1, total/significantShare) {
			victims[i].Fence = newMemoryFence(rate)
			fences = append(fences, victims[i].Fence)
		}
	}
	limitSlacks(fences, left/slackShare)
}

// fences returns the fences on memory that the decision sets.
func (d *Decision) fences() (list []*Fence) {
	for i := range d.Victims {
		if f := d.Victims[i].Fence; f != nil && !f.PIDs {
			list = append(list, f)
		}
	}
	return list
}

// LateFences returns the fences of pods that are being evicted without one, by the pod workers and for a threshold of
// memory, and that have begun to grow since: such a pod alone uses up what is left before a kill takes effect. waits
// reports whether a pod is one of those. Their slacks together with those of the decision about the same snapshot are
// at most half of what is left.
func LateFences(s *snapshot.Snapshot, rules *Rules, d *Decision, waits func(types.UID) bool) map[types.UID]*Fence {
	left, ok := memoryLeft(s)
	if !rules.Fence || !ok {
		return nil
	}
	late := map[types.UID]*Fence{}
	var fences []*Fence
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Overhead || pod.Critical || pod.MemoryRate == nil || pod.MemoryRate.Window <= 0 || !waits(pod.UID) {
			continue
		}
		if rate := float64(pod.MemoryRate.PerSecond); usedUp(left, rate, rules.Timing.KillTime) {
			late[pod.UID] = newMemoryFence(rate)
			fences = append(fences, late[pod.UID])
		}
	}
	limitSlacks(fences, left/slackShare-slacksOf(d.fences()))
	return late
}

// memoryLeft returns the memory that is left, in bytes: what the node or the cgroup of all pods has available,
// whichever is less. It returns false if neither is known, or if one that is known is negative or above its capacity.
func memoryLeft(s *snapshot.Snapshot) (left int64, ok bool) {
	left = math.MaxInt64
	for _, sig := range []snapshot.Signal{snapshot.MemoryAvailable, snapshot.AllocatableMemoryAvailable} {
		o := &s.Signals[sig]
		if !o.Known() {
			continue
		}
		if o.Available < 0 || o.Capacity <= 0 || o.Available > o.Capacity {
			return 0, false
		}
		left = min(left, o.Available)
	}
	return left, left < math.MaxInt64
}

// mayBeFenced reports whether the pod may be fenced at all. Its usage must be known.
func (c *candidate) mayBeFenced() bool {
	return c.known && c.usage > 0 && !c.pod.Overhead && !c.pod.Critical
}

// fenceable returns the growth of a pod that may be fenced, in bytes per second; zero for another one.
func (c *candidate) fenceable() float64 {
	if !c.mayBeFenced() {
		return 0
	}
	return c.growth.steady()
}

// newMemoryFence returns the fence of a victim that grows at this rate, in bytes per second. Its slack is by how much
// the victim may grow until it is limited.
func newMemoryFence(rate float64) *Fence {
	return &Fence{
		Slack:  max(leastSlack, snapshot.Bytes(growthIn(rate, slackTime))),
		Growth: snapshot.Bytes(growthIn(rate, time.Second)),
	}
}

// slacksOf returns the sum of slacks.
func slacksOf(fences []*Fence) (sum int64) {
	for _, f := range fences {
		sum = saturatingAdd(sum, int64(f.Slack))
	}
	return sum
}

// limitSlacks cuts slacks in proportion, so that their sum is at most limit. A fence without slack is one all the same:
// when nothing is left, the victim is killed as soon as possible.
func limitSlacks(fences []*Fence, limit int64) {
	sum := slacksOf(fences)
	if sum <= limit {
		return
	}
	for _, f := range fences {
		f.Slack = snapshot.Bytes(float64(f.Slack) * (float64(max(0, limit)) / float64(sum)))
	}
}
