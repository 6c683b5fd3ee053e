// Package parity compares this program with the stock kubelet it replaces, name by name, and writes docs/parity.md.
package parity

import (
	"context"
	"flag"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-project/plimsoll/cmd/kubelet/app"
)

var update = flag.Bool("update", false, "write docs/parity.md")

const document = root + "/docs/parity.md"

// build returns all sections, in the order of the document. The endpoints come last, because they need feature gates
// that are disabled.
var build = sync.OnceValues(func() ([]*section, error) {
	t, err := load()
	if err != nil {
		return nil, err
	}
	var sections []*section
	for _, make := range []func(context.Context, *tree) (*section, error){
		flagSection, flagFieldSection, configSection, gateSection, metricSection, eventSection, admissionSection, callSection,
		linkedSection, endpointSection,
	} {
		s, err := make(context.Background(), t)
		if err != nil {
			return nil, err
		}
		s.markUnsupported()
		sections = append(sections, s)
	}
	return sections, nil
})

// word matches what may be a setting in the text of a warning.
var word = regexp.MustCompile(`[\w.-]+`)

// markUnsupported adds a difference for every setting of which the program warns at its start that it is not supported.
func (s *section) markUnsupported() {
	if s.title != flagNames && s.title != configNames && s.title != gates {
		return
	}
	for _, u := range app.UnsupportedSettings {
		for _, name := range word.FindAllString(u.Setting, -1) {
			if len(s.stock[name])+len(s.ours[name])+len(s.library[name]) > 0 {
				s.differs[name] = "the program says at start that it is not supported"
			}
		}
	}
}

func mustBuild(t *testing.T) []*section {
	t.Helper()
	sections, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return sections
}

func TestEveryDifferenceIsExplained(t *testing.T) {
	for _, d := range unexplained(mustBuild(t), exceptions) {
		t.Errorf("%s\nEither make it the same, or say why not in exceptions_test.go; metrics of our own are described in "+
			"docs/metrics.md", d)
	}
}

func TestEveryExceptionIsNeeded(t *testing.T) {
	for _, k := range unneeded(mustBuild(t), exceptions) {
		t.Errorf("%s: %s: there is no such difference any more; remove the exception", k.section, k.name)
	}
}

func TestEveryExceptionHasAReason(t *testing.T) {
	states := []state{another, missing, needless, extra}
	for k, e := range exceptions {
		if len(e.why) < 10 || !slices.Contains(states, e.state) {
			t.Errorf("%s: %s: %q, %q", k.section, k.name, e.state, e.why)
		}
	}
}

// Every exception is needed: without its entry, each difference is found.
func TestARemovedExceptionIsFound(t *testing.T) {
	sections := mustBuild(t)
	for k := range exceptions {
		table := maps.Clone(exceptions)
		delete(table, k)
		found := slices.ContainsFunc(unexplained(sections, table), func(d difference) bool {
			return d.section == k.section && d.name == k.name
		})
		if !found {
			t.Errorf("%s: %s is not missed when its exception is removed", k.section, k.name)
		}
	}
}

// A name that ours loses, or that stock does not have, is found. Every section is tried, and every one must have names
// to try.
func TestALostNameIsFound(t *testing.T) {
	for _, s := range mustBuild(t) {
		tried := 0
		for _, name := range s.names() {
			if len(s.stock[name]) == 0 || len(s.ours[name]) == 0 || s.differs[name] != "" {
				continue
			}
			tried++
			poorer := *s
			poorer.ours = maps.Clone(s.ours)
			delete(poorer.ours, name)
			if !slices.ContainsFunc(unexplained([]*section{&poorer}, exceptions), func(d difference) bool {
				return d.name == name
			}) {
				t.Errorf("%s: %s can be lost unnoticed", s.title, name)
			}
		}
		// Two sections list only differences.
		if listsDifferences := s.title == packages || s.title == calls; tried == 0 && !listsDifferences {
			t.Errorf("%s: nothing that both programs have", s.title)
		}
		richer := *s
		richer.ours = maps.Clone(s.ours)
		richer.ours.add("of our own", "nowhere")
		if !slices.ContainsFunc(unexplained([]*section{&richer}, exceptions), func(d difference) bool {
			return d.name == "of our own"
		}) {
			t.Errorf("%s: a name that stock does not have goes unnoticed", s.title)
		}
	}
}

// A setting that our program supports must not be reported as unsupported: a gate that our packages check is supported.
func TestUnsupportedSettingsAreUnsupported(t *testing.T) {
	for _, s := range mustBuild(t) {
		if s.title != gates {
			continue
		}
		for _, u := range app.UnsupportedSettings {
			gate, isGate := strings.CutPrefix(u.Setting, "feature gate ")
			if isGate && len(s.ours[gate]) > 0 {
				t.Errorf("the warning about %s is wrong: %v ask for it", u.Setting, s.ours[gate])
			}
		}
	}
}

func TestDocumentIsUpToDate(t *testing.T) {
	text := render(stockVersion(t), mustBuild(t), exceptions)
	if *update {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Split(string(written), "\n"), strings.Split(text, "\n")
	for i, line := range now {
		if i >= len(old) || old[i] != line {
			t.Fatalf("docs/parity.md is old from line %d on; go test ./test/parity -update writes it. It should say:\n%s", i+1,
				line)
		}
	}
	if len(old) > len(now) {
		t.Fatal("docs/parity.md is longer than it should be; go test ./test/parity -update writes it")
	}
	for _, u := range app.UnsupportedSettings {
		if !strings.Contains(string(written), u.Setting) {
			t.Errorf("docs/parity.md does not name %s", u.Setting)
		}
	}
}

func stockVersion(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
