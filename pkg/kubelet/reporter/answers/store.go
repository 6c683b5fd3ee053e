package answers

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// MaxStopped is how many stopped endpoints have an answer that is served. Processes may register under any number of
	// names, each for a short time.
	MaxStopped = 32
	// minFailures is how many polls of an active endpoint have failed in a row at least when its answer is removed.
	minFailures = 3
)

// Key identifies an endpoint. The socket is empty for a plugin in the agent.
type Key struct{ Plugin, Socket string }

// Registration is an endpoint that is to be active. One that has registered at another time is another process.
type Registration struct {
	Key
	Registered time.Time
}

// Run is the time during which an endpoint is active without interruption. Numbers start from one and are not used
// again.
type Run struct {
	Key
	Number uint64
}

// Source is where an answer comes from.
type Source int

const (
	Poll Source = iota
	Stream
)

// Endpoint is the state of an endpoint. Times are the zero time if there is none.
type Endpoint struct {
	Run
	Registered time.Time
	// Active is false for an endpoint that is stopped.
	Active bool
	// Contents are the last answer, which is never modified. There is one if Received is not zero.
	Contents []merge.Content
	Received time.Time
	// Lost is when the grace period of the answer began. It is zero while the plugin confirms the answer.
	Lost time.Time
	// Streaming is true if the present stream has sent an answer.
	Streaming bool
	// Restored is true if the answer is from a checkpoint.
	Restored bool
	// Failures is how many polls, and answers that were refused, there are since the answer was last confirmed.
	Failures int
	// Refusals are why the last answers were refused, by source; empty if they were not.
	Refusals [2]string

	// order is the number of the answer, among those of all endpoints.
	order uint64
	// messages is how many messages of the run were answers.
	messages uint64
}

// Store has the endpoints and their answers. Its zero value is empty. It is for one goroutine at a time.
type Store struct {
	// endpoints are in the order of names and sockets.
	endpoints []*Endpoint
	runs      uint64
	answers   uint64
	version   uint64
	revision  uint64
}

// BegunPoll is a poll that is under way.
type BegunPoll struct {
	run      Run
	messages uint64
}

// Version is a number that is greater after each change of the result of Reports.
func (s *Store) Version() uint64 { return s.version }

// Revision is a number that is greater after each change of what Answers returns, except of the times of answers.
func (s *Store) Revision() uint64 { return s.revision }

// Reports returns the answers that are served, at most one of each plugin, in the order of names.
func (s *Store) Reports() (reports []merge.Report) {
	for i, e := range s.endpoints {
		if i > 0 && s.endpoints[i-1].Plugin == e.Plugin {
			continue
		}
		if served := s.served(e.Plugin); served != nil {
			reports = append(reports, merge.Report{Plugin: e.Plugin, Contents: served.Contents})
		}
	}
	return reports
}

// Endpoints returns the states of all endpoints, active or stopped, in the order of names and sockets.
func (s *Store) Endpoints() []Endpoint {
	list := make([]Endpoint, len(s.endpoints))
	for i, e := range s.endpoints {
		list[i] = *e
	}
	return list
}

// Register replaces the endpoints that are active. The names in the list differ. It returns the runs that have begun
// and those that have ended.
func (s *Store) Register(list []Registration, now time.Time) (begun, ended []Run) {
	for _, e := range slices.Clone(s.endpoints) {
		if e.Active && !slices.ContainsFunc(list, e.is) {
			s.stop(e, now)
			ended = append(ended, e.Run)
		}
	}
	for _, r := range list {
		if e := s.find(r.Key); e == nil || !e.Active {
			begun = append(begun, s.start(r))
		}
	}
	s.boundStopped()
	return begun, ended
}

// BeginPoll must be called before a poll begins.
func (s *Store) BeginPoll(run Run) BegunPoll {
	begun := BegunPoll{run: run}
	if e := s.active(run); e != nil {
		begun.messages = e.messages
	}
	return begun
}

