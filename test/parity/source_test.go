package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	root        = "../.."
	ourModule   = "github.com/plimsoll-project/plimsoll/"
	stockModule = "k8s.io/kubernetes/"
	stockMain   = stockModule + "cmd/kubelet"
)

// replaced are the stock packages that this program does not link. What they use must be used by ours as well.
var replaced = []string{
	stockMain,
	stockModule + "cmd/kubelet/app",
	stockModule + "pkg/kubelet",
	stockModule + "pkg/kubelet/eviction",
	stockModule + "pkg/kubelet/nodeshutdown",
	stockModule + "pkg/kubelet/preemption",
}

// listed is the output of the go command about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// source is a package with type information.
type source struct {
	listed
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// tree is all source that is compared: the packages of the build for Linux, without tests.
type tree struct {
	set      *token.FileSet
	packages map[string]listed
	importer types.ImporterFrom
	checked  map[string]*source
	// linkedByOurs are all packages of our program, linkedByStock those of the stock kubelet.
	linkedByOurs, linkedByStock map[string]bool
}

// load loads the tree once for all tests. The go command compiles what is not in its cache.
var load = sync.OnceValues(func() (*tree, error) {
	t := &tree{set: token.NewFileSet(), packages: map[string]listed{}, checked: map[string]*source{}}
	var err error
	if t.linkedByOurs, err = t.list("./cmd/kubelet"); err != nil {
		return nil, err
	}
	if t.linkedByStock, err = t.list(stockMain); err != nil {
		return nil, err
	}
	open := func(path string) (io.ReadCloser, error) {
		if t.packages[path].Export == "" {
			return nil, fmt.Errorf("no compiled form of %s", path)
		}
		return os.Open(t.packages[path].Export)
	}
	var ok bool
	if t.importer, ok = importer.ForCompiler(t.set, "gc", open).(types.ImporterFrom); !ok {
		return nil, errors.New("the importer of compiled packages has changed")
	}
	return t, nil
})

func mustLoad(t *testing.T) *tree {
	t.Helper()
	loaded, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// list adds a program's packages to the tree and returns their paths.
func (t *tree) list(program string) (map[string]bool, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports", program)
	cmd.Dir = root
	// As the parts of the node are built: under the race detector cgo is on, and everything would be compiled once more.
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("go list %s: %w\n%s", program, err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list %s: %w", program, err)
	}
	paths := map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return paths, nil
		} else if err != nil {
			return nil, fmt.Errorf("output of go list %s: %w", program, err)
		}
		t.packages[p.ImportPath] = p
		paths[p.ImportPath] = true
	}
}

// check parses a package and resolves its names.
func (t *tree) check(path string) (*source, error) {
	if s := t.checked[path]; s != nil {
		return s, nil
	}
	s := &source{listed: t.packages[path], info: &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
	}}
	for _, name := range s.GoFiles {
		file, err := parser.ParseFile(t.set, filepath.Join(s.Dir, name), nil, 0)
		if err != nil {
			return nil, fmt.Errorf("parse: %w", err)
		}
		s.files = append(s.files, file)
	}
	var err error
	if s.types, err = (&types.Config{Importer: t.importer}).Check(path, t.set, s.files, s.info); err != nil {
		return nil, fmt.Errorf("resolve names of %s: %w", path, err)
	}
	t.checked[path] = s
	return s, nil
}

// stock returns the replaced packages, in order.
func (t *tree) stock() ([]*source, error) { return t.checkAll(replaced) }

// ours returns all packages of our program that we wrote.
func (t *tree) ours() ([]*source, error) {
	return t.checkAll(pick(t.linkedByOurs, func(path string) bool { return strings.HasPrefix(path, ourModule) }))
}

// library returns the stock kubelet's packages that our program links and that import another package.
func (t *tree) library(imports ...string) ([]*source, error) {
	return t.checkAll(pick(t.linkedByOurs, func(path string) bool {
		if !strings.HasPrefix(path, stockModule+"pkg/kubelet/") || slices.Contains(replaced, path) {
			return false
		}
		return slices.ContainsFunc(imports, func(i string) bool { return slices.Contains(t.packages[path].Imports, i) })
	}))
}

func (t *tree) checkAll(paths []string) ([]*source, error) {
	var all []*source
	for _, path := range paths {
		s, err := t.check(path)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func pick(set map[string]bool, want func(string) bool) []string {
	var paths []string
	for path := range set {
		if want(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// short returns the name of a package in the document.
func (s *source) short() string {
	return strings.TrimPrefix(strings.TrimPrefix(s.ImportPath, ourModule), stockModule)
}

// each calls visit for every node of every file.
func (s *source) each(visit func(ast.Node)) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				visit(n)
			}
			return true
		})
	}
}
