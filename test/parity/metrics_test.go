package parity

import (
	"context"
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"strings"
)

const metricsModule = "k8s.io/component-base/metrics"

// metricsPackage returns whether a package has metrics.
func metricsPackage(path string) bool {
	return strings.HasPrefix(path, stockModule) && (lastPart(path) == "metrics" || strings.Contains(path, "/metrics/"))
}

func metricSection(_ context.Context, t *tree) (*section, error) {
	s := newSection("Metrics",
		"Metrics that the replaced packages set, by the name that is scraped, functions of metrics packages that they "+
			"call, and metrics that they define themselves. All other metrics come from packages of stock that both programs "+
			"link.")
	err := t.collect(s, func(src *source, into places) error {
		if metricsPackage(src.ImportPath) {
			return nil
		}
		var failed error
		src.uses(func(obj types.Object) {
			if failed != nil || !metricsPackage(obj.Pkg().Path()) || obj.Parent() != obj.Pkg().Scope() {
				return
			}
			name, err := t.metricName(obj)
			if failed = err; name != "" {
				into.add(name, src.short())
			}
		})
		src.each(func(n ast.Node) {
			if name := src.definedMetric(n); name != "" {
				into.add(name, src.short())
			}
		})
		return failed
	}, stockModule+"pkg/kubelet/metrics", stockModule+"pkg/kubelet/server/metrics")
	if err != nil {
		return nil, err
	}
	described, err := os.ReadFile(ownMetrics)
	if err != nil {
		return nil, fmt.Errorf("metrics of our own: %w", err)
	}
	s.markOwn(string(described))
	return s, nil
}

// markOwn marks the metrics with our prefix that are documented. One that is not documented is a difference.
func (s *section) markOwn(described string) {
	for name := range s.ours {
		if strings.HasPrefix(name, "plimsoll_") && strings.Contains(described, "| `"+name+"` |") {
			s.own[name] = "see [metrics.md](metrics.md)"
		}
	}
}

// ownMetrics is the document of our own metrics.
const ownMetrics = root + "/docs/metrics.md"

// metricName returns the scraped name of a metric variable, or the name of a function with its package.
func (t *tree) metricName(obj types.Object) (string, error) {
	switch obj.(type) {
	case *types.Func:
		return strings.TrimPrefix(obj.Pkg().Path(), stockModule) + "." + obj.Name() + "()", nil
	case *types.Var:
	default:
		return "", nil
	}
	src, err := t.check(obj.Pkg().Path())
	if err != nil {
		return "", err
	}
	name := strings.TrimPrefix(obj.Pkg().Path(), stockModule) + "." + obj.Name()
	src.each(func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != len(spec.Names) {
			return
		}
		for i, id := range spec.Names {
			if def := src.info.Defs[id]; def == nil || def.Parent() != src.types.Scope() || id.Name != obj.Name() {
				continue
			}
			ast.Inspect(spec.Values[i], func(n ast.Node) bool {
				if found := src.definedMetric(n); found != "" {
					name = found
				}
				return true
			})
		}
	})
	return name, nil
}

// describes is the function that declares a metric of a collector.
const describes = metricsModule + ".NewDesc"

// definedMetric returns the scraped name of the metric of a literal of options or a description.
func (s *source) definedMetric(n ast.Node) string {
	if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
			if f, ok := s.info.Uses[selector.Sel].(*types.Func); ok && f.FullName() == describes {
				name, _ := s.text(call.Args[0])
				return name
			}
		}
		return ""
	}
	literal, ok := n.(*ast.CompositeLit)
	if !ok {
		return ""
	}
	of, ok := types.Unalias(s.info.Types[literal].Type).(*types.Named)
	if !ok || of.Obj().Pkg() == nil || of.Obj().Pkg().Path() != metricsModule ||
		!strings.HasSuffix(of.Obj().Name(), "Opts") {
		return ""
	}
	parts := map[string]string{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				parts[key.Name], _ = s.text(pair.Value)
			}
		}
	}
	var name []string
	for _, part := range []string{parts["Namespace"], parts["Subsystem"], parts["Name"]} {
		if part != "" {
			name = append(name, part)
		}
	}
	return strings.Join(name, "_")
}
