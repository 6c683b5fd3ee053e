package containerspec

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
)

// podDirMode is the mode of a pod's directories: what is below is not for other users of the host.
const podDirMode os.FileMode = 0o750

// MakePodDataDirs makes the pod's directory and those of its volumes and plugins. Existing ones are left as they are.
func (h *Helper) MakePodDataDirs(pod *v1.Pod) error {
	layout := h.cfg.Layout
	for _, dir := range []string{layout.Pod(pod.UID), layout.PodVolumes(pod.UID), layout.PodPlugins(pod.UID)} {
		if err := os.MkdirAll(dir, podDirMode); err != nil {
			return fmt.Errorf("making data directory of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}
