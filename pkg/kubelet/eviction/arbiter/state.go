package arbiter

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is what one call of Settle passes on to the next. The zero value is that of an agent that has just started. It
// is a plain value: Settle returns a new one and leaves the old one unchanged.
type State struct {
	// Fresh and FreshSoft are how many pods, and how many of them by soft requests, are newly requested in this round.
	Fresh, FreshSoft int
	// Clocks are in the order of their keys, Asks in the order of plugin, origin and pod.
	Clocks []Clock
	Asks   []Ask
	// Forced are the pods last offered for hard thresholds, in the order of plugins and scopes.
	Forced []ForcedVictim
	// Offered are the pods that are requested, in the order of UIDs.
	Offered []types.UID
	// Waits are the pods that are requested and not in flight, and those that gave their places back, in the order of
	// UIDs.
	Waits []Wait
	// Conditions are in the order of plugin and name.
	Conditions []ConditionRecord
}

// thresholdKey identifies a threshold. A soft threshold that turns hard is another one: its grace starts again (E13).
type thresholdKey struct {
	Plugin, Scope string
	Kind          Kind
}

// Clock measures how long a threshold has been met.
type Clock struct {
	thresholdKey
	// Met is for how long the threshold has been met, without the time for which answers are missing. At is when the
	// round of the last answer began.
	Met time.Duration
	At  time.Time
	// Missing is how many rounds in a row have no answer, Missed when the first of those began in which the plugin was
	// asked. An answer to that round is only late.
	Missing int
	Missed  time.Time
	// Last is the last answer.
	Last Threshold
	// Confirmed: the threshold has been met for its grace.
	Confirmed bool
}

// ForcedVictim is the pod that was requested for a hard threshold, for as long as it is asked for or in flight. The
// threshold may take another one when this one is released, overdue or blocked (E10).
type ForcedVictim struct {
	Plugin, Scope string
	UID           types.UID
}

// Wait is since when a pod is requested without interruption, or when one that gave its place back was last newly
// requested.
type Wait struct {
	UID   types.UID
	Since time.Time
	// Forced and PodWorker: the request was forced since then, or its killer was PodWorker. Blocked: the pod was blocked
	// since then. Its place is free for others from then on, also between two attempts to evict it.
	Forced, PodWorker, Blocked bool
}

// missingRounds is for how many rounds in a row an answer may be missing until what the plugin said before ends (E13).
const missingRounds = 3
