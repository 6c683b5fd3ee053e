package parity

import (
	"go/ast"
	"go/constant"
	"go/types"
	"strings"
)

const (
	configPackage  = stockModule + "pkg/kubelet/apis/config"
	optionsPackage = stockModule + "cmd/kubelet/app/options"
	eventsPackage  = stockModule + "pkg/kubelet/events"
	gatePackage    = "k8s.io/component-base/featuregate"
)

// uses calls visit for every name of another package that a package mentions.
func (s *source) uses(visit func(types.Object)) {
	s.each(func(n ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok {
			return
		}
		if obj := s.info.Uses[id]; obj != nil && obj.Pkg() != nil && obj.Pkg().Path() != s.ImportPath {
			visit(obj)
		}
	})
}

// fields calls visit for every field that a package selects, with the name of the struct that declares it.
func (s *source) fields(visit func(owner *types.TypeName, field string)) {
	s.each(func(n ast.Node) {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return
		}
		selection := s.info.Selections[selector]
		if selection == nil || selection.Kind() != types.FieldVal {
			return
		}
		// Every selection on the path counts: the last field may belong to an embedded struct.
		at := selection.Recv()
		for _, i := range selection.Index() {
			if pointer, ok := at.Underlying().(*types.Pointer); ok {
				at = pointer.Elem()
			}
			inner, ok := at.Underlying().(*types.Struct)
			if !ok {
				return
			}
			if named, ok := types.Unalias(at).(*types.Named); ok && named.Obj().Pkg() != nil {
				visit(named.Obj(), inner.Field(i).Name())
			}
			at = inner.Field(i).Type()
		}
	})
}

// text returns the value of an expression that is a constant string.
func (s *source) text(e ast.Expr) (string, bool) {
	value := s.info.Types[e].Value
	if value == nil || value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(value), true
}

// texts calls visit for every constant string in a package.
func (s *source) texts(visit func(string)) {
	s.each(func(n ast.Node) {
		if e, ok := n.(ast.Expr); ok {
			if text, ok := s.text(e); ok {
				visit(text)
			}
		}
	})
}

// collect runs a collector over the three kinds of packages of a section.
func (t *tree) collect(s *section, collector func(*source, places) error, libraryImports ...string) error {
	stock, err := t.stock()
	if err != nil {
		return err
	}
	ours, err := t.ours()
	if err != nil {
		return err
	}
	library, err := t.library(libraryImports...)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		sources []*source
		into    places
	}{{stock, s.stock}, {ours, s.ours}, {library, s.library}} {
		for _, src := range kind.sources {
			if err := collector(src, kind.into); err != nil {
				return err
			}
		}
	}
	return nil
}

func named(t types.Type, pkg, name string) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == pkg && n.Obj().Name() == name
}

func lastPart(path string) string { return path[strings.LastIndex(path, "/")+1:] }
