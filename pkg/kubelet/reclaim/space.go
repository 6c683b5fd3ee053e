package reclaim

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/volume/util/fs"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var errNoImageFs = errors.New("the runtime does not report the path of its images")

// ImageFs reports the path of the runtime's images.
type ImageFs interface {
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// MeasureDisks measures by statfs(2): the node's device at root, the kubelet's directory; the image device at the path
// that the runtime reports.
func MeasureDisks(root string, images ImageFs) Measure {
	return func(ctx context.Context, d snapshot.Device) (Space, error) {
		path := root
		if d == snapshot.ImageDevice {
			info, err := images.ImageFsInfo(ctx)
			if err != nil {
				return Space{}, err
			}
			if len(info.GetImageFilesystems()) == 0 || info.ImageFilesystems[0].GetFsId().GetMountpoint() == "" {
				return Space{}, errNoImageFs
			}
			path = info.ImageFilesystems[0].FsId.Mountpoint
		}
		available, _, _, _, inodes, _, err := fs.Info(path)
		if err != nil {
			return Space{}, fmt.Errorf("statfs %s: %w", path, err)
		}
		return Space{Bytes: available, Inodes: inodes}, nil
	}
}
