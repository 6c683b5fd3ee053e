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

// wanted says which pods a snapshot needs: joining all with their figures costs more than the rest of a quiet round.
type wanted uint8

const (
	noPod wanted = iota
	limitedPods
	everyPod
)

// builder joins pods with their figures and keeps what is costly to derive. It belongs to the loop.
type builder struct {
	podLevel  bool
	requested func(types.UID) bool
	// byUID has a slot per pod; byObject finds the same slots by the present API objects, which is faster.
	byUID    map[string]*slot
	byObject map[*v1.Pod]*slot
	// sorted are the slots of the last round in the order of UIDs.
	sorted []*slot
	// round is the number of the present round, looked when the one before it was.
	round  int
	looked time.Time
}

// slot is what is kept of a pod from round to round; usage is that of the present one.
type slot struct {
	// object is the present API object.
	object *v1.Pod
	facts  *snapshot.Facts
	usage  *snapshot.Usage
	// end is when the grace period of a pod that was deleted ends; zero for others.
	end time.Time
	// seen is the last round in which the pod was active, joined that in which it was wanted.
	seen, joined int
}

// pods joins API objects with their figures, in the order of UIDs. UIDs of active pods are unique.
func (b *builder) pods(active []*v1.Pod, f *figures, which wanted) []snapshot.Pod {
	if which == noPod {
		return nil
	}
	b.round++
	count := b.reserve(active, f.moment, which)
	b.looked = f.taken
	if count == 0 {
		return nil
	}
	b.join(&f.pods, which)
	b.sort(len(active))
	pods := make([]snapshot.Pod, 0, count)
	for _, s := range b.sorted {
		if s.joined != b.round {
			continue
		}
		pod := snapshot.Pod{Facts: s.facts, Usage: s.usage, Images: snapshot.Unknown, Terminating: b.termination(s)}
		if images, ok := f.images[s.facts.UID]; ok {
			pod.Images = images
		}
		if f.memory != nil {
			pod.Cgroup = f.memory.ByPod[s.facts.UID]
		}
		pods = append(pods, pod)
	}
	return pods
}

// reserve finds or makes a slot for each pod, and counts those that are wanted. Pods that are gone are forgotten when
// there are many.
func (b *builder) reserve(active []*v1.Pod, now moment, which wanted) (count int) {
	if b.byUID == nil || len(b.byUID) > 2*len(active)+64 {
		b.byUID, b.byObject = make(map[string]*slot, len(active)), make(map[*v1.Pod]*slot, len(active))
	}
	for _, pod := range active {
		s, ok := b.byObject[pod]
		if !ok {
			s = b.meet(pod, now)
		}
		s.seen = b.round
		if which == everyPod || s.facts.Limits != nil {
			s.usage, s.joined = nil, b.round
			count++
		}
	}
	return count
}

// meet takes in a pod that is new, or of which there is a new object.
func (b *builder) meet(pod *v1.Pod, now moment) *slot {
	s, ok := b.byUID[string(pod.UID)]
	var deletedBefore *metav1.Time
	var undeleted time.Time
	if ok {
		deletedBefore = s.object.DeletionTimestamp
		if deletedBefore == nil && s.seen == b.round-1 {
			undeleted = b.looked
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

func (b *builder) join(stats *podStats, which wanted) {
	if which == everyPod {
		stats.convert()
	}
	for i := range stats.reported {
		if s, ok := b.byUID[stats.reported[i].PodRef.UID]; ok && s.joined == b.round {
			s.usage = stats.usage(i)
		}
	}
}

// sort brings the slots of this round into order; from round to round they are mostly the same.
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

// endOfGrace returns when the grace period ends of a pod that is seen with this deletion for the first time. Its
// deletion timestamp says when that is, by the API server's wall clock, and not when the deletion was requested. The
// grace period itself is known, and the agent counts it from when it learns of the deletion: that is now at the
// latest, and not before the pod was last seen without a deletion (undeleted; zero if it never was). So a clock that
// is wrong is noticed; and one that is set later changes nothing, since from here on the agent's monotonic clock
// counts.
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
		return &snapshot.Termination{}
	}
	return nil
}
