package architecture

import (
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../../"

// pkg is a package as it is built for Linux, without its tests.
type pkg struct {
	// name is its directory below the root of the module.
	name    string
	imports []string
	files   []*ast.File
	// fileNames has the name of each of files.
	fileNames []string
}

// program returns the packages of the program. Sources are read here and not by the go command, so that "go test" does
// not take a result from its cache after they have changed.
func program(t *testing.T) []pkg {
	t.Helper()
	return append(packagesBelow(t, "cmd"), packagesBelow(t, "pkg")...)
}

func packagesBelow(t *testing.T, dir string) (pkgs []pkg) {
	t.Helper()
	linux := build.Default
	linux.GOOS = "linux"
	err := filepath.WalkDir(root+dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if entry.Name() == "testdata" {
			return fs.SkipDir
		}
		listed, err := linux.ImportDir(path, 0)
		if err != nil {
			if none := (*build.NoGoError)(nil); errors.As(err, &none) {
				return nil
			}
			return err
		}
		if len(listed.GoFiles) == 0 {
			return nil
		}
		p := pkg{name: strings.TrimPrefix(filepath.ToSlash(path), root), imports: listed.Imports, fileNames: listed.GoFiles}
		for _, file := range listed.GoFiles {
			p.files = append(p.files, parse(t, filepath.Join(path, file), nil))
		}
		pkgs = append(pkgs, p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) == 0 {
		t.Fatalf("there are no packages below %s", dir)
	}
	return pkgs
}

// packageOf returns a package with one file.
func packageOf(t *testing.T, name, text string) pkg {
	t.Helper()
	f := parse(t, "file.go", "package p; "+text)
	p := pkg{name: name, files: []*ast.File{f}, fileNames: []string{"file.go"}}
	for _, spec := range f.Imports {
		p.imports = append(p.imports, pathOf(spec))
	}
	return p
}

func parse(t *testing.T, name string, text any) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func pathOf(spec *ast.ImportSpec) string {
	path, _ := strconv.Unquote(spec.Path.Value) // the parser has accepted it
	return path
}

// usesOf lists the names of the package path that a file refers to; "." is among them if it imports all of them without
// a name.
func usesOf(f *ast.File, path string) (names []string) {
	locals := localNames(f, path)
	if slices.Contains(locals, ".") {
		names = append(names, ".")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(locals, x.Name) {
				names = append(names, selector.Sel.Name)
			}
		}
		return true
	})
	return names
}

// localNames lists the names by which a file refers to a package. It is empty if the file does not import the package.
func localNames(f *ast.File, path string) (names []string) {
	for _, spec := range f.Imports {
		switch {
		case pathOf(spec) != path:
		case spec.Name != nil:
			names = append(names, spec.Name.Name)
		default:
			names = append(names, path[strings.LastIndex(path, "/")+1:])
		}
	}
	return names
}

// startsGoroutine reports a go statement, and the method Go of wait groups and the like.
func startsGoroutine(f *ast.File) bool { return hasGoStatement(f) || callsMethod(f, "Go") }

func hasGoStatement(n ast.Node) bool {
	return contains(n, func(n ast.Node) bool { _, ok := n.(*ast.GoStmt); return ok })
}

// nameOf returns the name of a declaration, with the type of the receiver before that of a method. It is empty for
// declarations of other kinds than functions.
func nameOf(d ast.Decl) string {
	function, ok := d.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if function.Recv == nil {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver = pointer.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + function.Name.Name
	}
	return function.Name.Name
}

func callsMethod(f *ast.File, name string) bool {
	return contains(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		return ok && selector.Sel.Name == name
	})
}

func contains(n ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || is(n)
		return !found
	})
	return found
}

// In tests time passes in bubbles of testing/synctest only: a test that sleeps outside of one is slow, or flaky, or
// both.
func TestSleepOnlyInBubbles(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "test"} {
		for _, file := range testFilesBelow(t, dir) {
			f := parse(t, file, nil)
			if slices.Contains(usesOf(f, "time"), "Sleep") && len(localNames(f, "testing/synctest")) == 0 {
				t.Errorf("%s sleeps outside of a bubble: await a condition", file)
			}
		}
	}
}

// A test that skips itself looks like one that passed. It fails where it cannot run, and says what it needs.
func TestNoTestSkipsItself(t *testing.T) {
	for _, dir := range []string{"cmd", "pkg", "test"} {
		for _, file := range testFilesBelow(t, dir) {
			for _, line := range skipsOf(t, file, nil) {
				t.Errorf("%s:%d skips a test: let it fail, with what it needs", file, line)
			}
		}
	}
	for text, want := range map[string]int{
		`func TestX(t *testing.T) { t.Skip() }`:                                     1,
		`func helper(tb testing.TB) { if tb != nil { tb.Skipf("") } }`:              1,
		`func TestX(t *testing.T) { t.Run("", func(t *testing.T) { t.SkipNow() })}`: 1,
		`type k struct { t *testing.T }; func (k k) f() { k.t.Skip() }`:             1,
		`func action(t *rapid.T) { t.Skip() }`:                                      0,
	} {
		if got := len(skipsOf(t, "x_test.go", "package p; "+text)); got != want {
			t.Errorf("%s: %d skips found, want %d", text, got, want)
		}
	}
}

// skipsOf returns the lines of a file that skip tests. An action of a *rapid.T that cannot be taken is no test.
func skipsOf(t *testing.T, file string, text any) (lines []int) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if function, ok := d.(*ast.FuncDecl); ok && takesRapid(function) {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if selector, ok := call.Fun.(*ast.SelectorExpr); ok &&
					slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, selector.Sel.Name) {
					lines = append(lines, set.Position(call.Pos()).Line)
				}
			}
			return true
		})
	}
	return lines
}

func takesRapid(function *ast.FuncDecl) bool {
	return slices.ContainsFunc(function.Type.Params.List, func(field *ast.Field) bool {
		pointer, ok := field.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		selector, ok := pointer.X.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		x, ok := selector.X.(*ast.Ident)
		return ok && x.Name == "rapid" && selector.Sel.Name == "T"
	})
}

func testFilesBelow(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root+dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("there are no tests below %s", dir)
	}
	return files
}

// Two packages that remove images, each by its own view of the node, would remove what the other one keeps.
func TestImagesAreRemovedInOnePlace(t *testing.T) {
	found := 0
	for _, p := range program(t) {
		for _, f := range p.files {
			switch calls := callsMethod(f, "RemoveImage"); {
			case !calls:
			case p.name == "pkg/kubelet/reclaim":
				found++
			default:
				t.Errorf("%s removes images; only pkg/kubelet/reclaim does", p.name)
			}
		}
	}
	if found == 0 {
		t.Error("no package removes images")
	}
}
