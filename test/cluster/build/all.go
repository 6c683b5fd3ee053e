package build

import "context"

// All builds what a cluster needs: packages of the distribution, programs, and image archives in the directory images.
// With kubelet false, the kubelet of this repository is not built.
func (b Builder) All(ctx context.Context, images string, kubelet bool) error {
	if err := InstallPackages(ctx, b.Log); err != nil {
		return err
	}
	parts := ClusterParts()
	if kubelet {
		parts = append(parts, Kubelet())
	}
	if err := b.Build(ctx, parts); err != nil {
		return err
	}
	list, err := b.Images()
	if err != nil {
		return err
	}
	_, err = WriteImages(images, list)
	return err
}
