package answers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const grace = 30 * time.Second

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// answer returns contents whose only value is a text.
func answer(text string) []merge.Content {
	return []merge.Content{{
		Kind:   schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		Fields: []merge.ReportField{{Part: merge.Metadata, Name: "Labels", Value: []byte(text)}},
	}}
}

// text returns the reports as plugin=value.
func text(reports []merge.Report) string {
	list := make([]string, len(reports))
	for i, r := range reports {
		list[i] = r.Plugin + "=" + textOf(r.Contents)
	}
	return strings.Join(list, " ")
}

func textOf(contents []merge.Content) string {
	if len(contents) == 0 {
		return ""
	}
	return string(contents[0].Fields[0].Value)
}

// scene is a store and the time.
type scene struct {
	Store
	t   *testing.T
	now time.Time
}

func newScene(t *testing.T) *scene { return &scene{t: t, now: start} }

// active registers plugins, given as name@socket.
func (s *scene) active(endpoints ...string) (begun, ended []Run) {
	list := make([]Registration, len(endpoints))
	for i, e := range endpoints {
		name, socket, _ := strings.Cut(e, "@")
		list[i].Key = Key{Plugin: name, Socket: socket}
	}
	return s.Register(list, s.now)
}

// run registers one plugin and returns its run.
func (s *scene) run(endpoint string) Run {
	s.t.Helper()
	begun, _ := s.active(endpoint)
	if len(begun) != 1 {
		s.t.Fatalf("got the runs %v, want one", begun)
	}
	return begun[0]
}

// pass advances the time and removes what is due.
func (s *scene) pass(d time.Duration) {
	s.now = s.now.Add(d)
	s.Expire(s.now, grace)
}

func (s *scene) expect(want string) {
	s.t.Helper()
	if got := text(s.Reports()); got != want {
		s.t.Errorf("after %v: got %q, want %q", s.now.Sub(start), got, want)
	}
}

// R5: a poll that began before a message came does not replace it, whatever comes in between.
func TestR5PollBegunBeforeAMessage(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	poll := s.BeginPoll(run)
	s.Message(run, answer("message"), s.now)
	s.Polled(poll, answer("old poll"), s.now)
	s.expect("p=message")
	s.Polled(s.BeginPoll(run), answer("poll"), s.now)
	s.expect("p=poll")
	poll = s.BeginPoll(run)
	s.Refused(run, Stream, "too large", s.now)
	s.Polled(poll, answer("next poll"), s.now)
	s.expect("p=next poll")
}

// R2: the answer of a stopped plugin is served for the grace period, and not longer.
func TestR2StoppedPlugin(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Polled(s.BeginPoll(run), answer("a"), s.now)
	s.pass(time.Hour)
	s.expect("p=a")
	s.active()
	s.pass(grace - 1)
	s.expect("p=a")
	if next := s.NextExpiry(grace); !next.Equal(s.now.Add(1)) {
		s.t.Errorf("the next expiry is %v", next)
	}
	s.pass(1)
	s.expect("")
	if n := len(s.Endpoints()); n != 0 {
		t.Errorf("%d endpoints are left", n)
	}
}

// R2: the same holds for a plugin that is registered and does not respond any more.
func TestR2DeadPlugin(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Message(run, answer("a"), s.now)
	s.StreamEnded(run)
	s.pass(time.Second)
	for range 6 {
		s.PollFailed(s.BeginPoll(run), s.now)
		s.expect("p=a")
		s.pass(5 * time.Second)
	}
	s.expect("")
	s.Message(run, answer("b"), s.now)
	s.expect("p=b")
}

// Three failures remove an answer at the earliest, even without a grace period; a success sets the count back.
func TestFailuresBeforeAnAnswerIsRemoved(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Polled(s.BeginPoll(run), answer("a"), s.now)
	for i, served := range []string{"p=a", "p=a", "ok", "p=a", "p=a", ""} {
		if served == "ok" {
			s.Polled(s.BeginPoll(run), answer("a"), s.now)
			continue
		}
		s.PollFailed(s.BeginPoll(run), s.now)
		s.Expire(s.now, 0)
		if got := text(s.Reports()); got != served {
			t.Errorf("step %d: got %q, want %q", i, got, served)
		}
	}
}

// R7: an endpoint is stopped once, whatever happens afterwards; its grace period does not begin anew.
func TestR7StoppedOnce(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Polled(s.BeginPoll(run), answer("a"), s.now)
	poll := s.BeginPoll(run)
	if _, ended := s.active(); !slices.Equal(ended, []Run{run}) {
		t.Errorf("got %v", ended)
	}
	s.pass(grace / 2)
	if _, ended := s.active(); len(ended) != 0 {
		t.Errorf("stopped again: %v", ended)
	}
	s.Message(run, answer("late"), s.now)
	s.Polled(poll, answer("late"), s.now)
	s.NotPolled(poll, s.now)
	s.PollFailed(poll, s.now)
	s.StreamEnded(run)
	if s.Refused(run, Poll, "late", s.now) {
		t.Error("a refusal after the stop is reported")
	}
	s.expect("p=a")
	s.pass(grace / 2)
	s.expect("")
}

