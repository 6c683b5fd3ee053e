package containerspec

import (
	"context"
	"errors"
	"fmt"

	securejoin "github.com/cyphar/filepath-securejoin"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	envutil "k8s.io/kubernetes/pkg/kubelet/util/env"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// fileKey returns the value of a key in an env file of one of the pod's volumes (KEP-3721). An empty value counts as
// missing. Errors of the parser are only logged, because they contain parts of the file.
func (b *envBuilder) fileKey(ctx context.Context, ref *v1.FileKeySelector) (string, bool, error) {
	volume, known := b.request.volumes[ref.VolumeName]
	if !known || volume.Mounter == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	root, err := volumeutil.GetPath(volume.Mounter)
	if err != nil {
		return "", false, fmt.Errorf("failed to get host path for volume %q: %w", ref.VolumeName, err)
	}
	// Symbolic links in the volume are resolved as if the volume were the root.
	path, err := securejoin.SecureJoin(root, ref.Path)
	if err != nil {
		return "", false, err
	}
	value, err := envutil.ParseEnv(path, ref.Key)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to parse env file", "pod", klog.KObj(b.request.pod))
		return "", false, errors.New("couldn't parse env file")
	}
	if value == "" && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, path)
	}
	return value, value != "", nil
}
