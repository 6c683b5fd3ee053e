package escalation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// TestNext has all times of the steps for a pod with a grace period of 30 s, in seconds after the request.
func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name    string
		reached bool
		want    map[Step]time.Duration
	}{
		{
			"answering runtime", true,
			map[Step]time.Duration{Warn: 43, KillByRuntime: 43, StopSandbox: 48, KillCgroup: 53, Report: 63},
		},
		{
			"silent runtime", false,
			map[Step]time.Duration{Warn: 43, KillByRuntime: 163, StopSandbox: 168, KillCgroup: 173, Report: 183},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, grace := DefaultLimits(), GracePeriod{}.Attempt(noon, 30*time.Second, tc.reached)
			for step := None; step < Report; step++ {
				next, at := l.Next(grace, Progress{Step: step, At: noon})
				if want := noon.Add(tc.want[next] * time.Second); next != step+1 || !at.Equal(want) {
					t.Errorf("after %v: %v at %v, want %v", step, next, at, want)
				}
			}
			late := noon.Add(time.Hour)
			next, at := l.Next(grace, Progress{Step: Report, At: late})
			if next != Report || !at.Equal(late.Add(l.RepeatPeriod)) {
				t.Errorf("after Report: %v at %v", next, at)
			}
		})
	}
}

// The steps take longest for a silent runtime.
func TestLongest(t *testing.T) {
	l := DefaultLimits()
	grace := GracePeriod{}.Attempt(noon, 30*time.Second, false)
	if _, last := l.Next(grace, Progress{Step: KillCgroup, At: noon}); !last.Equal(grace.End.Add(l.Longest())) {
		t.Errorf("the last step is %v after the end of the grace period, want %v", last.Sub(grace.End), l.Longest())
	}
}

func TestNoReportBeforeThePodIsOverdue(t *testing.T) {
	l, grace := DefaultLimits(), GracePeriod{}.Attempt(noon, time.Hour, true)
	next, at := l.Next(grace, Progress{Step: Report, At: noon.Add(time.Second)})
	if next != Report || at.Before(grace.End) {
		t.Errorf("%v at %v", next, at)
	}
}

func TestGracePeriod(t *testing.T) {
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	begun := GracePeriod{}.Attempt(noon, 30*time.Second, true)
	for _, tc := range []struct {
		name string
		got  GracePeriod
		want time.Time
	}{
		{"first attempt", begun, second(30)},
		{"a later attempt does not extend it", begun.Attempt(second(20), 30*time.Second, true), second(30)},
		{"a later attempt with a shorter one", begun.Attempt(second(5), time.Second, true), second(6)},
		{
			"a silent runtime is reached later",
			GracePeriod{}.Attempt(noon, 30*time.Second, false).Attempt(second(20), 30*time.Second, true), second(50),
		},
		{
			"a runtime that is never reached",
			GracePeriod{}.Attempt(noon, 30*time.Second, false).Attempt(second(20), 30*time.Second, false), second(30),
		},
		{"a runtime that becomes silent", begun.Attempt(second(20), 30*time.Second, false), second(30)},
		{"shortened", begun.Shorten(second(3)), second(3)},
		{"not lengthened", begun.Shorten(second(31)), second(30)},
		{
			"shortened before the first attempt",
			GracePeriod{}.Shorten(second(3)).Attempt(second(1), time.Minute, true), second(3),
		},
	} {
		if !tc.got.End.Equal(tc.want) {
			t.Errorf("%s: ends %v, want %v", tc.name, tc.got.End, tc.want)
		}
	}
}

// For any sequence of attempts and shorter grace periods, the steps are taken in order, none before the pod is overdue,
// and the last one is reached.
func TestStepProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(label string, least, most int) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, label)) * time.Second
		}
		l := Limits{
			Slack: seconds("slack", 0, 5), Margin: seconds("margin", 1, 60), SilentDelay: seconds("silent delay", 0, 300),
			RepeatPeriod: seconds("repeat period", 1, 60),
		}
		now := noon
		grace := GracePeriod{}.Attempt(now, seconds("grace", 0, 600), rapid.Bool().Draw(t, "reached"))
		progress, reports := Progress{}, 0
		for step := 0; reports < 3; step++ {
			before := grace
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				grace = grace.Attempt(now, seconds("again within", 0, 600), rapid.Bool().Draw(t, "reached again"))
			case 1:
				grace = grace.Shorten(now.Add(seconds("shorter", 0, 600)))
			}
			if firstReached := grace.Reached && !before.Reached; grace.End.After(before.End) && !firstReached {
				t.Fatalf("the end went from %v to %v", before.End, grace.End)
			}
			next, at := l.Next(grace, progress)
			if next != min(progress.Step+1, Report) {
				t.Fatalf("from %v to %v", progress.Step, next)
			}
			if at.Before(grace.End.Add(l.Slack + l.Margin)) {
				t.Fatalf("%v at %v, and grace ends %v", next, at, grace.End)
			}
			if progress.Step == KillCgroup && at.Before(progress.At.Add(l.Margin)) {
				t.Fatalf("killed at %v and reported as stuck at %v", progress.At, at)
			}
			if now.Before(at) {
				now = now.Add(min(at.Sub(now), seconds("passes", 1, 900)))
				continue
			}
			progress = Progress{Step: next, At: now}
			if next == Report {
				reports++
			}
			if step > 10_000 {
				t.Fatal("the last step is not reached")
			}
		}
	})
}

func TestApplies(t *testing.T) {
	own, pause := Process{PID: 7, Container: true}, Process{PID: 6}
	for _, tc := range []struct {
		name  string
		facts Facts
		want  []Step
	}{
		{"nothing is left", Facts{}, []Step{Warn}},
		{"the processes are unknown", Facts{ProcessesErr: errors.New("oops")}, []Step{Warn, Report}},
		{
			"a container with processes", Facts{Running: []string{"a"}, Processes: []Process{pause, own}},
			[]Step{Warn, KillByRuntime, StopSandbox, KillCgroup, Report},
		},
		{
			"the runtime has not noticed the end", Facts{Running: []string{"a"}},
			[]Step{Warn, KillByRuntime, StopSandbox, Report},
		},
		{"the runtime is wrong", Facts{Processes: []Process{own}}, []Step{Warn, KillCgroup, Report}},
		{"the runtime is silent", Facts{Silent: true}, []Step{Warn, KillByRuntime, StopSandbox, Report}},
		{"only the sandbox is left", Facts{Processes: []Process{pause}}, []Step{Warn, Report}},
		{
			"a virtual machine by its specification",
			Facts{OwnKernel: true, Running: []string{"a"}, Processes: []Process{pause, own}},
			[]Step{Warn, KillByRuntime, StopSandbox, Report},
		},
		{
			"a virtual machine by its cgroup", Facts{Running: []string{"a"}, Processes: []Process{pause}},
			[]Step{Warn, KillByRuntime, StopSandbox, Report},
		},
	} {
		var got []Step
		for step := None; step <= Report; step++ {
			if step.Applies(tc.facts) {
				got = append(got, step)
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
			Facts{Silent: true, ProcessesErr: errors.New("no cgroup")},
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

func TestStepNames(t *testing.T) {
	for step, want := range map[Step]string{
		None: "None", StopSandbox: "StopSandbox", Report: "Report", 77: "Step(77)",
	} {
		if got := step.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
