package plan

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Everything is a need that no removal can cover: all that may go is listed.
const Everything int64 = math.MaxInt64

// Key identifies an image. Handler is the runtime handler that it was pulled for, empty where the runtime does not tell
// them apart (KEP-4216).
type Key struct{ ID, Handler string }

// Image is an image on the node, as far as its removal is concerned.
type Image struct {
	Key Key
	// Bytes is its size as the runtime counts it. Layers that images share count for each of them.
	Bytes int64
	// FirstDetected is when it was first seen, LastUsed when it was last seen in use; zero when never since the agent
	// started.
	FirstDetected, LastUsed time.Time
	// InUse: a container has it, or a pod that is starting wants it, or it is being pulled.
	InUse bool
	// Pinned: the runtime says that it must stay.
	Pinned bool
	// Broken: its removal was tried and failed.
	Broken bool
}

// Policy are the ages that configuration sets for images.
type Policy struct {
	// MinAge is how long an image stays after it was first seen whatever the need is (imageMinimumGCAge).
	MinAge time.Duration
	// MaxAge is after what time without use an image goes although there is room (imageMaximumGCAge, KEP-4210); zero for
	// never.
	MaxAge time.Duration
}

// Reason is why an image goes. The values are those of the label of stock's metric image_garbage_collected_total.
type Reason string

// The reasons.
const (
	// Age: nobody has used it for longer than MaxAge.
	Age Reason = "age"
	// Space: room is needed.
	Space Reason = "space"
)

// Removal is an image that goes, and why.
type Removal struct {
	Image  Image
	Reason Reason
}

// ForSpace lists the images to remove for the given need in bytes: the least recently used first, and no more of them
// than it takes, going by their sizes. The order is total:
//
//  1. never used before used, and the earlier used before the later
//  2. first seen earlier
//  3. by ID, then by runtime handler
//
// An image that is in use, pinned, broken or younger than MinAge is never listed.
func ForSpace(images []Image, need int64, p Policy, now time.Time) []Removal {
	if need <= 0 {
		return nil
	}
	list := removals(images, Space, func(i *Image) bool { return now.Sub(i.FirstDetected) >= p.MinAge })
	var sum int64
	for i := range list {
		if sum = saturatingAdd(sum, list[i].Image.Bytes); sum >= need && need != Everything {
			return list[:i+1]
		}
	}
	return list
}

// ForAge lists the images that nobody has used for longer than MaxAge, in the order of ForSpace. One that was never
// used is as old as its detection.
func ForAge(images []Image, p Policy, now time.Time) []Removal {
	if p.MaxAge == 0 {
		return nil
	}
	return removals(images, Age, func(i *Image) bool { return now.Sub(i.unusedSince()) > p.MaxAge })
}

func (i *Image) unusedSince() time.Time {
	if i.LastUsed.Before(i.FirstDetected) {
		return i.FirstDetected
	}
	return i.LastUsed
}

func removals(images []Image, why Reason, may func(*Image) bool) []Removal {
	var list []Removal
	for i := range images {
		if img := &images[i]; !img.InUse && !img.Pinned && !img.Broken && may(img) {
			list = append(list, Removal{Image: *img, Reason: why})
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

// saturatingAdd is for figures that come from elsewhere: what is negative counts as nothing.
func saturatingAdd(sum, n int64) int64 {
	if n <= 0 {
		return sum
	}
	if sum > Everything-n {
		return Everything
	}
	return sum + n
}
