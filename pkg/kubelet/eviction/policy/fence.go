package policy

import (
	"math"
	"slices"
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
	var slacks int64
	for i := range evicted {
		if rate := evicted[i].fenceable(); rate > 0 && rate >= total/significantShare {
			victims[i].Fence = &Fence{Slack: slackOf(rate), Growth: snapshot.Bytes(growthIn(rate, time.Second))}
			slacks = saturatingAdd(slacks, int64(victims[i].Fence.Slack))
		}
	}
	limitSlacks(victims, slacks, left/slackShare)
}

// LateFence returns the fence of a pod that is being evicted without one, by the pod workers and for a hard threshold
// of memory, and that has begun to grow since: the pod alone uses up what is left before a kill takes effect. It is nil
// if the pod needs none, or is not in the snapshot.
func LateFence(s *snapshot.Snapshot, rules *Rules, uid types.UID) *Fence {
	left, ok := memoryLeft(s)
	i := slices.IndexFunc(s.Pods, func(p snapshot.Pod) bool { return p.UID == uid })
	if !rules.Fence || !ok || i < 0 {
		return nil
	}
	pod := &s.Pods[i]
	if pod.Overhead || pod.Critical || pod.MemoryRate == nil || pod.MemoryRate.Window <= 0 {
		return nil
	}
	rate := float64(pod.MemoryRate.PerSecond)
	if !usedUp(left, rate, rules.Timing.KillTime) {
		return nil
	}
	slack := min(slackOf(rate), snapshot.Bytes(left/slackShare))
	return &Fence{Slack: slack, Growth: snapshot.Bytes(growthIn(rate, time.Second))}
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

// slackOf returns by how much a victim that grows at this rate, in bytes per second, may grow until it is limited.
func slackOf(rate float64) snapshot.Bytes {
	return max(leastSlack, snapshot.Bytes(growthIn(rate, slackTime)))
}

// limitSlacks cuts slacks in proportion, so that their sum is at most limit. A fence without slack is one all the same:
// when nothing is left, the victim is killed as soon as possible.
func limitSlacks(victims []Victim, sum, limit int64) {
	if sum <= limit {
		return
	}
	for i := range victims {
		if f := victims[i].Fence; f != nil {
			f.Slack = snapshot.Bytes(float64(f.Slack) * (float64(limit) / float64(sum)))
		}
	}
}
