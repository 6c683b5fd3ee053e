package parity

import (
	"context"
	"go/constant"
	"go/types"
)

func gateSection(_ context.Context, t *tree) (*section, error) {
	s := newSection(gates,
		"Gates that the stock packages which this program replaces ask for, and those that ours ask for. Gates that only "+
			"packages of stock ask for work as they do there.")
	return s, t.collect(s, func(src *source, into places) error {
		src.uses(func(obj types.Object) {
			gate, ok := obj.(*types.Const)
			if ok && named(gate.Type(), gatePackage, "Feature") {
				into.add(constant.StringVal(gate.Val()), src.short())
			}
		})
		return nil
	}, stockModule+"pkg/features")
}
