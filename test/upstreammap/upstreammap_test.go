// Package upstreammap compares docs/upstream-map.md with the pinned stock source, so that an upgrade shows which
// functions have changed.
package upstreammap

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var accept = flag.Bool("accept", false, "record the present stock functions as looked at")

const (
	root    = "../.."
	mapFile = root + "/docs/upstream-map.md"
	sumFile = root + "/docs/upstream-map.sum"
)

// folders are the directories of which every Go file for Linux must be in the map.
var folders = []string{"pkg/kubelet", "pkg/kubelet/eviction", "pkg/kubelet/preemption", "cmd/kubelet/app"}

// notForLinux are the suffixes of files of other platforms.
var notForLinux = []string{
	"_test.go", "_windows.go", "_others.go", "_other.go", "_unsupported.go", "doc.go", "types.go",
}

type row struct {
	file      string
	functions []string
	ours      []string
}

func rows(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile(mapFile)
	if err != nil {
		t.Fatal(err)
	}
	var out []row
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) == 3 && strings.HasSuffix(cells[0], ".go") {
			out = append(out, row{cells[0], strings.Split(cells[1], ", "), strings.Split(cells[2], ", ")})
		}
	}
	if len(out) == 0 {
		t.Fatalf("no rows in %s", mapFile)
	}
	return out
}

func stockDir(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// functions returns the digest of each function in a file, by name; methods of the same name on several types are
// joined.
func functions(t *testing.T, path string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[string]*strings.Builder{}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			if bodies[fn.Name.Name] == nil {
				bodies[fn.Name.Name] = &strings.Builder{}
			}
			if err := printer.Fprint(bodies[fn.Name.Name], set, fn); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := map[string]string{}
	for name, body := range bodies {
		out[name] = fmt.Sprintf("%x", sha256.Sum256([]byte(body.String())))[:12]
	}
	return out
}

func stockFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(stockDir(t), folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			skip := slices.ContainsFunc(notForLinux, func(end string) bool { return strings.HasSuffix(e.Name(), end) })
			if strings.HasSuffix(e.Name(), ".go") && !skip {
				files = append(files, folder+"/"+e.Name())
			}
		}
	}
	return files
}

func TestEveryStockFunctionIsMapped(t *testing.T) {
	mapped := map[string][]string{}
	for _, r := range rows(t) {
		mapped[r.file] = append(mapped[r.file], r.functions...)
	}
	for _, file := range stockFiles(t) {
		names := functions(t, filepath.Join(stockDir(t), file))
		for name := range names {
			if !slices.Contains(mapped[file], name) && !slices.Contains(mapped[file], "*") {
				t.Errorf("%s: %s is in no row of the map", file, name)
			}
		}
		for _, name := range mapped[file] {
			if _, ok := names[name]; !ok && name != "*" {
				t.Errorf("%s: the map names %s, which is not there", file, name)
			}
		}
	}
}

func TestOursExists(t *testing.T) {
	for _, r := range rows(t) {
		for _, ours := range r.ours {
			if _, err := os.Stat(filepath.Join(root, ours)); err != nil {
				t.Errorf("%s → %s: %v", r.file, ours, err)
			}
		}
	}
}

func TestStockHasNotChanged(t *testing.T) {
	var now []string
	for _, file := range stockFiles(t) {
		for name, digest := range functions(t, filepath.Join(stockDir(t), file)) {
			now = append(now, fmt.Sprintf("%s %s %s", file, name, digest))
		}
	}
	slices.Sort(now)
	if *accept {
		if err := os.WriteFile(sumFile, []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(sumFile)
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range now {
		if !slices.Contains(seen, line) {
			t.Errorf("new or changed since it was last looked at: %s", line)
		}
	}
	for _, line := range seen {
		if !slices.Contains(now, line) {
			t.Errorf("gone or changed since it was last looked at: %s", line)
		}
	}
}
