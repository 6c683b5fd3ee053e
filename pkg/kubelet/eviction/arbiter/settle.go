package arbiter

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Rules is what is configured.
type Rules struct {
	// Burst is how many pods are newly requested in a round at most, negative for any number.
	Burst int
	// MaxInFlight is how many pods may be requested or in flight at a time. A new forced request takes the place of a soft
	// one that is not yet in flight.
	MaxInFlight int
	// MaxGracePeriodSeconds caps the grace periods that plugins ask for.
	MaxGracePeriodSeconds int64
	// ConditionTransitionPeriod is how long a condition stays True after it was last reported.
	ConditionTransitionPeriod time.Duration
	// Killers are what evicts the pods of requests.
	Killers Killers
}

// Killers are what evicts the pods of requests, by the kind of the request. ByQoSLevel counts more than the kind: it
// has the killers of the pods with that QoS level.
type Killers struct {
	Forced, Soft snapshot.Killer
	ByQoSLevel   map[string]snapshot.Killer
}

// Outcome is what follows from the answers.
type Outcome struct {
	// Requests are the pods to evict, in the order in which they should go.
	Requests []snapshot.Request
	// Notices are the pods that are given notice instead of being evicted, in the order of UIDs.
	Notices []Notice
	// Questions are to be asked now, in the order of plugins, of plugins that have answered.
	Questions  []Question
	Conditions []Condition
	// Dropped and Refused are the parts of answers that are ignored.
	Dropped []Dropped
	Refused []RefusedCondition
}

// settling is one call of Settle.
type settling struct {
	answers *Answers
	pods    map[types.UID]*Pod
	rules   *Rules
	now     time.Time
	last    *State
	next    State
	outcome Outcome
}

// Settle is a function of its arguments, and changes none of them; the order of plugins, of their pods and of the pods
// of the node makes no difference. Calls must come in the order of now, which is on the agent's monotonic clock.
func Settle(answers Answers, pods []Pod, rules *Rules, state State, now time.Time) (Outcome, State) {
	answers.Plugins = slices.SortedFunc(slices.Values(answers.Plugins), func(a, b Answer) int {
		return cmp.Compare(a.Plugin, b.Plugin)
	})
	s := &settling{answers: &answers, pods: podsByUID(pods), rules: rules, now: now, last: &state, next: state}
	answers.Plugins = slices.DeleteFunc(answers.Plugins, func(a Answer) bool { return !s.active(a.Plugin) })
	if answers.Begun {
		s.next.Fresh, s.next.FreshSoft = 0, 0
	}
	s.next.Clocks = s.clocksAfter(state.Clocks)
	s.next.Conditions = s.conditionsAfter(state.Conditions)
	s.next.Asks = s.asksAfter(state.Asks)
	s.outcome.Requests = s.offered(s.withoutNotices(s.candidates()))
	s.next.Offered = offeredUIDs(s.outcome.Requests)
	s.next.Forced = s.forcedAfter(state.Forced)
	s.outcome.Questions = s.questions()
	s.outcome.Conditions = s.conditions(s.next.Conditions)
	slices.SortFunc(s.outcome.Dropped, func(a, b Dropped) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Why, b.Why))
	})
	return s.outcome, s.next
}

func (s *settling) active(plugin string) bool { return slices.Contains(s.answers.Active, plugin) }

// answer returns the answer of a plugin, nil if there is none among these.
func (s *settling) answer(plugin string) *Answer {
	i := slices.IndexFunc(s.answers.Plugins, func(a Answer) bool { return a.Plugin == plugin })
	if i < 0 {
		return nil
	}
	return &s.answers.Plugins[i]
}

func offeredUIDs(requests []snapshot.Request) (uids []types.UID) {
	for i := range requests {
		uids = append(uids, requests[i].UID)
	}
	slices.Sort(uids)
	return uids
}

// forcedAfter notes which pod each hard threshold has taken: the one that it asks for now, else the one before while
// that is in flight.
func (s *settling) forcedAfter(before []ForcedVictim) (next []ForcedVictim) {
	for _, f := range before {
		if pod := s.pods[f.UID]; pod != nil && pod.InFlight {
			next = append(next, f)
		}
	}
	for i := range s.next.Asks {
		a := &s.next.Asks[i]
		if a.Origin != fromHard {
			continue
		}
		next = slices.DeleteFunc(next, func(f ForcedVictim) bool { return f.Plugin == a.Plugin && f.Scope == a.Scope })
		next = append(next, ForcedVictim{a.Plugin, a.Scope, a.UID})
	}
	slices.SortFunc(next, func(a, b ForcedVictim) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Scope, b.Scope))
	})
	return next
}
