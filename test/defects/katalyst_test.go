package defects

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	katalyst = root + "/docs/katalyst.md"
	// behaviours is the least number of rows that are no weakness.
	behaviours = 31
)

// weaknesses are the rows of Katalyst's weaknesses: those of its eviction manager, and those of its reporter manager.
var weaknesses = []string{
	"E1", "E2", "E3", "E4", "E5", "E6", "E7", "E9", "E10", "E11", "E12", "E13", "E14", "E15", "E16", "E17", "E18", "E23",
	"E24",
	"R1", "R2", "R3", "R4", "R5", "R7", "R8", "R9", "R12", "R13", "R15",
}

// katalystRow is a row of docs/katalyst.md that names tests. A row of what is not there yet may have a reason instead.
type katalystRow struct {
	notYet bool
	tests  []string
}

// katalystRows returns these rows by their first cells.
func katalystRows(t *testing.T) map[string]katalystRow {
	t.Helper()
	text, err := os.ReadFile(katalyst)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]katalystRow{}
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 4 || cells[3] == "held by" {
			continue
		}
		if _, twice := out[cells[0]]; twice {
			t.Errorf("%s is there twice", cells[0])
		}
		r := katalystRow{notYet: strings.Contains(cells[2], "not yet")}
		switch reason, none := strings.CutPrefix(cells[3], "– "); {
		case !none:
			r.tests = strings.Split(cells[3], ", ")
		case len(reason) < 10 || !r.notYet:
			t.Errorf("%s names no test although it is there", cells[0])
		}
		out[cells[0]] = r
	}
	return out
}

func TestKatalystRows(t *testing.T) {
	all := katalystRows(t)
	for _, row := range weaknesses {
		if _, ok := all[row]; !ok {
			t.Errorf("%s is missing", row)
		}
	}
	if n := len(all) - len(weaknesses); n < behaviours {
		t.Errorf("%d behaviours, want at least %d", n, behaviours)
	}
	known := functions(t)
	for row, r := range all {
		for _, name := range r.tests {
			if _, ok := known[name]; !ok {
				t.Errorf("%s: there is no test %q", row, name)
			}
		}
	}
}

// TestTestsOfWeaknessesAreNamed checks that a test that is named after a weakness is in its row, and that each weakness
// has one unless it is about something that is not there yet.
func TestTestsOfWeaknessesAreNamed(t *testing.T) {
	all := katalystRows(t)
	has := map[string]bool{}
	after := regexp.MustCompile(`\.Test([ER]\d+)[A-Z]`)
	for name := range functions(t) {
		match := after.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		has[match[1]] = true
		if !slices.Contains(all[match[1]].tests, name) {
			t.Errorf("%s is not in the row %s", name, match[1])
		}
	}
	for _, row := range weaknesses {
		if !has[row] && !all[row].notYet {
			t.Errorf("no test is named after %s", row)
		}
	}
}

// TestKatalystMetrics checks that our metrics beside Katalyst's are in docs/metrics.md, and all of eviction plugins
// here.
func TestKatalystMetrics(t *testing.T) {
	metrics := func(file string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile("`plimsoll_(eviction_)?plugin_[a-z_]+`").FindAllString(string(text), -1)
		slices.Sort(found)
		return slices.Compact(found)
	}
	here, all := metrics(katalyst), metrics(root+"/docs/metrics.md")
	if len(all) < 5 || !slices.Equal(here, all) {
		t.Errorf("docs/katalyst.md has the metrics\n%q, docs/metrics.md\n%q", here, all)
	}
}
