// Package monitoring checks the rules of config/prometheus and the dashboards of config/grafana against the metrics of
// the program and the runbook. promtool checks the rules themselves: make rules.
package monitoring

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../"

// stockMetrics are the metrics of stock that rules and dashboards use.
var stockMetrics = []string{"kubelet_evictions"}

type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (list []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	text, err := os.ReadFile(root + "config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

type panel struct {
	ID      int
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID string }
}

func dashboards(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob(root + "config/grafana/*.json")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	all := map[string][]panel{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title string
			Panels     []panel
		}
		if err := json.Unmarshal(text, &d); err != nil || d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = d.Panels
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\b(plimsoll|kubelet)_[a-z0-9_]+\b`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// metricsIn returns the metrics of an expression.
func metricsIn(expr string) (names []string) {
	for _, name := range metricName.FindAllString(expr, -1) {
		names = append(names, suffix.ReplaceAllString(name, ""))
	}
	return names
}

// defined returns the metrics that the program defines: string literals of its source. Some packages put the same
// prefix, which is a literal of its own, before all of theirs.
func defined(t *testing.T) map[string]bool {
	t.Helper()
	literal := regexp.MustCompile(`"(plimsoll_[a-z0-9_]+)"`)
	prefix := regexp.MustCompile(`"(plimsoll_[a-z0-9_]+_)"`)
	part := regexp.MustCompile(`"([a-z0-9_]+)"`)
	found := map[string]bool{}
	err := filepath.WalkDir(root+"pkg", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = true
		}
		for _, p := range prefix.FindAllStringSubmatch(string(text), -1) {
			for _, m := range part.FindAllStringSubmatch(string(text), -1) {
				found[p[1]+m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Every metric that rules and dashboards use is defined by the program and explained, or is one of stock.
func TestMetricsExist(t *testing.T) {
	program := defined(t)
	explained, err := os.ReadFile(root + "docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	check := func(where, expr string) {
		names := metricsIn(expr)
		if len(names) == 0 {
			t.Errorf("%s: no metric in %q", where, expr)
		}
		for _, name := range names {
			known := program[name] && strings.Contains(string(explained), "| `"+name+"` |")
			if !known && !slices.Contains(stockMetrics, name) {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert+r.Record, r.Expr)
	}
	for file, panels := range dashboards(t) {
		for _, p := range panels {
			for _, target := range p.Targets {
				check(file+": "+p.Title, target.Expr)
			}
		}
	}
}

// Every alert has a section of the runbook, which its annotation refers to, and a unit test; every section has an
// alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	runbook, err := os.ReadFile(root + "docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(root + "config/prometheus/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^## (\S+)$`).FindAllStringSubmatch(string(runbook), -1)
	var alerts []string
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts = append(alerts, r.Alert)
		anchor := "docs/runbook.md#" + strings.ToLower(r.Alert)
		if !strings.HasSuffix(r.Annotations["runbook_url"], anchor) || r.Annotations["summary"] == "" {
			t.Errorf("%s: annotations %q", r.Alert, r.Annotations)
		}
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: labels %q", r.Alert, r.Labels)
		}
		if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n") {
			t.Errorf("%s has no test in rules_test.yaml", r.Alert)
		}
	}
	var titles []string
	for _, s := range sections {
		titles = append(titles, s[1])
	}
	if !slices.Equal(titles, alerts) {
		t.Errorf("alerts %q, sections of the runbook %q", alerts, titles)
	}
}

// Panels have a title, an expression, and a place of their own.
func TestDashboards(t *testing.T) {
	for file, panels := range dashboards(t) {
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range panels {
			if p.Title == "" || len(p.Targets) == 0 || ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %d: %+v", file, p.ID, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q overlaps with %q", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
