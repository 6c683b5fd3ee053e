package podlifecycle

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write what the machine says into testdata/scripts; read the diff")

// Scripts are examples: a line is an event of a pod, the indented lines below it are the resulting state and commands.
//
//	POD EVENT [WORD | KEY=VALUE] ...
//
// Events: create, update, sync, kill (static, deleting, completed, stopped, spec=S, deletion=S; terms: evict, grace=S,
// waiter=N, amends), runtime (config, and the terms of a kill), work (stopped), succeeded, failed, cancelled, completed
// (spec=S), desired, orphan (spec=S), due, left (waiter=N), synced, ask, mirror (name=NAME). The full name of a pod is
// its letters: a1 and a2 are both "a".
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if got == string(text) {
				return
			}
			if !*rewrite {
				t.Fatalf("the machine says\n%s", got)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// play runs a script and returns it with the results. A line with only dashes begins a new table.
func play(t *testing.T, text string) string {
	var out strings.Builder
	table, now := NewTable(), time.Unix(0, 0).UTC()
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "\t"):
			continue
		case line == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
			continue
		case line == "---":
			table, now = NewTable(), time.Unix(0, 0).UTC()
			out.WriteString(line + "\n")
			continue
		}
		now = now.Add(time.Second)
		out.WriteString(line + "\n")
		for _, said := range playLine(t, table, line, now) {
			out.WriteString("\t" + said + "\n")
		}
	}
	return out.String()
}

func playLine(t *testing.T, table *Table, line string, now time.Time) []string {
	words := strings.Fields(line)
	uid, args := UID(words[0]), parseArgs(t, words[2:])
	switch words[1] {
	case "synced":
		table.MarkSynced()
		return nil
	case "ask":
		return []string{evaluateAll(table, uid)}
	case "mirror":
		return []string{fmt.Sprint(table.mirrorTerminating(words[0]))}
	}
	ev := args.event(t, words[1], uid)
	state, cmds := table.Apply(uid, ev, now)
	said := []string{describe(state)}
	for _, cmd := range cmds {
		said = append(said, "- "+describeCommand(cmd))
	}
	return said
}

// scriptArgs are the words and values of a line.
type scriptArgs map[string]*int64

func parseArgs(t *testing.T, words []string) scriptArgs {
	args := scriptArgs{}
	for _, word := range words {
		key, value, hasValue := strings.Cut(word, "=")
		args[key] = nil
		if hasValue {
			number, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			args[key] = &number
		}
	}
	return args
}

func (a scriptArgs) has(key string) bool { _, ok := a[key]; return ok }

func (a scriptArgs) event(t *testing.T, name string, uid UID) Event {
	pod := PodFacts{
		FullName: strings.TrimRight(string(uid), "0123456789"), Static: a.has("static"), Deleting: a.has("deleting"),
		Completed:     a.has("completed"),
		DeletionGrace: a["deletion"], SpecGrace: a["spec"],
	}
	var kill *Kill
	if a.has("evict") || a.has("grace") || a.has("waiter") || a.has("amends") {
		kill = &Kill{Evict: a.has("evict"), Grace: a["grace"], Amends: a.has("amends")}
		if waiter := a["waiter"]; waiter != nil {
			kill.Waiter = WaiterID(*waiter)
		}
	}
	var config *PodFacts
	if a.has("config") || a.has("spec") {
		config = &pod
	}
	switch name {
	case "create", "update", "sync", "kill":
		kinds := map[string]UpdateType{"create": UpdateCreate, "update": UpdateChange, "sync": UpdateSync, "kill": UpdateKill}
		return Updated{Type: kinds[name], Pod: pod, Kill: kill, Stopped: a.has("stopped")}
	case "runtime":
		return RuntimePodFound{FullName: pod.FullName, Config: config, Kill: kill}
	case "work":
		return WorkerReady{Stopped: a.has("stopped")}
	case "succeeded", "failed", "cancelled", "completed":
		outcomes := map[string]Outcome{"succeeded": Succeeded, "failed": Failed, "cancelled": Cancelled,
			"completed": Completed}
		return Returned{Outcome: outcomes[name], Pod: pod}
	case "desired", "orphan":
		return Reconciled{Desired: name == "desired", Config: config}
	case "due":
		return RetryDue{}
	case "left":
		return WaiterLeft{Waiter: WaiterID(*a["waiter"])}
	}
	t.Fatalf("unknown event %q", name)
	return nil
}

// describe returns a state as one line, without zero values.
func describe(s State) string {
	words := []string{s.Phase.String(), "(" + s.Work().String() + ")"}
	if s.Operation != OpNone {
		words = append(words, "doing "+strings.ReplaceAll(s.Operation.String(), " ", "-"))
	}
	for _, mark := range []struct {
		name string
		set  bool
	}{
		{"pending", s.Pending}, {"static", s.Static}, {"started", s.Marks.Started}, {"deleted", s.Marks.Deleted},
		{"restart-requested", s.Marks.RestartRequested}, {"found-in-runtime", s.Marks.FoundInRuntime},
		{"runtime-only", s.Marks.RuntimeOnly},
		{"begun", s.Termination.Begun}, {"hastened", s.Termination.Hastened}, {"amended", s.Termination.Amended},
		{"evicted", s.Evicted()},
	} {
		if mark.set {
			words = append(words, mark.name)
		}
	}
	if s.Termination.Cause != CauseNone {
		words = append(words, "cause="+s.Termination.Cause.String())
	}
	if s.Termination.Grace != 0 {
		words = append(words, fmt.Sprintf("grace=%d", s.Termination.Grace))
	}
	if len(s.Waiters) != 0 {
		words = append(words, fmt.Sprintf("waiters=%v", s.Waiters))
	}
	return strings.Join(append(words, describeTimes(s.Times)), " ")
}

func describeTimes(times Times) string {
	var parts []string
	for _, at := range []struct {
		name string
		time time.Time
	}{{"seen", times.Seen}, {"started", times.Started}, {"requested", times.Requested}, {"terminated", times.Terminated},
		{"finished", times.Finished}} {
		if !at.time.IsZero() {
			parts = append(parts, fmt.Sprintf("%s@%d", at.name, at.time.Unix()))
		}
	}
	return strings.Join(parts, " ")
}

func describeCommand(cmd Command) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", cmd), "podlifecycle.")
	switch cmd := cmd.(type) {
	case Run:
		grace := "own"
		if cmd.Grace != nil {
			grace = fmt.Sprint(*cmd.Grace)
		}
		if cmd.First {
			name += " first"
		}
		if cmd.Op == OpTerminate || cmd.Op == OpTerminateRuntime {
			return fmt.Sprintf("%s %s grace=%s", name, cmd.Op, grace)
		}
		return fmt.Sprintf("%s %s", name, cmd.Op)
	case Accept:
		if cmd.Amend {
			return name + " amend"
		}
	case Hasten, NotifyWaiters, WakeOther, Requeue:
		return strings.TrimSpace(fmt.Sprintf("%s %v", name, cmd))
	}
	return name
}

// evaluateAll returns the names of all queries whose answer is yes.
func evaluateAll(table *Table, uid UID) string {
	names := [queryCount]string{"could-run", "finished", "requested", "terminating", "runtime-removed", "content-removed",
		"known-terminated"}
	var yes []string
	for q, name := range names {
		if table.Evaluate(Query(q), uid) {
			yes = append(yes, name)
		}
	}
	if len(yes) == 0 {
		return "none"
	}
	return strings.Join(yes, " ")
}
