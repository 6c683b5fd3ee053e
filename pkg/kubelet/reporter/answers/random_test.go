package answers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// event is something that happens to a plugin, in the history of a store.
type event struct {
	what what
	at   time.Time
	run  Run
	// value is the text of an answer; begun is, for the end of a poll, the index of its begin.
	value string
	begun int
}

type what int

const (
	began what = iota
	stopped
	message
	messageRefused
	streamEnded
	pollBegun
	polled
	pollRefused
	notPolled
	pollFailed
	pollSuspended
	expire
	restored
)

// history is everything that has happened. What is served follows from it by search, without a state.
type history []event

// live returns whether the run of an event had not ended at that time.
func (h history) live(i int) bool {
	for j := i; j >= 0; j-- {
		if h[j].run == h[i].run && (h[j].what == began || h[j].what == stopped) {
			return h[j].what == began
		}
	}
	return false
}

// accepted returns whether the event is an answer that replaces the one before.
func (h history) accepted(i int) bool {
	switch e := h[i]; {
	case e.what == restored:
		return true
	case !h.live(i):
		return false
	case e.what == message:
		return true
	case e.what == polled:
		return !slices.ContainsFunc(h[e.begun:i], func(o event) bool { return o.what == message && o.run == e.run })
	}
	return false
}

// confirms returns whether the event shows that the last answer is valid still.
func (h history) confirms(i int) bool {
	e := h[i]
	return h.live(i) && (e.what == message || e.what == polled || e.what == notPolled && h.streams(i))
}

// streams returns whether the stream of the run was open at that time, and its last message was an answer.
func (h history) streams(i int) bool {
	for j := i - 1; j >= 0; j-- {
		if h[j].run == h[i].run && slices.Contains([]what{message, messageRefused, streamEnded}, h[j].what) {
			return h[j].what == message
		}
	}
	return false
}

func (h history) fails(i int) bool {
	return h.live(i) && (h[i].what == pollFailed || h[i].what == pollRefused || h[i].what == messageRefused ||
		(h[i].what == notPolled || h[i].what == pollSuspended) && !h.streams(i))
}

// expires returns whether the answer i is removed by the expiry j.
func (h history) expires(i, j int) bool {
	key, lost, failures, active := h[i].run.Key, time.Time{}, 0, true
	for k := i; k < j; k++ {
		switch e := h[k]; {
		case e.run.Key != key:
		case e.what == restored:
			active, lost = false, e.at
		case e.what == began || e.what == stopped:
			active, failures = e.what == began, 0
			if !active && lost.IsZero() {
				lost = e.at
			}
		case h.confirms(k):
			lost, failures = time.Time{}, 0
		case h.fails(k):
			failures++
			if lost.IsZero() {
				lost = e.at
			}
		}
	}
	return !lost.IsZero() && h[j].at.Sub(lost) >= grace && (!active || failures >= 3)
}

// served returns the answer of a plugin, and whether it has one.
func (h history) served(plugin string) (string, bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].run.Plugin != plugin || !h.accepted(i) {
			continue
		}
		for j := i + 1; j < len(h); j++ {
			if h[j].what == expire && h.expires(i, j) {
				return "", false
			}
		}
		return h[i].value, true
	}
	return "", false
}

// Whatever happens in whatever order, a store serves what the search of the history finds.
func TestRandomHistories(t *testing.T) {
	for range 10 {
		rapid.Check(t, randomHistory)
	}
}

func randomHistory(t *rapid.T) {
	r := &random{t: t, now: start, active: map[string]Registration{}}
	r.restore()
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		version, before := r.store.Version(), text(r.store.Reports())
		r.step()
		after := text(r.store.Reports())
		if want := text(r.want()); after != want {
			t.Fatalf("got %q, want %q", after, want)
		}
		if (before != after) != (version != r.store.Version()) {
			t.Fatalf("the version is %d after %d, reports %q after %q", r.store.Version(), version, after, before)
		}
		r.checkEndpoints()
	}
}

// random is a store and its history.
type random struct {
	t       *rapid.T
	store   Store
	history history
	now     time.Time
	active  map[string]Registration
	runs    []Run
	polls   []BegunPoll
	begun   []int
}

var plugins = []string{"a", "b"}

// restore begins with the answers of a checkpoint, of any of the plugins.
func (r *random) restore() {
	var list []Answer
	for _, name := range plugins {
		key := Key{Plugin: name, Socket: fmt.Sprint(rapid.IntRange(0, 3).Draw(r.t, "restored"))}
		if key.Socket == "3" {
			continue
		}
		value := fmt.Sprint(rapid.IntRange(0, 9).Draw(r.t, "value"))
		list = append(list, Answer{Key: key, Contents: answer(value), Received: start, Confirmed: start})
		r.history = append(r.history, event{what: restored, at: r.now, run: Run{Key: key}, value: value})
	}
	if leftOut := r.store.Restore(list, r.now); leftOut > 0 {
		r.t.Fatalf("%d answers are left out", leftOut)
	}
}

