package escalation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// The whole ladder of a pod with half a minute of grace, with every time written out.
func TestLadder(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reached bool
		want    map[Rung]time.Duration
	}{
		{
			"answering runtime", true,
			map[Rung]time.Duration{Tell: 43, KillByRuntime: 43, StopSandbox: 48, KillCgroup: 53, Report: 63},
		},
		{
			"silent runtime", false,
			map[Rung]time.Duration{Tell: 43, KillByRuntime: 163, StopSandbox: 168, KillCgroup: 173, Report: 183},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, term := DefaultLimits(), Term{}.Attempt(noon, 30*time.Second, tc.reached)
			for rung := Ground; rung < Report; rung++ {
				up, at := l.Next(term, Climbed{Rung: rung, At: noon})
				if want := noon.Add(tc.want[up] * time.Second); up != rung+1 || !at.Equal(want) {
					t.Errorf("above %v: %v at %v, want %v", rung, up, at, want)
				}
			}
			late := noon.Add(time.Hour)
			if up, at := l.Next(term, Climbed{Rung: Report, At: late}); up != Report || !at.Equal(late.Add(l.Again)) {
				t.Errorf("above Report: %v at %v", up, at)
			}
		})
	}
}

// The longest ladder is that of a silent runtime.
func TestLongest(t *testing.T) {
	l := DefaultLimits()
	term := Term{}.Attempt(noon, 30*time.Second, false)
	if _, last := l.Next(term, Climbed{Rung: KillCgroup, At: noon}); !last.Equal(term.End.Add(l.Longest())) {
		t.Errorf("the last rung %v after the end of the grace period, want %v", last.Sub(term.End), l.Longest())
	}
}

func TestReportIsNeverRepeatedBeforeThePodIsOverdue(t *testing.T) {
	l, term := DefaultLimits(), Term{}.Attempt(noon, time.Hour, true)
	if up, at := l.Next(term, Climbed{Rung: Report, At: noon.Add(time.Second)}); up != Report || at.Before(term.End) {
		t.Errorf("%v at %v", up, at)
	}
}

func TestTerm(t *testing.T) {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	begun := Term{}.Attempt(noon, 30*time.Second, true)
	for _, tc := range []struct {
		name string
		got  Term
		want time.Time
	}{
		{"first attempt", begun, second(30)},
		{"a later attempt does not begin anew", begun.Attempt(second(20), 30*time.Second, true), second(30)},
		{"a later attempt with less", begun.Attempt(second(5), time.Second, true), second(6)},
		{
			"a silent runtime is reached later",
			Term{}.Attempt(noon, 30*time.Second, false).Attempt(second(20), 30*time.Second, true), second(50),
		},
		{
			"a runtime that is never reached",
			Term{}.Attempt(noon, 30*time.Second, false).Attempt(second(20), 30*time.Second, false), second(30),
		},
		{"a runtime that falls silent", begun.Attempt(second(20), 30*time.Second, false), second(30)},
		{"shortened", begun.Shorten(second(3)), second(3)},
		{"not lengthened", begun.Shorten(second(31)), second(30)},
		{"shortened before the first attempt", Term{}.Shorten(second(3)).Attempt(second(1), time.Minute, true), second(3)},
	} {
		if !tc.got.End.Equal(tc.want) {
			t.Errorf("%s: ends %v, want %v", tc.name, tc.got.End, tc.want)
		}
	}
}

