package answers

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// MaxRestored is how many answers Restore takes at most: those of 32 plugins that are registered, of plugins in the
	// agent, and of MaxStopped endpoints.
	MaxRestored = 128
	// MaxAge is how old an answer is at most that Restore takes.
	MaxAge = time.Hour
)

// Answer is an answer that is served, as a checkpoint has it. Its contents must not be modified.
type Answer struct {
	Key
	Contents []merge.Content
	// Received is when the plugin gave the answer.
	Received time.Time
	// Confirmed is when the answer was last known to be served.
	Confirmed time.Time
	// Lost is when the grace period of the answer began, zero if it has not.
	Lost time.Time
}

// Answers returns the answers that are served, with now as the time at which they were confirmed, in the order of the
// names of their plugins.
func (s *Store) Answers(now time.Time) (list []Answer) {
	for _, e := range s.endpoints {
		if s.served(e.Plugin) == e {
			list = append(list, Answer{
				Key: e.Key, Contents: e.Contents, Received: e.Received, Confirmed: now, Lost: e.Lost,
			})
		}
	}
	return list
}

// Restore adds the answers of a checkpoint to a store without endpoints, as those of stopped endpoints: each is served
// until its plugin has given another one, or its grace period is over. A grace period that had not begun begins now;
// one that had begun continues. What was not confirmed for longer than MaxAge is left out, and so are further answers
// of the same plugin, invalid answers, and those beyond MaxRestored. It returns how many answers were left out.
func (s *Store) Restore(list []Answer, now time.Time) (leftOut int) {
	for _, a := range list {
		if now.Sub(a.Confirmed) > MaxAge || len(s.endpoints) >= MaxRestored || s.served(a.Plugin) != nil ||
			a.Plugin == "" || merge.Validate(a.Contents) != nil {
			leftOut++
			continue
		}
		s.change(a.Plugin, func() {
			e := s.add(a.Key)
			s.answers++
			e.Contents, e.Restored, e.order = a.Contents, true, s.answers
			e.Received, e.Lost = past(a.Received, now), past(a.Lost, now)
		})
	}
	return leftOut
}

// past returns a time of an earlier run of the agent, and now if there is none or if it has not come: the clock may
// have been set back. Like now, the result has a monotonic part, so that setting the clock later has no effect on it.
func past(t, now time.Time) time.Time {
	if t.IsZero() || t.After(now) {
		return now
	}
	return now.Add(t.Sub(now))
}

// Restored returns the plugins whose answers are of a checkpoint, in the order of names; nil if there are none.
func (s *Store) Restored() (names []string) {
	for _, e := range s.endpoints {
		if e.Restored && e.answered() && !slices.Contains(names, e.Plugin) {
			names = append(names, e.Plugin)
		}
	}
	return names
}
