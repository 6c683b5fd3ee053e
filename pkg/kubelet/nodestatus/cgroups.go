package nodestatus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	cmutil "k8s.io/kubernetes/pkg/kubelet/cm/util"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// CheckCgroups sets the metric of the cgroup version of the node. It returns an error, which the caller logs, for
// version 1, which is deprecated (it also sends an event on the node), and for a kernel without cpu.stat in the root of
// version 2. The agent works nevertheless.
func CheckCgroups(recorder Recorder, node runtime.Object, version int) error {
	return checkCgroups(recorder, node, version, cmutil.CgroupRoot)
}

func checkCgroups(recorder Recorder, node runtime.Object, version int, root string) error {
	metrics.CgroupVersion.Set(float64(version))
	switch version {
	case 1:
		recorder.Eventf(node, v1.EventTypeWarning, events.CgroupV1, "%s", cm.CgroupV1DeprecatedWarning)
		return errors.New(cm.CgroupV1DeprecatedWarning)
	case 2:
		if _, err := os.Stat(filepath.Join(root, "cpu.stat")); errors.Is(err, os.ErrNotExist) {
			return errors.New(cm.CgroupV2KernelWarning)
		}
		return nil
	default:
		return fmt.Errorf("unsupported cgroup version: %d", version)
	}
}