// Whatever happens to a pod, the ladder is climbed rung by rung, never before the pod is overdue, and to its end.
func TestLadderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(label string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Second
		}
		l := Limits{
			Slack: seconds("slack", 0, 5), Margin: seconds("margin", 1, 60), Absence: seconds("absence", 0, 300),
			Again: seconds("again", 1, 60),
		}
		now := noon
		term := Term{}.Attempt(now, seconds("grace", 0, 600), rapid.Bool().Draw(t, "reached"))
		climbed, reports := Climbed{}, 0
		for step := 0; reports < 3; step++ {
			before := term
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				term = term.Attempt(now, seconds("again within", 0, 600), rapid.Bool().Draw(t, "reached again"))
			case 1:
				term = term.Shorten(now.Add(seconds("shorter", 0, 600)))
			}
			if firstReached := term.Reached && !before.Reached; term.End.After(before.End) && !firstReached {
				t.Fatalf("the end went from %v to %v", before.End, term.End)
			}
			up, at := l.Next(term, climbed)
			if up != min(climbed.Rung+1, Report) {
				t.Fatalf("from %v to %v", climbed.Rung, up)
			}
			if at.Before(term.End.Add(l.Slack + l.Margin)) {
				t.Fatalf("%v at %v, and grace ends %v", up, at, term.End)
			}
			if climbed.Rung == KillCgroup && at.Before(climbed.At.Add(l.Margin)) {
				t.Fatalf("killed at %v and called stuck at %v", climbed.At, at)
			}
			if now.Before(at) {
				now = now.Add(min(at.Sub(now), seconds("passes", 1, 900)))
				continue
			}
			climbed = Climbed{Rung: up, At: now}
			if up == Report {
				reports++
			}
			if step > 10_000 {
				t.Fatal("the ladder has no end")
			}
		}
	})
}

func TestApplies(t *testing.T) {
	own, pause := Process{PID: 7, Container: true}, Process{PID: 6}
	for _, tc := range []struct {
		name  string
		facts Facts
		want  []Rung
	}{
		{"nothing is left", Facts{}, []Rung{Tell, Report}},
		{
			"a container with processes", Facts{Running: []string{"a"}, Processes: []Process{pause, own}},
			[]Rung{Tell, KillByRuntime, StopSandbox, KillCgroup, Report},
		},
		{
			"the runtime has not noticed the end", Facts{Running: []string{"a"}},
			[]Rung{Tell, KillByRuntime, StopSandbox, Report},
		},
		{"the runtime is wrong", Facts{Processes: []Process{own}}, []Rung{Tell, KillCgroup, Report}},
		{"the runtime is silent", Facts{Silent: true}, []Rung{Tell, KillByRuntime, StopSandbox, Report}},
		{"only the sandbox is left", Facts{Processes: []Process{pause}}, []Rung{Tell, Report}},
		{
			"a virtual machine by its specification",
			Facts{OwnKernel: true, Running: []string{"a"}, Processes: []Process{pause, own}},
			[]Rung{Tell, KillByRuntime, StopSandbox, Report},
		},
		{
			"a virtual machine by its cgroup", Facts{Running: []string{"a"}, Processes: []Process{pause}},
			[]Rung{Tell, KillByRuntime, StopSandbox, Report},
		},
	} {
		var got []Rung
		for rung := Ground; rung <= Report; rung++ {
			if rung.Applies(tc.facts) {
				got = append(got, rung)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestSummary(t *testing.T) {
	many := make([]Process, 8)
	for i := range many {
		many[i] = Process{PID: 10 + i, State: 'S', Name: "sh"}
	}
	many[7].State, many[7].Name = 'D', "dd"
	for _, tc := range []struct {
		facts Facts
		want  string
	}{
		{Facts{}, "all containers have stopped; no process is left in the pod's cgroup"},
		{Facts{Running: []string{"a", "b"}}, "running: a, b; no process is left in the pod's cgroup"},
		{
			Facts{Silent: true, NoCgroup: errors.New("no cgroup")},
			"the runtime does not answer; processes cannot be listed: no cgroup",
		},
		{
			Facts{Running: []string{"a"}, Processes: many},
			"running: a; 8 processes in the pod's cgroup, 1 in uninterruptible sleep; 17 (dd) D, 10 (sh) S, 11 (sh) S, 12 " +
				"(sh) S, 13 (sh) S, …",
		},
		{
			Facts{Processes: []Process{{PID: 3}}},
			"all containers have stopped; 1 process in the pod's cgroup, 0 in uninterruptible sleep; 3 () ?",
		},
	} {
		if got := tc.facts.Summary(); got != tc.want {
			t.Errorf("got  %q\nwant %q", got, tc.want)
		}
	}
}

func TestRungsHaveNames(t *testing.T) {
	for rung, want := range map[Rung]string{
		Ground: "Ground", StopSandbox: "StopSandbox", Report: "Report", 77: "Rung(77)",
	} {
		if got := rung.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