// R7: the same name at another socket takes over. The last answer is served until the new endpoint has one.
func TestR7TakenOver(t *testing.T) {
	s := newScene(t)
	old := s.run("p@1")
	s.Polled(s.BeginPoll(old), answer("old"), s.now)
	begun, ended := s.active("p@2")
	if len(begun) != 1 || !slices.Equal(ended, []Run{old}) {
		t.Fatalf("got %v, %v", begun, ended)
	}
	s.expect("p=old")
	s.Message(begun[0], answer("new"), s.now)
	s.expect("p=new")
	s.Message(old, answer("late"), s.now)
	s.pass(grace)
	s.expect("p=new")
	if n := len(s.Endpoints()); n != 1 {
		t.Errorf("got %d endpoints", n)
	}
}

// The last answer counts when an endpoint becomes active again that has an older one.
func TestLastAnswerIsServed(t *testing.T) {
	s := newScene(t)
	first := s.run("p@1")
	s.Polled(s.BeginPoll(first), answer("first"), s.now)
	s.run("p@2")
	again := s.run("p@1")
	s.expect("p=first")
	second := s.run("p@2")
	s.Polled(s.BeginPoll(second), answer("second"), s.now)
	s.run("p@1")
	s.expect("p=second")
	s.Polled(s.BeginPoll(again), answer("late"), s.now)
	s.expect("p=second")
}

// A process that registers again at the same socket is another run.
func TestRegisteredAnew(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Polled(s.BeginPoll(run), answer("a"), s.now)
	list := []Registration{{Key: run.Key, Registered: s.now.Add(1)}}
	begun, ended := s.Register(list, s.now)
	if len(begun) != 1 || begun[0] == run || !slices.Equal(ended, []Run{run}) {
		t.Fatalf("got %v, %v", begun, ended)
	}
	s.expect("p=a")
	if begun, ended := s.Register(list, s.now); len(begun)+len(ended) != 0 {
		t.Errorf("the same registration: got %v, %v", begun, ended)
	}
	s.Polled(s.BeginPoll(begun[0]), answer("b"), s.now)
	s.pass(grace)
	s.expect("p=b")
}

// The answer of a plugin that implements the stream only is confirmed while its stream has sent it; that of a plugin
// that returns errors, or whose stream has ended, is not.
func TestStreamConfirms(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(s *scene, run Run)
		want string
	}{
		{"stream", func(*scene, Run) {}, "p=a"},
		{"ended", func(s *scene, run Run) { s.StreamEnded(run) }, ""},
		{"refused", func(s *scene, run Run) { s.Refused(run, Stream, "too large", s.now) }, ""},
		{"polled", func(s *scene, run Run) { s.StreamEnded(run); s.Polled(s.BeginPoll(run), answer("b"), s.now) }, ""},
	} {
		s := newScene(t)
		run := s.run("p@1")
		s.Message(run, answer("a"), s.now)
		tc.do(s, run)
		for range 7 {
			s.NotPolled(s.BeginPoll(run), s.now)
			s.pass(5 * time.Second)
		}
		if got := text(s.Reports()); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A refused answer leaves the last good one for the grace period. The same reason is reported once.
func TestRefused(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	s.Polled(s.BeginPoll(run), answer("a"), s.now)
	var first []bool
	for _, reason := range []string{"x", "x", "y"} {
		first = append(first, s.Refused(run, Poll, reason, s.now))
	}
	first = append(first, s.Refused(run, Stream, "y", s.now))
	if want := []bool{true, false, true, true}; !slices.Equal(first, want) {
		t.Errorf("got %v, want %v", first, want)
	}
	s.pass(grace - 1)
	s.expect("p=a")
	s.pass(1)
	s.expect("")
	s.Polled(s.BeginPoll(run), answer("b"), s.now)
	s.expect("p=b")
	if !s.Refused(run, Poll, "y", s.now) || s.Refused(run, Stream, "y", s.now) {
		t.Error("a good answer of a source must end the refusal of this source, and of no other")
	}
}

// The version changes with the content of the reports, and only then. An empty answer is an answer.
func TestVersion(t *testing.T) {
	s := newScene(t)
	run := s.run("p@1")
	var versions []uint64
	for _, contents := range [][]merge.Content{nil, {}, answer("a"), answer("a"), answer("b"), nil} {
		s.Message(run, contents, s.now)
		versions = append(versions, s.Version())
	}
	s.active()
	s.pass(grace)
	if versions = append(versions, s.Version()); !slices.Equal(versions, []uint64{1, 1, 2, 2, 3, 4, 5}) {
		t.Errorf("got %v", versions)
	}
}

// Answers of stopped endpoints are bounded: the last ones stay.
func TestStoppedEndpointsAreBounded(t *testing.T) {
	s := newScene(t)
	for i := range 2 * MaxStopped {
		run := s.run(fmt.Sprintf("p%03d@1", i))
		s.Polled(s.BeginPoll(run), answer("a"), s.now)
	}
	s.active()
	list := s.Endpoints()
	if len(list) != MaxStopped || list[0].Plugin != fmt.Sprintf("p%03d", MaxStopped) {
		t.Errorf("got %d endpoints from %s", len(list), list[0].Plugin)
	}
}
