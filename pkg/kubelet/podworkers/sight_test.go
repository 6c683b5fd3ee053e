package podworkers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"
)

// The words for steps are of steps that there are: the names are read from the source of podsync.
func TestWordsAreOfSteps(t *testing.T) {
	files, err := filepath.Glob("../podsync/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal("no source", err)
	}
	names := map[string]bool{stepStatus: true, stepRuntimePod: true}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if method, ok := decl.(*ast.FuncDecl); ok && method.Recv != nil && method.Name.Name == "Name" {
				ast.Inspect(method, func(n ast.Node) bool {
					if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
						name, _ := strconv.Unquote(literal.Value)
						names[name] = true
					}
					return true
				})
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d steps found", len(names))
	}
	for name := range words {
		if !names[name] {
			t.Errorf("there is no step %q", name)
		}
	}
}
