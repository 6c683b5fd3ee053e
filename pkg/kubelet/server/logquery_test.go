package server

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"
)

//go:linkname stockParse k8s.io/kubernetes/pkg/kubelet.newNodeLogQuery
func stockParse(url.Values) (unsafe.Pointer, field.ErrorList)

//go:linkname stockValidate k8s.io/kubernetes/pkg/kubelet.(*nodeLogQuery).validate
func stockValidate(query unsafe.Pointer) field.ErrorList

// Random queries: rejections and their messages equal stock's.
func TestLogQueryEqualsStock(t *testing.T) {
	values := map[string][]string{
		"query": {
			"kubelet", "docker@1.service", "bad;name", "", "  ", `\a`, "a/b", "no/such.log", strings.Repeat("x", 257), "..",
			"../etc/passwd",
		},
		"sinceTime": {"2026-01-02T03:04:05Z", "yesterday", ""},
		"untilTime": {"2025-01-02T03:04:05Z", "2027-01-02T03:04:05Z", "now"},
		"boot":      {"0", "-1", "1", "x"},
		"tailLines": {"5", "-1", "100001", "100000", "many"},
		"pattern":   {"a.*b", "(", ""},
	}
	rapid.Check(t, func(rt *rapid.T) {
		query := url.Values{}
		for _, name := range []string{"query", "sinceTime", "untilTime", "boot", "tailLines", "pattern"} {
			for range rapid.IntRange(0, map[bool]int{true: 5, false: 1}[name == "query"]).Draw(rt, name) {
				query.Add(name, rapid.SampledFrom(values[name]).Draw(rt, "value"))
			}
		}
		ours, ourErrs := parseLogQuery(query)
		stock, stockErrs := stockParse(query)
		sameErrors(rt, ourErrs, stockErrs)
		if (ours == nil) != (stock == nil) {
			rt.Fatalf("a query: ours %v, stock's %v", ours != nil, stock != nil)
		}
		if ours != nil {
			sameErrors(rt, ours.validate("/var/log/"), stockValidate(stock))
		}
	})
}

func sameErrors(rt *rapid.T, ours, stock field.ErrorList) {
	rt.Helper()
	text := func(list field.ErrorList) map[string]bool {
		set := map[string]bool{}
		for _, err := range list {
			set[err.Error()] = true
		}
		return set
	}
	got, want := text(ours), text(stock)
	for e := range got {
		if !want[e] {
			rt.Errorf("ours alone: %s", e)
		}
	}
	for e := range want {
		if !got[e] {
			rt.Errorf("stock's alone: %s", e)
		}
	}
}

// No valid service name can be parsed as an option or as more than one argument.
func TestJournalArgumentsCannotBeInjected(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.String().Draw(rt, "name")
		if validateServiceName(name) != nil {
			return
		}
		for _, r := range name {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:@", r) {
				rt.Fatalf("%q passes with %q", name, r)
			}
		}
		args := journalArguments([]string{name}, logOptions{pattern: "--flush"})
		if args[len(args)-2] != "--unit="+name || args[len(args)-1] != "--grep=--flush" {
			rt.Fatalf("arguments %q", args)
		}
	})
}

func TestFilesOutsideTheLogDirectory(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"link.log", "/link.log", "../" + filepath.Base(filepath.Dir(outside)) + "/secret", outside,
	} {
		if err := checkExistsBelow(dir, name); err == nil {
			t.Errorf("%s is found below the log directory", name)
		}
		if err := copyRegular(t.Context(), os.Stderr, dir, name); err == nil {
			t.Errorf("%s is served", name)
		}
	}
}
