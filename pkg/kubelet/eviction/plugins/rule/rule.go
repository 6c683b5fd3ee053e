package rule

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// Finding is what a rule returns for one round.
type Finding struct {
	// Pods are requested whatever the threshold.
	Pods      []arbiter.PodDemand
	Threshold arbiter.Threshold
	// Top are the pods to evict for the threshold, the best first. GraceSeconds is the grace period of their eviction, nil
	// for their own.
	Top          []types.UID
	GraceSeconds *int64
	// Notes are what should be logged: why the rule leaves a pod out, or does without a source.
	Notes []Note
	// Unread is what could not be read; the rule has decided without it. Errors may be nil. Readers set it, rules do not.
	Unread []error
}

// Note is a remark about a pod, or about the node if Pod is empty. It is reported when it was not in the finding of the
// last round.
type Note struct {
	Pod  types.UID
	Text string
	// Event: it is an event on the pod too, since its owner can do something about it.
	Event bool
}

// Level is the QoS level of a pod as rules distinguish it.
type Level uint8

// The levels, in the order in which pods are evicted. Pods without a level are shared.
const (
	Reclaimed Level = iota
	Shared
	// Dedicated are pods of all other levels.
	Dedicated
)

// LevelOf returns the level of a pod.
func LevelOf(pod *v1.Pod, levels *arbiter.Levels) Level {
	switch levels.Of(pod) {
	case arbiter.ReclaimedCores:
		return Reclaimed
	case "", string(node.QoSLevelSharedCores):
		return Shared
	}
	return Dedicated
}

// String returns the level as messages show it.
func (l Level) String() string {
	switch l {
	case Reclaimed:
		return "reclaimed"
	case Shared:
		return "shared"
	default:
		return "dedicated"
	}
}

// Candidate is a pod that a rule may propose.
type Candidate struct {
	UID      types.UID
	Level    Level
	Priority int32
	// Amount is how much of what is scarce the pod has.
	Amount float64
}

// CandidateOf returns a candidate for a pod.
func CandidateOf(pod *v1.Pod, levels *arbiter.Levels, amount float64) Candidate {
	return Candidate{
		UID: pod.UID, Level: LevelOf(pod, levels), Priority: corev1helpers.PodPriority(pod), Amount: amount,
	}
}

// Rank returns the UIDs of the candidates in the order in which they are to be evicted: reclaimed pods before others,
// lower priority, more of what is scarce, UID.
func Rank(candidates []Candidate) []types.UID {
	ranked := slices.Clone(candidates)
	slices.SortFunc(ranked, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(min(a.Level, Shared), min(b.Level, Shared)), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.UID, b.UID))
	})
	uids := make([]types.UID, len(ranked))
	for i := range ranked {
		uids[i] = ranked[i].UID
	}
	return uids
}

// Requested returns the first pods of a ranking up to one that is evicted when it is requested without force. Those
// before it are given notice instead, which frees nothing.
func Requested(ranked []types.UID, pods []*v1.Pod) []types.UID {
	for i, uid := range ranked {
		if !slices.ContainsFunc(pods, func(pod *v1.Pod) bool {
			return pod.UID == uid && pod.Annotations[arbiter.SoftNoticeKey] == "true"
		}) {
			return ranked[:i+1]
		}
	}
	return ranked
}

// OnlyReclaimed returns the candidates that are reclaimed pods.
func OnlyReclaimed(candidates []Candidate) (list []Candidate) {
	for _, c := range candidates {
		if c.Level == Reclaimed {
			list = append(list, c)
		}
	}
	return list
}

// Millionths is a ratio in parts per million.
type Millionths uint64

// Percent returns a ratio in percent.
func Percent(p int32) Millionths { return Millionths(max(0, p)) * 10_000 }

// Permille returns a ratio in thousandths.
func Permille(p int32) Millionths { return Millionths(max(0, p)) * 1_000 }

// String returns the ratio as a decimal number, such as 1.05.
func (m Millionths) String() string { return fmt.Sprint(float64(m) / 1e6) }

// Exceeds reports whether an amount is more than ratio times base. It is exact. Negative amounts count as 0.
func Exceeds(amount int64, ratio Millionths, base int64) bool {
	return compare(amount, ratio, base) > 0
}

// Below reports whether an amount is less than ratio times base. It is exact. Negative amounts count as 0.
func Below(amount int64, ratio Millionths, base int64) bool {
	return compare(amount, ratio, base) < 0
}

func compare(amount int64, ratio Millionths, base int64) int {
	hi, lo := bits.Mul64(uint64(max(0, amount)), 1_000_000)
	baseHi, baseLo := bits.Mul64(uint64(ratio), uint64(max(0, base)))
	return cmp.Or(cmp.Compare(hi, baseHi), cmp.Compare(lo, baseLo))
}

// Times returns ratio times base, for messages; math.MaxInt64 if that is too great.
func Times(ratio Millionths, base int64) int64 {
	hi, lo := bits.Mul64(uint64(ratio), uint64(max(0, base)))
	if hi >= 1_000_000 {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, 1_000_000)
	return int64(min(quotient, math.MaxInt64))
}

// Mebibytes formats an amount of memory for messages.
func Mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// Since measures for how long something has been the case without interruption, by observations. The zero value is that
// it is not.
type Since struct {
	// From is when it was first observed, zero if it is not the case; Last is the last observation.
	From, Last time.Time
}

// Observe returns the state after an observation. When more time than most has passed since the last one, what was
// before does not count: it is not known what was between.
func (s Since) Observe(is bool, now time.Time, most time.Duration) Since {
	switch {
	case !is:
		return Since{}
	case s.From.IsZero() || now.Sub(s.Last) > most || now.Before(s.Last):
		return Since{From: now, Last: now}
	}
	return Since{From: s.From, Last: now}
}

// For returns for how long it has been the case, and whether it is.
func (s Since) For() (time.Duration, bool) { return s.Last.Sub(s.From), !s.From.IsZero() }

// AtLeast reports whether it is the case, and has been for that long.
func (s Since) AtLeast(d time.Duration) bool {
	long, is := s.For()
	return is && long >= d
}
