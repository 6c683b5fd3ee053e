package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// origin is which call of a plugin a pod comes from.
type origin uint8

const (
	fromDemand origin = iota
	fromSoft
	fromHard
)

// Ask is one pod that one plugin asks for.
type Ask struct {
	Plugin string
	Origin origin
	UID    types.UID
	Scope  string
	Reason string
	// GraceSeconds is nil for the pod's own.
	GraceSeconds *int64
	Force        bool
	// Since is when the plugin first asked for it without interruption.
	Since time.Time
	// Missing is how many rounds in a row the plugin has not answered.
	Missing int
}

// Dropped is a pod in an answer that is ignored, with the reason. Plugins may send anything.
type Dropped struct {
	Plugin string
	UID    types.UID
	Why    Exclusion
}

const (
	// forceScope is the scope of pods that a plugin asks for whatever its threshold says.
	forceScope = "force"
	// maxReason bounds the reason of one plugin, and that of a request; maxScope bounds scopes. Both are in bytes.
	maxReason = 1024
	maxScope  = 253
)

// asksAfter returns what plugins ask for after these answers.
func (s *settling) asksAfter(before []Ask) []Ask {
	n := asking{since: make(map[askKey]time.Time, len(before)), index: map[askKey]int{}}
	for i := range before {
		n.since[before[i].key()] = before[i].Since
		if a, ok := s.stillAsked(before[i]); ok {
			n.append(a)
		}
	}
	for i := range s.answers.Plugins {
		if answer := &s.answers.Plugins[i]; answer.Demand != nil {
			s.demand(&n, answer)
		}
	}
	for i := range s.answers.Replies {
		s.reply(&n, &s.answers.Replies[i])
	}
	slices.SortFunc(n.asks, compareAsks)
	return n.asks
}

// asking is what plugins ask for, while it is put together.
type asking struct {
	asks []Ask
	// index is where the asks are; since is when those of before were first asked for.
	index map[askKey]int
	since map[askKey]time.Time
}

func (n *asking) append(a Ask) {
	n.index[a.key()] = len(n.asks)
	n.asks = append(n.asks, a)
}

// askKey identifies an ask.
type askKey struct {
	plugin string
	origin origin
	scope  string
	uid    types.UID
}

func (a *Ask) key() askKey { return askKey{a.Plugin, a.Origin, a.Scope, a.UID} }

func compareAsks(a, b Ask) int {
	return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Origin, b.Origin), cmp.Compare(a.Scope, b.Scope),
		cmp.Compare(a.UID, b.UID))
}

// stillAsked returns what becomes of an ask that is not renewed by these answers. What a plugin asked for in the round
// before ends when it answers without it, and in the third round without an answer. Pods for a threshold are asked for
// as long as that is met. Either ends when plugins may no longer name the pod.
func (s *settling) stillAsked(a Ask) (Ask, bool) {
	if excluded(s.pods[a.UID]) != NotExcluded || !s.active(a.Plugin) {
		return a, false
	}
	if a.Origin != fromDemand {
		kind := Soft
		if a.Origin == fromHard {
			kind = Hard
		}
		key := thresholdKey{a.Plugin, a.Scope, kind}
		c, met := clockOf(s.next.Clocks, key)
		renewed := slices.ContainsFunc(s.answers.Replies, func(r Reply) bool {
			return thresholdKey{r.Question.Plugin, r.Question.Scope, r.Question.Kind} == key
		})
		return a, met && c.Confirmed && !renewed
	}
	answer := s.answer(a.Plugin)
	switch {
	case answer == nil:
		return a, true
	case answer.Demand != nil:
		return a, false
	}
	a.Missing++
	return a, a.Missing < missingRounds
}

func (s *settling) demand(n *asking, answer *Answer) {
	for i := range answer.Demand.Pods {
		d := &answer.Demand.Pods[i]
		s.add(n, Ask{
			Plugin: answer.Plugin, Origin: fromDemand, UID: d.UID, Scope: forceScope, Reason: d.Reason,
			GraceSeconds: d.GraceSeconds, Force: d.Force,
		})
	}
}

// reply takes in the pods that a plugin names for a threshold. A hard one takes one pod.
func (s *settling) reply(n *asking, r *Reply) {
	q := &r.Question
	c, met := clockOf(s.next.Clocks, thresholdKey{q.Plugin, q.Scope, q.Kind})
	if !met || !c.Confirmed {
		return
	}
	ask := Ask{
		Plugin: q.Plugin, Origin: fromSoft, Scope: q.Scope, Reason: reasonFor(c.Scope, &c.Last), GraceSeconds: r.GraceSeconds,
	}
	if q.Kind == Hard {
		ask.Origin, ask.Force = fromHard, true
		s.hardReply(n, ask, r.Pods)
		return
	}
	for _, ask.UID = range r.Pods {
		s.add(n, ask)
	}
}

