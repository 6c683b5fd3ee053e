package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// unknownAfter is for how long something must be unknown until users are told: single readings get lost without harm.
	unknownAfter = 30 * time.Second
	// dryRunEvery is the least time between two notices about the same threshold in dry run.
	dryRunEvery = time.Minute
)

// Notice is something that users should read about in events and logs, once for each time it begins, or ends.
type Notice struct {
	Kind NoticeKind
	// Condition is the node condition of the notice, for SignalsUnknown, SignalsKnown and ConditionChanged.
	Condition policy.Condition
	// Since is when it began, by the wall clock, for SignalsUnknown, RuntimeSilent and CountersUnreadable.
	Since time.Time
	// Need is the need of Reclaiming.
	Need *policy.Starved
	// Victim would be evicted, for DryRunVictim, after a node-level reclaim if AfterReclaim.
	Victim       *policy.Victim
	AfterReclaim bool
	// Err is why the counters are unreadable.
	Err error
}

// NoticeKind is the kind of a notice.
type NoticeKind string

// The kinds of notices.
const (
	// ConditionChanged: a node condition has become True or False.
	ConditionChanged NoticeKind = "ConditionChanged"
	// Reclaiming: something is done about a resource that is scarce, or cannot be done since there is no candidate.
	Reclaiming NoticeKind = "Reclaiming"
	// SignalsUnknown, SignalsKnown: signals of a node condition have been unknown for a while; they are known again.
	SignalsUnknown NoticeKind = "SignalsUnknown"
	SignalsKnown   NoticeKind = "SignalsKnown"
	// RuntimeSilent, RuntimeAnswers: the container runtime has not reported for a while what pods use; it does again.
	RuntimeSilent  NoticeKind = "RuntimeSilent"
	RuntimeAnswers NoticeKind = "RuntimeAnswers"
	// CountersUnreadable, CountersReadable: the kernel's memory counters could not be read for a while; they can again.
	CountersUnreadable NoticeKind = "CountersUnreadable"
	CountersReadable   NoticeKind = "CountersReadable"
	// DryRunVictim: a pod would be evicted if the cause were not in dry run.
	DryRunVictim NoticeKind = "DryRunVictim"
)

// noticer finds the notices of a round. It belongs to the loop.
type noticer struct {
	// reclaiming is when a notice about a signal was last given, dryRun the same by cause.
	reclaiming [snapshot.NumSignals]time.Time
	dryRun     map[policy.Cause]time.Time
	// signals, runtime and counters were given notice of as unknown.
	signals           [len(policy.ConditionTypes)]bool
	runtime, counters bool
	// silentSince is when the container runtime became silent; zero while it answers.
	silentSince time.Time
}

// of returns the notices of a round; period is the least time between two notices about one scarce resource.
func (n *noticer) of(r *Round, period time.Duration) []Notice {
	var list []Notice
	list = n.conditions(list, r)
	list = n.needs(list, r, period)
	list = n.unknownSignals(list, r)
	list = n.silence(list, r)
	list = n.unreadable(list, r)
	list = n.dryRuns(list, r)
	for i := range list {
		if since := &list[i].Since; !since.IsZero() {
			*since = r.Decision.WallTimeOf(*since)
		}
	}
	return list
}

func (n *noticer) conditions(list []Notice, r *Round) []Notice {
	for i := range r.Decision.Conditions {
		if c := &r.Decision.Conditions[i]; c.True != conditionIn(r.Before, c.Type).True {
			list = append(list, Notice{Kind: ConditionChanged, Condition: *c})
		}
	}
	return list
}

func (n *noticer) needs(list []Notice, r *Round, period time.Duration) []Notice {
	for i := range r.Decision.Starved {
		st, now := &r.Decision.Starved[i], r.Decision.At
		last := &n.reclaiming[st.Signal]
		if st.Acting() && (last.IsZero() || now.Sub(*last) >= period) {
			*last = now
			list = append(list, Notice{Kind: Reclaiming, Need: st})
		}
	}
	return list
}

func (n *noticer) unknownSignals(list []Notice, r *Round) []Notice {
	for i := range r.Decision.Conditions {
		c := &r.Decision.Conditions[i]
		switch unknown := isUnknown(c, r.Decision.At); {
		case unknown && !n.signals[i]:
			n.signals[i] = true
			list = append(list, Notice{Kind: SignalsUnknown, Condition: *c, Since: c.BlindSince})
		case len(c.Blind) == 0 && n.signals[i]:
			n.signals[i] = false
			list = append(list, Notice{Kind: SignalsKnown, Condition: *c})
		}
	}
	return list
}

// isUnknown reports whether signals of the condition have been unknown for a while.
func isUnknown(c *policy.Condition, now time.Time) bool {
	return len(c.Blind) > 0 && now.Sub(c.BlindSince) >= unknownAfter
}

func (n *noticer) silence(list []Notice, r *Round) []Notice {
	silent := r.Snapshot.RuntimeSilent
	switch {
	case !silent:
		n.silentSince = time.Time{}
	case n.silentSince.IsZero():
		n.silentSince = r.Decision.At
	}
	begin := Notice{Kind: RuntimeSilent, Since: n.silentSince}
	return append(list, lasting(silent, r.Decision.At, &n.runtime, begin, RuntimeAnswers)...)
}

func (n *noticer) unreadable(list []Notice, r *Round) []Notice {
	begin := Notice{Kind: CountersUnreadable, Since: r.CountersErrSince, Err: r.CountersErr}
	return append(list, lasting(r.CountersErr != nil, r.Decision.At, &n.counters, begin, CountersReadable)...)
}

// lasting returns begin once when a fault has lasted for a while, and a notice of the kind end once when it is over
// after that. noticed remembers that begin was returned.
func lasting(fault bool, now time.Time, noticed *bool, begin Notice, end NoticeKind) []Notice {
	switch {
	case fault && !*noticed && now.Sub(begin.Since) >= unknownAfter:
		*noticed = true
		return []Notice{begin}
	case !fault && *noticed:
		*noticed = false
		return []Notice{{Kind: end}}
	}
	return nil
}

func (n *noticer) dryRuns(list []Notice, r *Round) []Notice {
	dry := &r.Decision.DryRun
	for i := range dry.Victims {
		v := &dry.Victims[i]
		if last, ok := n.dryRun[v.Cause]; ok && r.Decision.At.Sub(last) < dryRunEvery {
			continue
		}
		if n.dryRun == nil {
			n.dryRun = map[policy.Cause]time.Time{}
		}
		n.dryRun[v.Cause] = r.Decision.At
		list = append(list, Notice{Kind: DryRunVictim, Victim: v, AfterReclaim: dry.Reclaiming(v.Cause.Signal)})
	}
	return list
}

// conditionIn is the condition of that type, one that is False when it is not among them.
func conditionIn(conditions []policy.Condition, t v1.NodeConditionType) policy.Condition {
	for i := range conditions {
		if conditions[i].Type == t {
			return conditions[i]
		}
	}
	return policy.Condition{Type: t}
}

func isTrue(conditions []policy.Condition, t v1.NodeConditionType) bool {
	return conditionIn(conditions, t).True
}