func (r *random) step() {
	if len(r.runs) == 0 || rapid.IntRange(0, 5).Draw(r.t, "registers") == 0 {
		r.register()
		return
	}
	e := event{at: r.now, run: r.runs[r.last(len(r.runs), "run")]}
	e.value = fmt.Sprint(rapid.IntRange(0, 9).Draw(r.t, "value"))
	e.what = what(rapid.IntRange(int(message), int(expire)).Draw(r.t, "what"))
	switch e.what {
	case message:
		r.store.Message(e.run, answer(e.value), r.now)
	case messageRefused:
		r.store.Refused(e.run, Stream, e.value, r.now)
	case streamEnded:
		r.store.StreamEnded(e.run)
	case pollBegun:
		r.polls, r.begun = append(r.polls, r.store.BeginPoll(e.run)), append(r.begun, len(r.history))
	case polled, pollRefused, notPolled, pollFailed, pollSuspended:
		if len(r.polls) == 0 {
			return
		}
		i := r.last(len(r.polls), "poll")
		e.run, e.begun = r.polls[i].run, r.begun[i]
		r.endPoll(e, r.polls[i])
	case expire:
		r.now = r.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(r.t, "seconds")) * time.Second)
		e.at = r.now
		next := r.store.NextExpiry(grace)
		due := !next.IsZero() && !next.After(r.now)
		if expired := r.store.Expire(r.now, grace); (len(expired) > 0) != due {
			r.t.Fatalf("the next expiry was %v, now it is %v", next, r.now)
		}
	}
	r.history = append(r.history, e)
}

// last draws an index, more often one of the last ones.
func (r *random) last(n int, what string) int {
	return n - 1 - rapid.IntRange(0, min(n, 4)-1).Draw(r.t, what)
}

func (r *random) endPoll(e event, poll BegunPoll) {
	switch e.what {
	case polled:
		r.store.Polled(poll, answer(e.value), r.now)
	case pollRefused:
		r.store.Refused(poll.run, Poll, e.value, r.now)
	case notPolled:
		r.store.NotPolled(poll, r.now)
	case pollSuspended:
		r.store.PollSuspended(poll, r.now)
	default:
		r.store.PollFailed(poll, r.now)
	}
}

func (r *random) register() {
	for _, name := range plugins {
		socket := rapid.IntRange(0, 3).Draw(r.t, "socket")
		if socket == 3 {
			delete(r.active, name)
			continue
		}
		key := Key{Plugin: name, Socket: fmt.Sprint(socket)}
		if r.active[name].Key != key || rapid.Bool().Draw(r.t, "anew") {
			r.active[name] = Registration{Key: key, Registered: start.Add(time.Duration(len(r.history)))}
		}
	}
	var list []Registration
	for _, name := range plugins {
		if registration, is := r.active[name]; is {
			list = append(list, registration)
		}
	}
	begun, ended := r.store.Register(list, r.now)
	for _, run := range ended {
		r.history = append(r.history, event{what: stopped, at: r.now, run: run})
	}
	for _, run := range begun {
		r.history = append(r.history, event{what: began, at: r.now, run: run})
	}
	r.runs = append(r.runs, begun...)
}

func (r *random) want() (reports []merge.Report) {
	for _, plugin := range plugins {
		if value, is := r.history.served(plugin); is {
			reports = append(reports, merge.Report{Plugin: plugin, Contents: answer(value)})
		}
	}
	return reports
}

// checkEndpoints fails the test unless each plugin has one answer and one active endpoint at most, the registered one.
func (r *random) checkEndpoints() {
	answered, active := map[string]int{}, map[string]int{}
	for _, e := range r.store.Endpoints() {
		if e.answered() {
			answered[e.Plugin]++
		}
		if e.Active {
			active[e.Plugin]++
			if !e.is(r.active[e.Plugin]) {
				r.t.Fatalf("%v is active, registered is %v", e.Run, r.active[e.Plugin])
			}
		}
		if !e.Active && !e.answered() {
			r.t.Fatalf("%v is kept without a reason", e.Run)
		}
	}
	for _, plugin := range plugins {
		if answered[plugin] > 1 || active[plugin] > 1 {
			r.t.Fatalf("%s has %d answers and %d active endpoints", plugin, answered[plugin], active[plugin])
		}
	}
	if len(active) != len(r.active) {
		r.t.Fatalf("%d plugins are active, %d registered", len(active), len(r.active))
	}
}
