package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestExactlyChoosesNothingElse(t *testing.T) {
	pattern := regexp.MustCompile(exactly([]string{"[sig-node] Pods should run (once) [NodeConformance]", "b"}))
	for text, want := range map[string]bool{
		"[sig-node] Pods should run (once) [NodeConformance]":       true,
		"[sig-node] Pods should run (once) [NodeConformance] again": false,
		"[sig-node] Pods should run once [NodeConformance]":         false,
	} {
		if got := pattern.MatchString(text); got != want {
			t.Errorf("match of %q is %v", text, got)
		}
	}
}

func TestStockPassesAreDistinct(t *testing.T) {
	names := StockPasses()
	if len(names) != 369 {
		t.Errorf("%d names", len(names))
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != 369 {
		t.Error("a name is there twice")
	}
}

func TestResultsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	results, err := loadResults(file)
	if err != nil || len(results) != 0 {
		t.Fatalf("no file is %v, %v", results, err)
	}
	results["b"], results["c"] = passed, "failed"
	if err := results.save(file); err != nil {
		t.Fatal(err)
	}
	again, err := loadResults(file)
	if err != nil {
		t.Fatal(err)
	}
	if missing := again.Missing([]string{"c", "b", "a"}); !slices.Equal(missing, []string{"a", "c"}) {
		t.Errorf("missing are %v", missing)
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