// hardReply takes in the first pod of the answer that is not in flight and not blocked. If there is none, the pod that
// was asked for before stays if it is blocked, else the first blocked one of the answer is taken: its eviction may be
// accepted yet.
func (s *settling) hardReply(n *asking, ask Ask, pods []types.UID) {
	var blocked *Ask
	for i := range s.last.Asks {
		a := &s.last.Asks[i]
		same := a.Plugin == ask.Plugin && a.Origin == ask.Origin && a.Scope == ask.Scope
		if same && excluded(s.pods[a.UID]) == NotExcluded && s.blocked(s.pods[a.UID]) {
			blocked = a
		}
	}
	for _, ask.UID = range pods {
		switch pod := s.pods[ask.UID]; {
		case pod != nil && pod.InFlight:
		case excluded(pod) == NotExcluded && s.blocked(pod):
			if blocked == nil {
				blocked = new(ask)
			}
		case s.add(n, ask):
			return
		}
	}
	if blocked != nil {
		s.add(n, *blocked)
	}
}

// blocked reports whether an eviction of the pod by force is blocked.
func (s *settling) blocked(pod *Pod) bool {
	return pod.Blocked && !pod.InFlight && s.rules.Killers.of(pod, true) != snapshot.PodWorker
}

// add takes in an ask if the pod may be named, and reports whether it may. An ask is a value: nothing in it is shared
// with the answer (E14).
func (s *settling) add(n *asking, a Ask) bool {
	if why := excluded(s.pods[a.UID]); why != NotExcluded {
		s.outcome.Dropped = append(s.outcome.Dropped, Dropped{a.Plugin, a.UID, why})
		return false
	}
	a.Reason, a.GraceSeconds = bounded(a.Reason, maxReason), s.grace(a.GraceSeconds)
	if i, ok := n.index[a.key()]; ok {
		// Named twice in one answer: as if by two plugins.
		n.asks[i].merge(&a, s.pods[a.UID].GraceSeconds)
		return true
	}
	a.Since = s.now
	if since, ok := n.since[a.key()]; ok {
		a.Since = since
	}
	n.append(a)
	return true
}

// merge adds another ask for the same pod, whose own grace period is own.
func (a *Ask) merge(o *Ask, own int64) {
	a.GraceSeconds = sooner(a.Force, a.GraceSeconds, o.Force, o.GraceSeconds, own)
	a.Force = a.Force || o.Force
	a.Reason = min(a.Reason, o.Reason)
}

// sooner merges the grace periods of two asks for one pod: the shortest asked for with force; without force the
// shortest. The result is nil for the pod's own, in seconds own.
func sooner(forceA bool, a *int64, forceB bool, b *int64, own int64) *int64 {
	switch {
	case forceA && !forceB:
		return a
	case forceB && !forceA:
		return b
	case a == nil:
		a, b = b, a
	}
	if a == nil || (b == nil && own <= *a) {
		return nil
	}
	if b == nil {
		return a
	}
	return new(min(*a, *b))
}

// grace returns the grace period to ask for. Options that are absent or negative leave the pod its own; zero becomes
// one second, since the API server deletes at once with zero (E23).
func (s *settling) grace(seconds *int64) *int64 {
	if seconds == nil || *seconds < 0 {
		return nil
	}
	return new(min(max(1, *seconds), s.rules.MaxGracePeriodSeconds))
}

func reasonFor(scope string, t *Threshold) string {
	relation := "above"
	if t.LessThan {
		relation = "below"
	}
	return fmt.Sprintf("scope %s: %s is %s the threshold %s", scope, amount(t.Observed), relation, amount(t.Target))
}

func amount(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "unknown"
	}
	return strconv.FormatFloat(f, 'g', 6, 64)
}

// bounded is the beginning of a text, one line of valid UTF-8.
func bounded(text string, limit int) string {
	text = strings.ToValidUTF8(text, "�")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

// boundedScope is the scope, unless it is longer than a scope may be or no text.
func boundedScope(scope string) string {
	if len(scope) <= maxScope && utf8.ValidString(scope) {
		return scope
	}
	return bounded(scope, maxScope)
}
