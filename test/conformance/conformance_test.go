package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestExactlyChoosesNothingElse(t *testing.T) {
	pattern := regexp.MustCompile(exactly([]string{
		"[sig-node] Pods should run (once) [NodeConformance]", "b", "under pressure  should stay",
	}))
	for text, want := range map[string]bool{
		"[sig-node] Pods should run (once) [NodeConformance]":       true,
		"[sig-node] Pods should run (once) [NodeConformance] again": false,
		"[sig-node] Pods should run once [NodeConformance]":         false,
		"under pressure should stay":                                true,
	} {
		if got := pattern.MatchString(text); got != want {
			t.Errorf("match of %q is %v", text, got)
		}
	}
}

func TestKnownResultsBelongToSuites(t *testing.T) {
	var suites []Suite
	for _, selection := range Selections() {
		here := Suite{Selection: selection}
		suites = append(suites, here)
		if here.Cluster {
			continue
		}
		for round := range 2 {
			machine, err := here.InMachine(round + 1)
			if err != nil {
				t.Fatal(err)
			}
			suites = append(suites, machine)
		}
	}
	read := 0
	for _, s := range suites {
		data, err := known.ReadFile(s.knownFile())
		if err != nil {
			continue // This suite has not run with stock yet.
		}
		read++
		chosen, err := s.Chooser()
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
		for i, name := range names {
			if !chosen(name) {
				t.Errorf("%s: suite %s has no spec %q", s.knownFile(), s.Name, name)
			}
			if i > 0 && names[i-1] >= name {
				t.Errorf("%s: %q stands before %q", s.knownFile(), names[i-1], name)
			}
		}
		if len(s.Known()) != len(names) {
			t.Errorf("%d results are read of the %d names of %s", len(s.Known()), len(names), s.knownFile())
		}
	}
	here, _ := fs.Glob(known, "stock/*.txt")
	inMachine, _ := fs.Glob(known, "stock/*/*.txt")
	if all := len(here) + len(inMachine); read != all {
		t.Errorf("%d of %d files are of a suite: %q, %q", read, all, here, inMachine)
	}
	for name, want := range map[string]int{"nodeconformance": 414, "nonsense": 0} {
		if n := len((Suite{Selection: Selection{Name: name}}).Known()); n != want {
			t.Errorf("%d names of %s, not %d", n, name, want)
		}
	}
}

func TestWhatPassedWithStockIsWritten(t *testing.T) {
	results := Results{
		"[sig-node] b [NodeConformance]":          {State: passed},
		"[sig-node] a [NodeConformance]":          {State: passed, Tries: 2},
		"[sig-node] c [NodeConformance]":          {State: "failed"},
		"[sig-node] d [NodeConformance] [Serial]": {State: passed},
	}
	here := Suite{Root: t.TempDir(), Selection: Selection{Name: "nodeconformance", Focus: "changed by -focus"}}
	machine, err := here.InMachine(2)
	if err != nil {
		t.Fatal(err)
	}
	for want, s := range map[string]Suite{
		"stock/nodeconformance.txt": here, "stock/machine-round2/nodeconformance.txt": machine,
	} {
		file, count, err := s.WriteKnown(results)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(here.Root, "test/conformance", want); file != want {
			t.Errorf("%s is written, not %s", file, want)
		}
		data, err := os.ReadFile(file)
		want := "[sig-node] a [NodeConformance]\n[sig-node] b [NodeConformance]\n"
		if err != nil || string(data) != want || count != 2 {
			t.Errorf("%d are written: %q, %v", count, data, err)
		}
	}
	here.Name = "lifecycle"
	if file, _, err := here.WriteKnown(results); err == nil {
		t.Errorf("%s is written without names", file)
	}
}

func TestSelections(t *testing.T) {
	for _, s := range Selections() {
		if _, err := s.Chooser(); err != nil {
			t.Error(err)
		}
		if s.Procs < 1 || s.About == "" {
			t.Errorf("suite %s is incomplete", s.Name)
		}
	}
	if _, err := SelectionByName("nonsense"); err == nil || !strings.Contains(err.Error(), "nodeconformance") {
		t.Errorf("the error %v does not say what there is", err)
	}
	for _, s := range []Selection{{Focus: "("}, {Skip: "("}, {Without: []string{"nonsense"}}} {
		if _, err := s.Chooser(); err == nil {
			t.Errorf("%+v chooses", s)
		}
	}
}

func TestEachSpecBelongsToOneSuite(t *testing.T) {
	for name, want := range map[string][]string{
		"[sig-node] Secrets should be consumable [NodeConformance] [Conformance]": {"nodeconformance", "cluster"},
		"[sig-node] Pods Extended should be deleted":                              {"lifecycle"},
		"[sig-node] CPU Manager [Serial] should assign CPUs":                      {"rest"},
		"[sig-node] InodeEviction [Slow] [Serial] [Disruptive] should evict":      {"eviction"},
		"[sig-storage] EmptyDir volumes should be kept [Conformance]":             {"cluster"},
		"[sig-node] CriticalPod [Serial] [Disruptive] should be admitted":         {"admission"},
		"[sig-node] SystemNodeCriticalPod [Slow] [Disruptive] should stay":        {"eviction"},
		"[sig-node] Kernel panics [Disruptive]":                                   nil,
		"[sig-network] Services should serve [Conformance]":                       nil,
	} {
		var got []string
		for _, s := range Selections() {
			chosen, err := s.Chooser()
			if err != nil {
				t.Fatal(err)
			}
			if chosen(name) {
				got = append(got, s.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q belongs to %v, want %v", name, got, want)
		}
	}
}

func TestCompare(t *testing.T) {
	stock := Results{
		"a": {State: passed}, "b": {State: passed}, "c": {State: "failed"}, "d": {State: "failed"}, "e": {State: "skipped"},
	}
	ours := Results{
		"a": {State: passed}, "b": {State: "failed", Failure: "too late"}, "c": {State: passed}, "d": {State: "timedout"},
		"e": {State: "skipped"},
	}
	c := Compare(stock, ours)
	want := Comparison{Both: []string{"a"}, OnlyStock: []string{"b"}, OnlyOurs: []string{"c"}, Neither: []string{"d"}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("comparison is %+v", c)
	}
	if c.Percent() != 50 {
		t.Errorf("%g %%", c.Percent())
	}
	var table strings.Builder
	c.Write(&table, ours)
	for _, line := range []string{"failed: b", "too late", "timedout: d", "only stock               1"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("the table does not say %q:\n%s", line, table.String())
		}
	}
}

func TestReportNamesSpecsInFull(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	text := `[{"SpecReports":[
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},
		{"ContainerHierarchyTexts":["[sig-node] Pods","when asked"],
			"LeafNodeType":"It","LeafNodeText":"should run","State":"failed"}]}]`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	specs, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 1 || specs[0].name() != "[sig-node] Pods when asked should run" || specs[0].State != "failed" {
		t.Errorf("specs are %+v", specs)
	}
}

func TestSpecsThatWereCutOffHaveNoOutcome(t *testing.T) {
	for _, c := range []struct {
		state, message string
		want           bool
	}{
		{"passed", "", false},
		{"failed", "too late", false},
		{"skipped", "needs four processors", false},
		{"skipped", "", true},
		{"interrupted", "Interrupted by User", true},
		{"aborted", "", true},
	} {
		s := spec{State: c.state}
		s.Failure.Message = c.message
		if got := s.cutOff(); got != c.want {
			t.Errorf("%s %q: %v", c.state, c.message, got)
		}
	}
}
