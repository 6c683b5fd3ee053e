package answers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

func restorable(plugin, socket, value string) Answer {
	return Answer{
		Key: Key{Plugin: plugin, Socket: socket}, Contents: answer(value), Received: start.Add(-time.Hour), Confirmed: start,
	}
}

// A restored answer is served until its plugin has given another one, at whatever socket, or the grace period is over.
func TestRestore(t *testing.T) {
	s := newScene(t)
	leftOut := s.Restore([]Answer{
		restorable("a", "/1", "old"), restorable("b", "/1", "old"), restorable("c", "", "old"), restorable("d", "/1", "old"),
	}, s.now)
	if leftOut != 0 || s.Version() == 0 {
		t.Errorf("%d are left out, the version is %d", leftOut, s.Version())
	}
	s.expect("a=old b=old c=old d=old")
	s.pass(grace / 2)
	begun, _ := s.active("a@/1", "b@/2", "c@")
	s.expect("a=old b=old c=old d=old")
	s.Message(begun[0], answer("new"), s.now)
	s.Message(begun[1], answer("new"), s.now)
	s.expect("a=new b=new c=old d=old")
	s.pass(grace/2 - 1)
	s.expect("a=new b=new c=old d=old")
	s.pass(1) // c is active: its answer is removed only after three polls have failed
	s.expect("a=new b=new c=old")
	for range minFailures {
		s.PollFailed(s.BeginPoll(begun[2]), s.now)
	}
	s.pass(0)
	s.expect("a=new b=new")
	for _, e := range s.Endpoints() {
		if e.Restored {
			t.Errorf("%+v", e)
		}
	}
}

// A plugin that returns and confirms nothing new has its old answer until its first own one.
func TestRestoredAnswerOfAPluginThatIsBack(t *testing.T) {
	s := newScene(t)
	s.Restore([]Answer{restorable("a", "/1", "old")}, s.now)
	if e := s.Endpoints()[0]; !e.Restored || e.Active || !e.Lost.Equal(start) || !e.Received.Equal(start.Add(-time.Hour)) {
		t.Errorf("%+v", e)
	}
	version := s.Version()
	run := s.run("a@/1")
	s.Polled(s.BeginPoll(run), answer("old"), s.now)
	if e := s.Endpoints()[0]; e.Restored || !e.Lost.IsZero() || s.Version() != version {
		t.Errorf("%+v, the version is %d after %d", e, s.Version(), version)
	}
	s.pass(time.Hour)
	s.expect("a=old")
}

// A grace period that had begun before the restart does not begin again. Times of a clock that was set back count as
// the present.
func TestRestoredGracePeriodContinues(t *testing.T) {
	s := newScene(t)
	lost, future := restorable("a", "/1", "a"), restorable("b", "/1", "b")
	lost.Lost = start.Add(-grace + time.Second)
	future.Lost, future.Received, future.Confirmed = start.Add(time.Hour), start.Add(time.Hour), start.Add(time.Hour)
	s.Restore([]Answer{lost, future}, s.now)
	if e := s.Endpoints()[1]; !e.Received.Equal(start) || !e.Lost.Equal(start) {
		t.Errorf("%+v", e)
	}
	s.pass(time.Second - 1)
	s.expect("a=a b=b")
	s.pass(1)
	s.expect("b=b")
	s.pass(grace - time.Second)
	s.expect("")
}

// From the restart on, a grace period that continues is measured by the monotonic clock: the wall clock may be set
// while answers are served.
func TestRestoredTimesAreMonotonic(t *testing.T) {
	s, now := &Store{}, time.Now()
	lost := restorable("a", "/1", "a")
	lost.Received, lost.Confirmed, lost.Lost = now.Add(-time.Minute).Round(0), now, now.Add(-time.Second).Round(0)
	s.Restore([]Answer{lost}, now)
	e := s.Endpoints()[0]
	for _, at := range []struct{ got, want time.Time }{{e.Received, lost.Received}, {e.Lost, lost.Lost}} {
		if !at.got.Equal(at.want) || !at.got.Round(0).Equal(at.want) || !strings.Contains(at.got.String(), " m=") {
			t.Errorf("%v, want %v with a monotonic part", at.got, at.want)
		}
	}
}

// Answers that nobody can have confirmed for longer than an hour, and what a store cannot have, are left out.
func TestRestoreLeavesOut(t *testing.T) {
	s := newScene(t)
	old, limit := restorable("a", "/1", "a"), restorable("b", "/1", "b")
	old.Confirmed, limit.Confirmed = start.Add(-MaxAge-1), start.Add(-MaxAge)
	large := restorable("large", "/1", strings.Repeat("x", merge.MaxAnswerBytes))
	list := []Answer{old, limit, restorable("b", "/2", "other"), large, restorable("", "/1", "x")}
	if leftOut := s.Restore(list, s.now); leftOut != 4 {
		t.Errorf("%d are left out, want 4", leftOut)
	}
	s.expect("b=b")

	s = newScene(t)
	list = nil
	for i := range MaxRestored + 2 {
		list = append(list, restorable(fmt.Sprintf("p%03d", i), "/1", "x"))
	}
	if leftOut := s.Restore(list, s.now); leftOut != 2 || len(s.Reports()) != MaxRestored {
		t.Errorf("%d are left out, %d are served", leftOut, len(s.Reports()))
	}
	s.active("p000@/1") // the bound of stopped endpoints is not that of restored ones
	if n := len(s.Reports()); n != MaxRestored {
		t.Errorf("%d are served, want %d", n, MaxRestored)
	}
}

// What Answers returns is what Restore takes: another store serves the same. The revision changes with it, but not with
// times of answers.
func TestAnswersAndRevision(t *testing.T) {
	s := newScene(t)
	revision := s.Revision()
	expectChange := func(what string, want bool) {
		t.Helper()
		if changed := s.Revision() != revision; changed != want {
			t.Errorf("%s: changed is %v, want %v", what, changed, want)
		}
		revision = s.Revision()
	}
	a := s.run("a@/1")
	expectChange("registered", false)
	s.Message(a, answer("1"), s.now)
	expectChange("first answer", true)
	s.now = s.now.Add(time.Second)
	s.Polled(s.BeginPoll(a), answer("1"), s.now)
	expectChange("same answer", false)
	s.PollFailed(s.BeginPoll(a), s.now)
	expectChange("failed", true)
	s.PollFailed(s.BeginPoll(a), s.now)
	expectChange("failed again", false)
	s.Polled(s.BeginPoll(a), answer("1"), s.now)
	expectChange("confirmed", true)
	s.active("a@/2")
	expectChange("stopped", true)

	want := []Answer{{Key: Key{"a", "/1"}, Contents: answer("1"), Received: s.now, Confirmed: s.now, Lost: s.now}}
	if diff := cmp.Diff(want, s.Answers(s.now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	other := newScene(t)
	other.Restore(s.Answers(s.now), s.now)
	other.expect("a=1")
	if diff := cmp.Diff(want, other.Answers(s.now)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	s.pass(grace)
	expectChange("expired", true)
	if list := s.Answers(s.now); len(list) > 0 {
		t.Errorf("%v", list)
	}
}
