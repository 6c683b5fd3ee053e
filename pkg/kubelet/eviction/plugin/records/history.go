package records

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// window is the time before the current hour whose evictions are kept, in whole hours. With the current hour it covers
// at least the last 24 hours, with at most 25 buckets.
const window = 24 * time.Hour

// History counts evictions by owner and hour. It must not be used concurrently. Times are on the wall clock, which may
// be set back: an hour that has not begun yet is kept, and is no part of the answer until then.
type History struct {
	maxOwners int
	owners    map[types.UID]*owner
}

// owner is an owner with at least one eviction.
type owner struct {
	// last is the time of the eviction that was added last.
	last time.Time
	// buckets are in the order of their hours, each at most once.
	buckets []Bucket
}

// NewHistory returns an empty history of at most maxOwners owners, which must be positive.
func NewHistory(maxOwners int) *History {
	return &History{maxOwners: maxOwners, owners: map[types.UID]*owner{}}
}

// Add counts an eviction. Hours of the owner that are more than a day from it are dropped. If there are too many
// owners, the one whose last eviction is the oldest is dropped, and of several the one with the lowest UID.
func (h *History) Add(uid types.UID, at time.Time) {
	o := h.owners[uid]
	if o == nil {
		if len(h.owners) >= h.maxOwners {
			delete(h.owners, h.oldest())
		}
		o = &owner{}
		h.owners[uid] = o
	}
	start := hourOf(at)
	o.last = at
	o.buckets = slices.DeleteFunc(o.buckets, func(b Bucket) bool {
		return b.Start.Before(start.Add(-window)) || b.Start.After(start.Add(window))
	})
	i, found := slices.BinarySearchFunc(o.buckets, start, func(b Bucket, t time.Time) int { return b.Start.Compare(t) })
	if !found {
		o.buckets = slices.Insert(o.buckets, i, Bucket{Start: start})
	}
	o.buckets[i].Count++
}

func (h *History) oldest() (uid types.UID) {
	var oldest *owner
	for candidate, o := range h.owners {
		if oldest == nil || cmp.Or(o.last.Compare(oldest.last), cmp.Compare(candidate, uid)) < 0 {
			uid, oldest = candidate, o
		}
	}
	return uid
}

// Buckets returns the evictions of an owner in the hour of now and in the 24 hours before. The result is the caller's.
func (h *History) Buckets(uid types.UID, now time.Time) (buckets []Bucket) {
	o := h.owners[uid]
	if o == nil {
		return nil
	}
	current := hourOf(now)
	for _, b := range o.buckets {
		if !b.Start.Before(current.Add(-window)) && !b.Start.After(current) {
			buckets = append(buckets, b)
		}
	}
	return buckets
}

// hourOf returns the beginning of an hour. Truncate removes the monotonic clock.
func hourOf(t time.Time) time.Time { return t.UTC().Truncate(BucketDuration) }