// Polled records the answer to a poll, which must have passed merge.Validate.
func (s *Store) Polled(poll BegunPoll, contents []merge.Content, now time.Time) {
	e := s.active(poll.run)
	if e == nil {
		return
	}
	s.confirm(e)
	e.Refusals[Poll] = ""
	if e.messages == poll.messages {
		s.replace(e, contents, now)
	}
}

// NotPolled records a poll that did not return an answer although the plugin responds: it does not implement the call,
// or has returned an error.
func (s *Store) NotPolled(poll BegunPoll, now time.Time) {
	e := s.active(poll.run)
	if e == nil {
		return
	}
	if e.streams() {
		s.confirm(e)
		return
	}
	s.fail(e, now)
}

// PollFailed records a poll to which the plugin has not responded.
func (s *Store) PollFailed(poll BegunPoll, now time.Time) {
	if e := s.active(poll.run); e != nil {
		s.fail(e, now)
	}
}

// PollSuspended records a poll that was not made because earlier ones have failed. While a stream is open nothing
// changes. Without one the grace period of the answer begins: the plugin may hang.
func (s *Store) PollSuspended(poll BegunPoll, now time.Time) {
	if e := s.active(poll.run); e != nil && !e.streams() {
		s.fail(e, now)
	}
}

// Message records a message of the stream, which must have passed merge.Validate.
func (s *Store) Message(run Run, contents []merge.Content, now time.Time) {
	e := s.active(run)
	if e == nil {
		return
	}
	e.messages++
	e.Streaming = true
	s.confirm(e)
	e.Refusals[Stream] = ""
	s.replace(e, contents, now)
}

// StreamEnded records the end of the stream.
func (s *Store) StreamEnded(run Run) {
	if e := s.active(run); e != nil {
		e.Streaming = false
	}
}

// Refused records an answer that has not passed merge.Validate. It returns whether the one before from this source was
// not refused for the same reason.
func (s *Store) Refused(run Run, source Source, reason string, now time.Time) (first bool) {
	e := s.active(run)
	if e == nil {
		return false
	}
	s.fail(e, now)
	first = e.Refusals[source] != reason
	e.Refusals[source] = reason
	return first
}

// Expire removes the answers whose grace period is over. It returns the endpoints that had them.
func (s *Store) Expire(now time.Time, grace time.Duration) (expired []Endpoint) {
	for _, e := range slices.Clone(s.endpoints) {
		if !e.mayExpire() || now.Sub(e.Lost) < grace {
			continue
		}
		expired = append(expired, *e)
		s.change(e.Plugin, func() {
			e.Contents, e.Received, e.Lost, e.Restored, e.order = nil, time.Time{}, time.Time{}, false, 0
			s.tidy(e)
		})
	}
	return expired
}

