package arbiter

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

func (k thresholdKey) compare(o thresholdKey) int {
	return cmp.Or(cmp.Compare(k.Plugin, o.Plugin), cmp.Compare(k.Scope, o.Scope), cmp.Compare(k.Kind, o.Kind))
}

// clocksAfter returns the clocks after these answers. A plugin answers about one threshold in a round, so that the
// others of its thresholds have ended. A missing answer stops the clock, unless it comes late, and ends it in the third
// round.
func (s *settling) clocksAfter(clocks []Clock) []Clock {
	var next []Clock
	for _, c := range clocks {
		if !s.active(c.Plugin) {
			continue
		}
		switch answer := s.answer(c.Plugin); {
		case answer == nil:
			next = append(next, c)
		case answer.Threshold == nil:
			if c.Missing == 0 {
				c.Missed = answer.Asked
			}
			if c.Missing++; c.Missing < missingRounds {
				next = append(next, c)
			}
		}
	}
	for i := range s.answers.Plugins {
		if c, ok := clockAfter(clocks, &s.answers.Plugins[i]); ok {
			next = append(next, c)
		}
	}
	slices.SortFunc(next, func(a, b Clock) int { return a.compare(b.thresholdKey) })
	return next
}

// clockAfter returns the clock of the threshold that the answer reports met, if it reports one.
func clockAfter(clocks []Clock, answer *Answer) (Clock, bool) {
	t := answer.Threshold
	if t == nil || (t.Kind != Soft && t.Kind != Hard) {
		return Clock{}, false
	}
	c := Clock{thresholdKey: thresholdKey{answer.Plugin, boundedScope(t.Scope), t.Kind}, Last: *t, At: answer.Asked}
	if before, ok := clockOf(clocks, c.thresholdKey); ok {
		c.Met = before.Met
		if before.Missing == 0 || !before.Missed.Before(answer.Asked) {
			c.Met += max(0, answer.Asked.Sub(before.At))
		}
	}
	c.Confirmed = c.Met >= t.Grace
	return c, true
}

func clockOf(clocks []Clock, key thresholdKey) (Clock, bool) {
	i := slices.IndexFunc(clocks, func(c Clock) bool { return c.thresholdKey == key })
	if i < 0 {
		return Clock{}, false
	}
	return clocks[i], true
}

// questions are what to ask the plugins that have answered and whose thresholds are confirmed. A plugin that is gone is
// not asked (E1).
func (s *settling) questions() (list []Question) {
	for i := range s.next.Clocks {
		c := &s.next.Clocks[i]
		if !c.Confirmed || c.Missing > 0 || s.answer(c.Plugin) == nil || (c.Kind == Hard && s.busy(c)) {
			continue
		}
		q := Question{Plugin: c.Plugin, Scope: c.Scope, Kind: c.Kind, Omitted: s.omitted(c.Kind)}
		if c.Kind == Hard {
			q.TopN = 1
		}
		for _, uid := range c.Last.Candidates {
			if _, omitted := slices.BinarySearch(q.Omitted, uid); omitted {
				continue
			}
			if excluded(s.pods[uid]) == NotExcluded && !slices.Contains(q.Candidates, uid) {
				q.Candidates = append(q.Candidates, uid)
			}
		}
		if len(c.Last.Candidates) > 0 && len(q.Candidates) == 0 {
			continue
		}
		list = append(list, q)
	}
	return list
}

// omitted are the pods that a plugin need not name for a threshold.
func (s *settling) omitted(kind Kind) (uids []types.UID) {
	for uid, pod := range s.pods {
		if pod.InFlight || (kind == Hard && s.blocked(pod)) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// excluded reports why no plugin may name the pod, which is nil when this node has none of that UID.
func excluded(pod *Pod) Exclusion {
	if pod == nil {
		return Unknown
	}
	return pod.Excluded
}

// busy reports whether the victim of a hard threshold has not been released, and is neither overdue nor blocked.
func (s *settling) busy(c *Clock) bool {
	i := slices.IndexFunc(s.next.Forced, func(f ForcedVictim) bool { return f.Plugin == c.Plugin && f.Scope == c.Scope })
	if i < 0 {
		return false
	}
	pod, ok := s.pods[s.next.Forced[i].UID]
	return ok && !pod.Overdue && !s.blocked(pod)
}
