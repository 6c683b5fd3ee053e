package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// unknownAfter is for how long a source must fail until users are notified: single failures have no consequences.
	unknownAfter = 30 * time.Second
	// dryRunEvery is the least time between two notices about the same threshold in dry run.
	dryRunEvery = time.Minute
)

// Notice is what events and logs report about a round: once when it begins and, for some kinds, once when it ends.
type Notice struct {
	Kind NoticeKind
	// Condition is set for SignalsUnknown, SignalsKnown and ConditionChanged.
	Condition policy.Condition
	// Since is the wall time of the beginning, for SignalsUnknown, RuntimeSilent and CountersUnreadable.
	Since time.Time
	// Need is set for Reclaiming.
	Need *policy.NeedDecision
	// Victim is the pod that would be evicted, for DryRunVictim. AfterReclaim is true if a node-level reclaim would come
	// first.
	Victim       *policy.Victim
	AfterReclaim bool
	// Err is the error of reading the counters, for CountersUnreadable.
	Err error
}

// NoticeKind is the kind of a notice.
type NoticeKind string

// The kinds of notices.
const (
	// ConditionChanged: a node condition has become True or False.
	ConditionChanged NoticeKind = "ConditionChanged"
	// Reclaiming: the agent evicts or reclaims for a need, or cannot since there is no candidate.
	Reclaiming NoticeKind = "Reclaiming"
	// SignalsUnknown: signals of a node condition have been unknown for unknownAfter. SignalsKnown: they are known again.
	SignalsUnknown NoticeKind = "SignalsUnknown"
	SignalsKnown   NoticeKind = "SignalsKnown"
	// RuntimeSilent: the container runtime has not reported pod stats for unknownAfter. RuntimeAnswers: it does again.
	RuntimeSilent  NoticeKind = "RuntimeSilent"
	RuntimeAnswers NoticeKind = "RuntimeAnswers"
	// CountersUnreadable: the kernel's memory counters could not be read for unknownAfter. CountersReadable: they can
	// again.
	CountersUnreadable NoticeKind = "CountersUnreadable"
	CountersReadable   NoticeKind = "CountersReadable"
	// DryRunVictim: a pod would be evicted if the cause were not in dry run.
	DryRunVictim NoticeKind = "DryRunVictim"
)

// noticer derives the notices of rounds. Only the goroutine of Run uses it.
type noticer struct {
	// reclaiming has the time of the last Reclaiming notice of each signal, dryRun that of DryRunVictim of each cause.
	reclaiming [snapshot.NumSignals]time.Time
	dryRun     map[policy.Cause]time.Time
	// signals, runtime and counters are true from the notice that these fail to the notice that they work again.
	signals           [len(policy.ConditionTypes)]bool
	runtime, counters bool
	// silentSince is when the container runtime became silent; zero while it answers.
	silentSince time.Time
}

// of returns the notices of a round. period is the shortest time between two Reclaiming notices of one signal.
func (n *noticer) of(r *Round, period time.Duration) []Notice {
	var list []Notice
	list = n.conditions(list, r)
	list = n.needs(list, r, period)
	list = n.unknownSignals(list, r)
	list = n.runtimeSilence(list, r)
	list = n.unreadableCounters(list, r)
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
	for i := range r.Decision.Needs {
		st, now := &r.Decision.Needs[i], r.Decision.At
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
			list = append(list, Notice{Kind: SignalsUnknown, Condition: *c, Since: c.UnknownSince})
		case len(c.UnknownSignals) == 0 && n.signals[i]:
			n.signals[i] = false
			list = append(list, Notice{Kind: SignalsKnown, Condition: *c})
		}
	}
	return list
}

// isUnknown reports whether signals of the condition have been unknown for unknownAfter.
func isUnknown(c *policy.Condition, now time.Time) bool {
	return len(c.UnknownSignals) > 0 && now.Sub(c.UnknownSince) >= unknownAfter
}

func (n *noticer) runtimeSilence(list []Notice, r *Round) []Notice {
	silent := r.Snapshot.RuntimeSilent
	switch {
	case !silent:
		n.silentSince = time.Time{}
	case n.silentSince.IsZero():
		n.silentSince = r.Decision.At
	}
	begin := Notice{Kind: RuntimeSilent, Since: n.silentSince}
	return append(list, transition(silent, r.Decision.At, &n.runtime, begin, RuntimeAnswers)...)
}

func (n *noticer) unreadableCounters(list []Notice, r *Round) []Notice {
	begin := Notice{Kind: CountersUnreadable, Since: r.CountersErrSince, Err: r.CountersErr}
	return append(list, transition(r.CountersErr != nil, r.Decision.At, &n.counters, begin, CountersReadable)...)
}

// transition returns begin when a fault has lasted for unknownAfter, and a notice of kind end when it is over after
// that, each once. noticed is true between the two.
func transition(fault bool, now time.Time, noticed *bool, begin Notice, end NoticeKind) []Notice {
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

// conditionIn returns the condition of a type, one that is False if there is none.
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