// NextExpiry returns when Expire removes an answer, unless something happens before; zero for never.
func (s *Store) NextExpiry(grace time.Duration) (next time.Time) {
	for _, e := range s.endpoints {
		if at := e.Lost.Add(grace); e.mayExpire() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// is returns whether the registration is that of the endpoint.
func (e *Endpoint) is(r Registration) bool { return r.Key == e.Key && r.Registered.Equal(e.Registered) }

// streams returns whether the stream is open and its last message was an answer.
func (e *Endpoint) streams() bool { return e.Streaming && e.Refusals[Stream] == "" }

func (e *Endpoint) answered() bool { return !e.Received.IsZero() }

func (e *Endpoint) mayExpire() bool {
	return e.answered() && !e.Lost.IsZero() && (!e.Active || e.Failures >= minFailures)
}

func (s *Store) confirm(e *Endpoint) {
	if !e.Lost.IsZero() {
		s.revision++
	}
	e.Failures, e.Lost = 0, time.Time{}
}

func (s *Store) fail(e *Endpoint, now time.Time) {
	e.Failures++
	s.lose(e, now)
}

func (s *Store) lose(e *Endpoint, now time.Time) {
	if e.answered() && e.Lost.IsZero() {
		e.Lost = now
		s.revision++
	}
}

func (s *Store) start(r Registration) Run {
	e := s.find(r.Key)
	if e == nil {
		e = s.add(r.Key)
	}
	s.runs++
	e.Number, e.Registered, e.Active = s.runs, r.Registered, true
	return e.Run
}

// add adds an endpoint, which must not be there.
func (s *Store) add(k Key) *Endpoint {
	e := &Endpoint{Run: Run{Key: k}}
	i, _ := slices.BinarySearchFunc(s.endpoints, k, func(e *Endpoint, k Key) int { return compare(e.Key, k) })
	s.endpoints = slices.Insert(s.endpoints, i, e)
	return e
}

func (s *Store) stop(e *Endpoint, now time.Time) {
	e.Active, e.Streaming, e.Failures, e.messages, e.Refusals = false, false, 0, 0, [2]string{}
	s.lose(e, now)
	s.tidy(e)
}

// tidy removes an endpoint that is neither active nor has an answer.
func (s *Store) tidy(e *Endpoint) {
	if !e.Active && !e.answered() {
		s.endpoints = slices.DeleteFunc(s.endpoints, func(o *Endpoint) bool { return o == e })
	}
}

// boundStopped removes the oldest answers of stopped endpoints beyond MaxStopped. Those of a checkpoint do not count:
// their plugins may be about to return.
func (s *Store) boundStopped() {
	var stopped []*Endpoint
	for _, e := range s.endpoints {
		if !e.Active && !e.Restored {
			stopped = append(stopped, e)
		}
	}
	slices.SortFunc(stopped, func(a, b *Endpoint) int { return cmp.Compare(b.order, a.order) })
	for _, e := range stopped[min(len(stopped), MaxStopped):] {
		s.remove(e)
	}
}

func (s *Store) remove(e *Endpoint) {
	s.change(e.Plugin, func() {
		s.endpoints = slices.DeleteFunc(s.endpoints, func(o *Endpoint) bool { return o == e })
	})
}

// replace sets the answer of an active endpoint, which replaces those of stopped endpoints of the same name.
func (s *Store) replace(e *Endpoint, contents []merge.Content, now time.Time) {
	s.change(e.Plugin, func() {
		s.answers++
		e.Contents, e.Received, e.Restored, e.order = contents, now, false, s.answers
		s.endpoints = slices.DeleteFunc(s.endpoints, func(o *Endpoint) bool { return o.Plugin == e.Plugin && !o.Active })
	})
}

// change makes a change to the endpoints of a plugin.
func (s *Store) change(plugin string, do func()) {
	var before, after Endpoint
	if e := s.served(plugin); e != nil {
		before = *e
	}
	do()
	if e := s.served(plugin); e != nil {
		after = *e
	}
	if before.Key != after.Key {
		s.revision++
	}
	if before.answered() != after.answered() || !slices.EqualFunc(before.Contents, after.Contents, equal) {
		s.version++
		s.revision++
	}
}

// served returns the endpoint that has the answer of the plugin, nil if there is none. There is one at most: an answer
// of the active endpoint replaces those of all others.
func (s *Store) served(plugin string) *Endpoint {
	for _, e := range s.endpoints {
		if e.Plugin == plugin && e.answered() {
			return e
		}
	}
	return nil
}

func (s *Store) find(k Key) *Endpoint {
	i, found := slices.BinarySearchFunc(s.endpoints, k, func(e *Endpoint, k Key) int { return compare(e.Key, k) })
	if !found {
		return nil
	}
	return s.endpoints[i]
}

// active returns the endpoint of a run that has not ended, else nil.
func (s *Store) active(run Run) *Endpoint {
	if e := s.find(run.Key); e != nil && e.Active && e.Run == run {
		return e
	}
	return nil
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Socket, b.Socket))
}

func equal(a, b merge.Content) bool {
	return a.Kind == b.Kind && slices.EqualFunc(a.Fields, b.Fields, func(a, b merge.ReportField) bool {
		return a.Part == b.Part && a.Name == b.Name && bytes.Equal(a.Value, b.Value)
	})
}
