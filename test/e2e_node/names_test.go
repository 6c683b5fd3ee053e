package e2enode

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestNeedsNameTests holds the table of what tests need of the node: each name is that of a test.
func TestNeedsNameTests(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	var table []byte
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			declared[string(found[1])] = true
		}
		if name == "needs_test.go" {
			table = text
		}
	}
	names := regexp.MustCompile(`(?m)^\t"(Test\w+)": +\{`).FindAllSubmatch(table, -1)
	if len(names) == 0 {
		t.Error("the table has no tests")
	}
	for _, found := range names {
		if !declared[string(found[1])] {
			t.Errorf("no test is called %s", found[1])
		}
	}
}
