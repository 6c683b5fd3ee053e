package eviction

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// wanted says which pods a snapshot needs: joining all with their stats costs more than the rest of a quiet round.
type wanted uint8

const (
	noPod wanted = iota
	limitedPods
	everyPod
)

// builder joins pods with their stats and caches what is costly to derive. It belongs to the loop.
type builder struct {
	podLevel  bool
	requested func(types.UID) bool
	deadline  func(types.UID) time.Time
	// byUID has a slot per pod; byObject has the same slots by the current API objects, which is faster to look up.
	byUID    map[string]*slot
	byObject map[*v1.Pod]*slot
	// sorted are the slots of the last round in the order of UIDs.
	sorted []*slot
	// round is the number of the current round, lastRound the time of the previous one.
	round     int
	lastRound time.Time
}

// slot is what is cached of a pod from round to round; usage is that of the current one.
type slot struct {
	// object is the current API object.
	object *v1.Pod
	facts  *snapshot.Facts
	usage  *snapshot.Usage
	// end is the end of the grace period of a pod that was deleted; zero for others.
	end time.Time
	// seen is the last round in which the pod was active, joined that in which it was wanted.
	seen, joined int
}

// pods joins API objects with their stats, in the order of UIDs. UIDs of active pods are unique.
func (b *builder) pods(active []*v1.Pod, f *stats, which wanted) []snapshot.Pod {
	if which == noPod {
		return nil
	}
	b.round++
	count := b.reserve(active, f.moment, which)
	b.lastRound = f.taken
	if count == 0 {
		return nil
	}
	b.join(f, which)
	b.sort(len(active))
	pods := make([]snapshot.Pod, 0, count)
	for _, s := range b.sorted {
		if s.joined != b.round {
			continue
		}
		pod := snapshot.Pod{Facts: s.facts, Usage: s.usage, Images: snapshot.Unknown, Terminating: b.termination(s)}
		if images, ok := f.Images[s.facts.UID]; ok {
			pod.Images = images
		}
		if f.memory != nil {
			pod.Cgroup = f.memory.ByPod[s.facts.UID]
			pod.MemoryRate = f.memory.PodRates[s.facts.UID]
		}
		pods = append(pods, pod)
	}
	return pods
}

// reserve finds or adds a slot for each pod, and counts those that are wanted. When there are many slots of pods that
// are gone, it drops all slots first.
func (b *builder) reserve(active []*v1.Pod, now moment, which wanted) (count int) {
	if b.byUID == nil || len(b.byUID) > 2*len(active)+64 {
		b.byUID, b.byObject = make(map[string]*slot, len(active)), make(map[*v1.Pod]*slot, len(active))
	}
	for _, pod := range active {
		s, ok := b.byObject[pod]
		if !ok {
			s = b.updateSlot(pod, now)
		}
		s.seen = b.round
		if which == everyPod || s.facts.Limits != nil {
			s.usage, s.joined = nil, b.round
			count++
		}
	}
	return count
}

// updateSlot adds or updates the slot of a pod that is new or has a new object.
func (b *builder) updateSlot(pod *v1.Pod, now moment) *slot {
	s, ok := b.byUID[string(pod.UID)]
	var deletedBefore *metav1.Time
	var undeleted time.Time
	if ok {
		deletedBefore = s.object.DeletionTimestamp
		if deletedBefore == nil && s.seen == b.round-1 {
			undeleted = b.lastRound
		}
		delete(b.byObject, s.object)
	} else {
		s = &slot{}
		b.byUID[string(pod.UID)] = s
	}
	if !pod.DeletionTimestamp.Equal(deletedBefore) {
		s.end = endOfGrace(pod, undeleted, now)
	}
	b.byObject[pod] = s
	s.object, s.facts = pod, snapshot.NewFacts(pod, b.podLevel)
	return s
}

func (b *builder) join(f *stats, which wanted) {
	if which == everyPod {
		f.convert()
	}
	for i := range f.numPods() {
		if s, ok := b.byUID[f.Pods.UID(i)]; ok && s.joined == b.round {
			s.usage = f.usage(i)
		}
	}
}

// sort sorts the slots of this round by UID, unless they are those of the previous round.
func (b *builder) sort(active int) {
	gone := func(s *slot) bool { return s.seen != b.round }
	if len(b.sorted) == active && !slices.ContainsFunc(b.sorted, gone) {
		return
	}
	b.sorted = b.sorted[:0]
	for _, s := range b.byUID {
		if !gone(s) {
			b.sorted = append(b.sorted, s)
		}
	}
	slices.SortFunc(b.sorted, func(x, y *slot) int { return cmp.Compare(x.facts.UID, y.facts.UID) })
}

// endOfGrace returns the end of the grace period of a pod that has this deletion for the first time. The deletion
// timestamp is that end by the wall clock of the API server, not the time of the request. The agent counts the grace
// period from the time at which it gets the deletion: now at the latest, and not before the last round that had the pod
// without a deletion (undeleted; zero without one). This bounds the effect of a clock that is wrong. A clock that is
// set later has no effect, since from here on the agent's monotonic clock counts.
func endOfGrace(pod *v1.Pod, undeleted time.Time, now moment) time.Time {
	if pod.DeletionTimestamp == nil {
		return time.Time{}
	}
	left := pod.DeletionTimestamp.Sub(now.wallTime)
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace := time.Duration(min(*seconds, maxGraceSeconds)) * time.Second
		if !undeleted.IsZero() {
			left = max(left, undeleted.Sub(now.taken)+grace)
		}
		left = min(left, grace)
	}
	return now.taken.Add(left)
}

func (b *builder) termination(s *slot) *snapshot.Termination {
	switch {
	case !s.end.IsZero():
		return &snapshot.Termination{Deadline: s.end}
	case b.requested != nil && b.requested(s.facts.UID):
		return &snapshot.Termination{Deadline: b.deadline(s.facts.UID)}
	}
	return nil
}

// terminationDeadline returns the end of the grace period of a pod that is being stopped, on the monotonic clock; zero
// if it is unknown.
func (m *Manager) terminationDeadline(uid types.UID) time.Time {
	if m.config.TerminationDeadline == nil {
		return time.Time{}
	}
	deadline := m.config.TerminationDeadline(uid)
	if deadline.IsZero() {
		return deadline
	}
	return m.clock.monotonic(deadline)
}
