package fence

import (
	"math"
	"os"
)

const (
	// unlimited is the value of a limit that is not set.
	unlimited = int64(math.MaxInt64)
	// rounding is what recognisable limits of memory are apart, at most: a quarter of the least slack.
	rounding = 2 << 20
	// A limit of processes is a fence if it has the remainder pidRemainder by pidModulus. The greatest such number that is
	// not above the present one is the fence: a limit below the present number only makes forks fail. Below pidRemainder
	// it is 0, which nothing else sets.
	pidModulus, pidRemainder = 127, 113
)

// A limit of memory is a fence if its number of pages has the remainder pageRemainder by pageModulus, which is a prime.
// Limits that people set are multiples of powers of two or ten; of these, and of all others, one in pageModulus has the
// remainder by chance, and such a limit is that of the pod's specification, with which it is compared before anything
// is done.
var (
	pageSize                   = int64(os.Getpagesize())
	pageModulus, pageRemainder = recognisable(pageSize)
)

// recognisable returns pageModulus and pageRemainder for a page size in bytes, which depends on the processor and the
// kernel.
func recognisable(pageSize int64) (modulus, remainder int64) {
	switch {
	case 509*pageSize <= rounding:
		return 509, 307
	case 127*pageSize <= rounding:
		return 127, 77
	}
	return 31, 19 // 64 KiB are the most.
}

// ours reports whether a limit of memory in bytes is a fence of this package.
func ours(limit int64) bool {
	return limit > 0 && limit < unlimited && limit%pageSize == 0 && limit/pageSize%pageModulus == pageRemainder
}

// IsFence reports whether a limit of memory, in bytes, is recognisable as a fence. By chance, others may be.
func IsFence(limit int64) bool { return ours(limit) }

// oursPIDs reports whether a limit of processes is a fence of this package.
func oursPIDs(limit int64) bool {
	return limit == 0 || limit < unlimited && limit%pidModulus == pidRemainder
}

// memoryFence returns the limit, in bytes, for a usage and slack: the greatest recognisable limit that is not above
// usage + slack and not below the usage. If the present limit is not above that, it stops the pod by itself: then the
// result is the present limit.
func memoryFence(usage, slack, present int64) int64 {
	pages := (usage + slack) / pageSize
	pages -= mod(pages-pageRemainder, pageModulus)
	if limit := pages * pageSize; limit < usage {
		pages += pageModulus
	}
	return min(pages*pageSize, present)
}

// pidFence returns the limit for a number of processes, at most the present limit.
func pidFence(count, present int64) int64 {
	return min(max(count-mod(count-pidRemainder, pidModulus), 0), present)
}

// mod returns the remainder of a division, which is not negative.
func mod(n, modulus int64) int64 { return (n%modulus + modulus) % modulus }
