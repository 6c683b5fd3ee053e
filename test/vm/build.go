package vm

import (
	"context"
	"io"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// Build builds everything that a machine needs, as far as it is missing: packages of this machine, parts, both
// kubelets, the images of pods, and the image of the machine.
func Build(ctx context.Context, layout cluster.Layout, log io.Writer) (Image, error) {
	if err := InstallPackages(ctx, log); err != nil {
		return Image{}, err
	}
	builder := build.Builder{Root: layout.Root, Out: layout.Bin, Log: log}
	if err := builder.All(ctx, layout.Images, true); err != nil {
		return Image{}, err
	}
	if err := builder.Build(ctx, []build.Part{build.StockKubelet()}); err != nil {
		return Image{}, err
	}
	return BuildImage(ctx, layout, log)
}
