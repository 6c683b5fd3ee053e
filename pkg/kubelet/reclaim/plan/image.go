package plan

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Unlimited is a need that no removal can cover: every removable image is listed.
const Unlimited int64 = math.MaxInt64

// Key identifies an image. Handler is the runtime handler for which it was pulled, empty if images are not
// distinguished by handler (KEP-4216).
type Key struct{ ID, Handler string }

// Image is an image on the node, with what decides about its removal.
type Image struct {
	Key Key
	// Bytes is its size as the runtime reports it. Layers that images share count for each of them.
	Bytes int64
	// FirstDetected is when it was first observed, LastUsed when it was last observed in use; zero if it was not used
	// since the agent started.
	FirstDetected, LastUsed time.Time
	// InUse: a container has it, or an active pod refers to it, or it is being pulled.
	InUse bool
	// Pinned: by the runtime, the image must not be removed.
	Pinned bool
	// RemovalFailed: its removal was tried and failed.
	RemovalFailed bool
}

// Policy are the ages that configuration sets for images.
type Policy struct {
	// MinAge is how long an image is kept after it was first detected, whatever the need is (imageMinimumGCAge).
	MinAge time.Duration
	// MaxAge is the time without use after which an image is removed even if no space is needed (imageMaximumGCAge,
	// KEP-4210); zero for never.
	MaxAge time.Duration
}

// Reason is why an image is removed. The values are those of the label of stock's metric image_garbage_collected_total.
type Reason string

// The reasons.
const (
	// ReasonAge: it was not used for longer than MaxAge.
	ReasonAge Reason = "age"
	// ReasonSpace: space is needed.
	ReasonSpace Reason = "space"
)

// Removal is an image to remove, and why.
type Removal struct {
	Image  Image
	Reason Reason
}

// ForSpace lists the images to remove for the given need in bytes, the least recently used first, and no more than
// suffice by their sizes. The order is total:
//
//  1. never used images first, then by last use, the earliest first
//  2. by first detection, the earliest first
//  3. by ID, then by runtime handler
//
// An image that is in use, pinned, broken or younger than MinAge is never listed.
func ForSpace(images []Image, need int64, p Policy, now time.Time) []Removal {
	if need <= 0 {
		return nil
	}
	list := removals(images, ReasonSpace, func(i *Image) bool { return now.Sub(i.FirstDetected) >= p.MinAge })
	var sum int64
	for i := range list {
		if sum = saturatingAdd(sum, list[i].Image.Bytes); sum >= need && need != Unlimited {
			return list[:i+1]
		}
	}
	return list
}

// ForAge lists the images that were not used for longer than MaxAge, in the order of ForSpace. For an image that was
// never used, the time since its first detection counts.
func ForAge(images []Image, p Policy, now time.Time) []Removal {
	if p.MaxAge == 0 {
		return nil
	}
	return removals(images, ReasonAge, func(i *Image) bool { return now.Sub(i.unusedSince()) > p.MaxAge })
}

func (i *Image) unusedSince() time.Time {
	if i.LastUsed.Before(i.FirstDetected) {
		return i.FirstDetected
	}
	return i.LastUsed
}

func removals(images []Image, reason Reason, oldEnough func(*Image) bool) []Removal {
	var list []Removal
	for i := range images {
		if img := &images[i]; !img.InUse && !img.Pinned && !img.RemovalFailed && oldEnough(img) {
			list = append(list, Removal{Image: *img, Reason: reason})
		}
	}
	slices.SortFunc(list, func(a, b Removal) int {
		return cmp.Or(
			a.Image.LastUsed.Compare(b.Image.LastUsed),
			a.Image.FirstDetected.Compare(b.Image.FirstDetected),
			cmp.Compare(a.Image.Key.ID, b.Image.Key.ID),
			cmp.Compare(a.Image.Key.Handler, b.Image.Key.Handler),
		)
	})
	return list
}

// saturatingAdd adds sizes that the runtime reported: negative ones count as zero, and the sum does not overflow.
func saturatingAdd(sum, n int64) int64 {
	if n <= 0 {
		return sum
	}
	if sum > Unlimited-n {
		return Unlimited
	}
	return sum + n
}
