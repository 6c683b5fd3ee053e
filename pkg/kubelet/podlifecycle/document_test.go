package podlifecycle

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// document describes the machine. TestDocument writes the parts between the marks.
const document = "../../../docs/pod-lifecycle.md"

var update = flag.Bool("update", false, "write the generated parts of docs/pod-lifecycle.md")

// generated are the parts of the document, by the name in their marks.
var generated = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"diagram": "```mermaid\n" + diagram() + "```\n",
		"answers": answerTable(),
		"events":  eventTable(),
	}
})

// diagram returns the phases and what leads from one to another, as a Mermaid state diagram.
func diagram() string {
	var out strings.Builder
	out.WriteString("stateDiagram-v2\n")
	edges := transitions()
	for _, edge := range slices.Sorted(maps.Keys(edges)) {
		fmt.Fprintf(&out, "    %s : %s\n", edge, strings.Join(slices.Sorted(maps.Keys(edges[edge])), ", "))
	}
	return out.String()
}

// transitions returns all changes of the phase, with the names of the events that can cause them.
func transitions() map[string]map[string]bool {
	edges := map[string]map[string]bool{}
	explore(func(before State, by namedEvent, after State, cmds []Command) {
		from, to := before.Phase.String(), after.Phase.String()
		if slices.Contains(cmds, Command(Remove{})) {
			to = "[*]"
		}
		if from == to {
			return
		}
		edge := strings.Replace(from, "Unknown", "[*]", 1) + " --> " + to
		if edges[edge] == nil {
			edges[edge] = map[string]bool{}
		}
		edges[edge][by.label] = true
	})
	return edges
}

// queryNames are the names of the queries in the document.
var queryNames = [queryCount]string{
	"CouldHaveRunningContainers", "ShouldPodBeFinished", "TerminationRequested", "ContainersBeTerminating",
	"RuntimeBeRemoved", "ContentBeRemoved", "KnownTerminated",
}

// answerTable has a row for each query and a column for each phase.
func answerTable() string {
	var out strings.Builder
	out.WriteString("| query | unknown, before the first housekeeping | unknown, after it |")
	for phase := Known; phase <= Finished; phase++ {
		fmt.Fprintf(&out, " %s |", phase)
	}
	out.WriteString("\n" + strings.Repeat("|---", int(Finished)+3) + "|\n")
	for q := range queryCount {
		fmt.Fprintf(&out, "| `%s` | %s | %s |", queryNames[q], answerWords(q, State{}, false),
			answerWords(q, State{}, true))
		for phase := Known; phase <= Finished; phase++ {
			fmt.Fprintf(&out, " %s |", answerWords(q, State{Phase: phase}, true))
		}
		out.WriteString("\n")
	}
	return out.String()
}

// answerWords returns the answer to a query in words, with the conditions on which it depends. It finds these by
// evaluating the query with each of them.
func answerWords(q Query, s State, synced bool) string {
	plain := q.Evaluate(s, synced)
	var conditions []string
	for _, condition := range []struct {
		words string
		set   func(*State)
	}{
		{"once begun", func(s *State) { s.Termination.Begun = true }},
		{"if evicted", func(s *State) { s.Termination.Cause = CauseEviction }},
		{"if deleted", func(s *State) { s.Marks.Deleted = true }},
		{"if started", func(s *State) { s.Marks.Started = true }},
		{"if static", func(s *State) { s.Static = true }},
		{"if hastened", func(s *State) { s.Termination.Hastened = true }},
	} {
		changed := s
		condition.set(&changed)
		if q.Evaluate(changed, synced) != plain {
			conditions = append(conditions, condition.words)
		}
	}
	word := map[bool]string{false: "no", true: "yes"}
	if len(conditions) == 0 {
		return word[plain]
	}
	return strings.Join(conditions, " or ")
}

// eventTable has a row for each event, with the commands that it can cause.
func eventTable() string {
	commands := map[string]map[string]bool{}
	explore(func(_ State, by namedEvent, _ State, cmds []Command) {
		name := reflect.TypeOf(by.event).Name()
		if commands[name] == nil {
			commands[name] = map[string]bool{}
		}
		for _, cmd := range cmds {
			commands[name]["`"+reflect.TypeOf(cmd).Name()+"`"] = true
		}
	})
	var out strings.Builder
	out.WriteString("| event | possible commands |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		fmt.Fprintf(&out, "| `%s` | %s |\n", name, strings.Join(slices.Sorted(maps.Keys(commands[name])), ", "))
	}
	return out.String()
}

// regenerate replaces the text between the marks with the generated parts. It fails if a mark is missing.
func regenerate(text string) (string, error) {
	for name, part := range generated() {
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- end of "+name+" -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, ended := strings.Cut(rest, end)
		if !found || !ended {
			return "", fmt.Errorf("%s: no place for %q: want the lines %q and %q", document, name, strings.TrimSpace(begin), end)
		}
		text = head + begin + "\n" + part + "\n" + end + tail
	}
	return text, nil
}

// The generated parts of the document are up to date.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := regenerate(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("docs/pod-lifecycle.md is out of date: run go test ./pkg/kubelet/podlifecycle -run TestDocument -update. "+
			"Want:\n%s", want)
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestDocument fails when a phase, an answer, a command or a mark is wrong or missing.
func TestOutdatedDocumentIsDetected(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"Known --> Syncing", "Known --> Finished"}, {"once begun", "no"},
		{"`CancelSync`", "`CancelAll`"}} {
		old := strings.Replace(string(text), change[0], change[1], 1)
		if renewed, err := regenerate(old); err != nil || renewed == old || old == string(text) {
			t.Errorf("%q instead of %q is not detected: %v", change[1], change[0], err)
		}
	}
	if _, err := regenerate(strings.Replace(string(text), "<!-- end of answers -->", "", 1)); err == nil {
		t.Error("a missing mark is not detected")
	}
}
