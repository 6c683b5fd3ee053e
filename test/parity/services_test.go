package parity

import (
	"context"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// registration is the name of a generated function that adds a service to a gRPC server.
var registration = regexp.MustCompile(`^Register(\w+)Server$`)

// compareServices compares the gRPC services that stock's server package serves with those that ours do.
func (s *section) compareServices(t *tree) error {
	theirs, err := t.check(stockModule + "pkg/kubelet/server")
	if err != nil {
		return err
	}
	ours, err := t.ours()
	if err != nil {
		return err
	}
	collect := func(src *source, into places) {
		src.uses(func(obj types.Object) {
			if m := registration.FindStringSubmatch(obj.Name()); m != nil &&
				strings.HasPrefix(obj.Pkg().Path(), "k8s.io/kubelet/pkg/apis/") {
				into.add("gRPC: "+strings.TrimPrefix(obj.Pkg().Path(), "k8s.io/kubelet/pkg/apis/")+"."+m[1], src.short())
			}
		})
	}
	collect(theirs, s.stock)
	for _, src := range ours {
		collect(src, s.ours)
	}
	return nil
}

func linkedSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(packages, "Packages that only one of the two programs links. What both link is the same code.")
	for path := range t.linkedByStock {
		if !t.linkedByOurs[path] {
			s.stock.add(path, "cmd/kubelet")
		}
	}
	for path := range t.linkedByOurs {
		if !t.linkedByStock[path] && !strings.HasPrefix(path, ourModule) {
			s.ours.add(path, "cmd/kubelet")
		}
	}
	return s, nil
}

func callSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(calls,
		"Functions and methods of other modules that the replaced packages call, and whose name does not occur in our "+
			"packages. Whatever a manager is asked to do by stock, it must be asked here.")
	stock, err := t.stock()
	if err != nil {
		return nil, err
	}
	ours, err := t.ours()
	if err != nil {
		return nil, err
	}
	spoken := namesIn(ours)
	for _, src := range stock {
		src.uses(func(obj types.Object) {
			fn, ok := obj.(*types.Func)
			library := ok && strings.Contains(obj.Pkg().Path(), ".") && !slices.Contains(replaced, obj.Pkg().Path())
			if !library {
				return
			}
			name := fn.Name()
			if fn.Signature().Recv() == nil && strings.HasPrefix(obj.Pkg().Path(), stockModule+"pkg/kubelet/") {
				name = fn.FullName()
			}
			if !spoken[name] {
				s.stock.add(fn.FullName(), src.short())
			}
		})
	}
	return s, nil
}

// namesIn returns all names that packages mention. Our packages declare small interfaces of what they use, so that a
// method has only its bare name; a function also has its full name.
func namesIn(sources []*source) map[string]bool {
	spoken := map[string]bool{}
	for _, src := range sources {
		src.each(func(n ast.Node) {
			if id, ok := n.(*ast.Ident); ok {
				spoken[id.Name] = true
			}
		})
		src.uses(func(obj types.Object) {
			if fn, ok := obj.(*types.Func); ok {
				spoken[fn.FullName()] = true
			}
		})
	}
	return spoken
}
