package parity

import (
	"context"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"
)

const lifecyclePackage = stockModule + "pkg/kubelet/lifecycle"

// reasonArgument is the index of the argument of a recorder's method that is the reason.
var reasonArgument = map[string]int{"Event": 2, "Eventf": 2, "AnnotatedEventf": 3}

func eventSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(events,
		"Reasons of events that the replaced packages write. Reasons that only packages of stock write are written by the "+
			"same code here.")
	err := t.collect(s, func(src *source, into places) error {
		if src.ImportPath == eventsPackage {
			return nil
		}
		src.uses(func(obj types.Object) {
			if reason, ok := obj.(*types.Const); ok && obj.Pkg().Path() == eventsPackage &&
				reason.Val().Kind() == constant.String {
				into.add(constant.StringVal(reason.Val()), src.short())
			}
		})
		src.each(func(n ast.Node) {
			if reason, ok := src.eventReason(n); ok {
				into.add(reason, src.short())
			}
		})
		return nil
	}, eventsPackage)
	if err != nil {
		return nil, err
	}
	return s, t.addTexts(s, "k8s.io/api/core/v1")
}

// eventReason returns the reason of a call of an event recorder, if it is a constant.
func (s *source) eventReason(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	i, ok := reasonArgument[method.Sel.Name]
	if !ok || len(call.Args) <= i {
		return "", false
	}
	return s.text(call.Args[i])
}

func admissionSection(_ context.Context, t *tree) (*section, error) {
	s := newSection("Admission reasons",
		"Reasons of rejected pods: those that the replaced packages know for the label of "+
			"`kubelet_admission_rejections_total` or give themselves, and those that admit handlers of stock give.")
	err := t.collect(s, func(src *source, into places) error {
		src.each(func(n ast.Node) {
			for _, reason := range src.admissionReasons(n) {
				into.add(reason, src.short())
			}
		})
		return nil
	}, lifecyclePackage)
	if err != nil {
		return nil, err
	}
	return s, t.addTexts(s, lifecyclePackage)
}

// admissionReasons returns the constants in a set of reasons, in the result of an admit handler and in the label of the
// rejections metric.
func (s *source) admissionReasons(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.CallExpr:
		if s.mentions(n.Fun, "AdmissionRejectionsTotal") || slices.ContainsFunc(n.Args, func(e ast.Expr) bool {
			return s.mentions(e, "UnexpectedPredicateFailureType")
		}) {
			return s.constants(n.Args)
		}
		if fn, ok := n.Fun.(*ast.SelectorExpr); ok && strings.EqualFold(fn.Sel.Name, "rejectPod") {
			return s.constants(n.Args)
		}
	case *ast.CompositeLit:
		if !named(s.info.Types[n].Type, lifecyclePackage, "PodAdmitResult") {
			return nil
		}
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Reason" {
					return s.constants([]ast.Expr{pair.Value})
				}
			}
		}
	}
	return nil
}

func (s *source) constants(list []ast.Expr) []string {
	var values []string
	for _, e := range list {
		if text, ok := s.text(e); ok && text != "" {
			values = append(values, text)
		}
	}
	return values
}

func (s *source) mentions(e ast.Expr, name string) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == name {
			found = true
		}
		return !found
	})
	return found
}

// addTexts adds a reason as ours if it is a constant string in one of our packages that imports the given one. Our
// packages pass reasons through helpers, so that a call alone does not show them.
func (t *tree) addTexts(s *section, imports string) error {
	ours, err := t.ours()
	if err != nil {
		return err
	}
	for _, src := range ours {
		if !slices.Contains(src.Imports, imports) {
			continue
		}
		src.texts(func(text string) {
			if len(s.stock[text]) > 0 {
				s.ours.add(text, src.short())
			}
		})
	}
	return nil
}
