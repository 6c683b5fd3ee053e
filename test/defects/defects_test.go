// Package defects compares docs/defects.md, the list of stock's defects, with the tests that it names and with the
// stock source.
package defects

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root  = "../.."
	table = root + "/docs/defects.md"
	// last is the number of the last row.
	last = 57
)

// row is a line of the table: tests are those of ours, beside those that show stock.
type row struct {
	what, noStock string
	tests, beside []string
}

func rows(t *testing.T) map[int]row {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	out := map[int]row{}
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		id, isRow := strings.CutPrefix(cells[0], "D")
		n, err := strconv.Atoi(id)
		if !isRow || err != nil {
			continue
		}
		if len(cells) != 4 {
			t.Fatalf("D%d has %d cells, want 4", n, len(cells))
		}
		if _, twice := out[n]; twice {
			t.Errorf("D%d is there twice", n)
		}
		r := row{what: cells[1], tests: strings.Split(cells[2], ", ")}
		if reason, none := strings.CutPrefix(cells[3], "– "); none {
			r.noStock = reason
		} else {
			r.beside = strings.Split(cells[3], ", ")
		}
		out[n] = r
	}
	return out
}

// function is a test function; stock is true if it uses something of stock's.
type function struct{ stock bool }

// functions returns the test functions below a folder, as package.Test; packages are named by their path below root's
// folder, pkg/kubelet itself is kubelet.
func functions(t *testing.T) map[string]function {
	t.Helper()
	out := map[string]function{}
	for folder, prefix := range map[string]string{
		"pkg/kubelet": "", "test/e2e_node": "e2e_node", "test/defects": "defects", "test/agentlife": "agentlife",
		"test/plugins": "plugins", "test/katalyst": "katalyst",
	} {
		base := filepath.Join(root, folder)
		err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(base, filepath.Dir(path))
			if err != nil {
				return err
			}
			pkg := filepath.ToSlash(filepath.Join(prefix, rel))
			if pkg == "." {
				pkg = "kubelet"
			}
			return collect(out, pkg, path)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func collect(out map[string]function, pkg, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			out[pkg+"."+fn.Name.Name] = function{stock: namesStock(fn.Body)}
		}
	}
	return nil
}

func namesStock(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && strings.Contains(strings.ToLower(id.Name), "stock")
		return !found
	})
	return found
}

func TestEveryRowIsThere(t *testing.T) {
	all := rows(t)
	for n := 1; n <= last; n++ {
		r, ok := all[n]
		switch {
		case !ok:
			t.Errorf("D%d is missing", n)
		case r.what == "":
			t.Errorf("D%d does not say what it is", n)
		case len(r.beside) == 0 && len(r.noStock) < 10:
			t.Errorf("D%d shows nothing of stock and does not say why", n)
		}
	}
	if len(all) != last {
		t.Errorf("%d rows, want %d", len(all), last)
	}
}

func TestNamedTestsExist(t *testing.T) {
	known := functions(t)
	for n, r := range rows(t) {
		for _, name := range r.tests {
			if _, ok := known[name]; !ok {
				t.Errorf("D%d: there is no test %q", n, name)
			}
		}
		for _, name := range r.beside {
			name, bySource := strings.CutPrefix(name, "source ")
			if f, ok := known[name]; !ok || !f.stock {
				t.Errorf("D%d: there is no test %q that has stock in it", n, name)
			}
			if bySource != strings.HasPrefix(name, "defects.") {
				t.Errorf("D%d: %s is said to look at the source: %v", n, name, bySource)
			}
		}
	}
}

var named = regexp.MustCompile(`\.TestD(\d+)\D`)

// TestTestsOfRowsAreNamed checks that a test that is named after a row is in the table.
func TestTestsOfRowsAreNamed(t *testing.T) {
	all := rows(t)
	found := 0
	for name := range functions(t) {
		match := named.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		found++
		n, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		if r := all[n]; !slices.Contains(r.tests, name) && !slices.Contains(r.beside, name) &&
			!slices.Contains(r.beside, "source "+name) {
			t.Errorf("%s is not in the row D%d", name, n)
		}
	}
	if found < last {
		t.Errorf("only %d tests are named after rows", found)
	}
}
