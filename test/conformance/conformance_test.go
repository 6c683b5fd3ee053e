package conformance

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestExactlyChoosesNothingElse(t *testing.T) {
	pattern := regexp.MustCompile(exactly([]string{"[sig-node] Pods should run (once) [NodeConformance]", "b", "under pressure  should stay"}))
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
	files, err := known.ReadDir("stock")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".txt")
		if _, err := SelectionByName(name); err != nil {
			t.Error(err)
		}
		if len(KnownStock(name)) == 0 {
			t.Errorf("%s is empty", file.Name())
		}
	}
	if n := len(KnownStock("nodeconformance")); n != 369 {
		t.Errorf("%d names of node conformance", n)
	}
	if n := len(KnownStock("nonsense")); n != 0 {
		t.Errorf("%d results of a suite that is not there", n)
	}
}

func TestSelectionsCompile(t *testing.T) {
	for _, s := range Selections() {
		for _, pattern := range []string{s.Focus, s.Skip} {
			if _, err := regexp.Compile(pattern); err != nil {
				t.Errorf("suite %s: %v", s.Name, err)
			}
		}
	}
	if _, err := SelectionByName("nonsense"); err == nil || !strings.Contains(err.Error(), "nodeconformance") {
		t.Errorf("the error %v does not say what there is", err)
	}
}

func TestResultsAreKept(t *testing.T) {
	s := Suite{Dir: t.TempDir(), Party: "ours", Selection: Selection{Name: "some"}}
	results, err := s.Kept()
	if err != nil || len(results) != 0 {
		t.Fatalf("no file is %v, %v", results, err)
	}
	results.add(spec{Leaf: "b", State: passed})
	results.add(spec{Leaf: "c", State: "failed"})
	results.add(spec{Leaf: "c", State: passed})
	if err := results.save(s.file("results.json")); err != nil {
		t.Fatal(err)
	}
	again, err := s.Kept()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(again, results) || again["c"].Tries != 2 {
		t.Errorf("read %v", again)
	}
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Kept(); err != nil || len(left) != 0 {
		t.Errorf("after they were forgotten %v, %v", left, err)
	}
}

func TestCompare(t *testing.T) {
	stock := Results{"a": {State: passed}, "b": {State: passed}, "c": {State: "failed"}, "d": {State: "failed"}, "e": {State: "skipped"}}
	ours := Results{"a": {State: passed}, "b": {State: "failed", Failure: "too late"}, "c": {State: passed}, "d": {State: "timedout"}, "e": {State: "skipped"}}
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
		{"ContainerHierarchyTexts":["[sig-node] Pods","when asked"],"LeafNodeType":"It","LeafNodeText":"should run","State":"failed"}]}]`
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

func TestBatchesHoldEveryRemainingSpecOnce(t *testing.T) {
	var specs []spec
	results := Results{}
	for i := range 400 {
		s := spec{Containers: []string{"group", fmt.Sprint(i / 4), []string{"", "[Serial]", "[Slow]", "[Serial] [Slow]"}[i/4%4]}, Leaf: fmt.Sprintf("spec %03d", i)}
		specs = append(specs, s)
		// Of every second group all have passed, of the others all but one.
		if i/4%2 == 0 || i%4 != 1 {
			results.add(spec{Containers: s.Containers, Leaf: s.Leaf, State: passed})
		}
	}
	groups := remaining(specs, results)
	if len(groups) != 50 {
		t.Errorf("%d groups remain", len(groups))
	}
	var seen []string
	for i, chunk := range batches(groups) {
		if len(chunk) == 0 || len(chunk)%4 != 0 || len(chunk) >= batch+4 {
			t.Errorf("batch %d has %d specs: a group was torn, or there are too many", i, len(chunk))
		}
		for _, name := range chunk {
			if strings.Contains(name, "[Serial]") != strings.Contains(chunk[0], "[Serial]") {
				t.Errorf("batch %d mixes specs that run alone with others", i)
			}
		}
		seen = append(seen, chunk...)
	}
	slices.Sort(seen)
	if len(seen) != 200 || len(slices.Compact(seen)) != 200 {
		t.Errorf("%d specs", len(seen))
	}
}
