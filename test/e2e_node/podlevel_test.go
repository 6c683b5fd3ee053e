//go:build e2e

package e2enode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestPodLevelResources sets resources of a pod as a whole, which its containers share, and resizes it in place.
func TestPodLevelResources(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("pod")
	all := kit.Resources("100m", "64Mi")
	pod.Spec.Resources = &v1.ResourceRequirements{Requests: all, Limits: all}
	pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("second", kit.Forever))
	pod = s.ready(pod)
	s.expect("class", string(pod.Status.QOSClass), string(v1.PodQOSGuaranteed))
	s.expect("memory limit of the pod", s.memoryLimit(pod), "67108864")

	s.kubectl("patch", "pod", pod.Name, "--subresource=resize",
		"-p", `{"spec":{"resources":{"requests":{"memory":"96Mi"},"limits":{"memory":"96Mi"}}}}`)
	s.wait(pod, podTimeout, func(pod *v1.Pod) error {
		if got := s.memoryLimit(pod); got != "100663296" {
			return errors.New("the memory limit of the pod is " + got)
		}
		return kit.Ready(pod)
	})
	for _, status := range s.get("pod").Status.ContainerStatuses {
		if status.RestartCount > 0 {
			t.Errorf("the resize restarted container %s", status.Name)
		}
	}
}

// memoryLimit returns the memory limit of the pod's cgroup, in bytes.
func (s *space) memoryLimit(pod *v1.Pod) string {
	s.t.Helper()
	groups, err := node.PodCgroups()
	s.must(err)
	for _, dir := range groups[string(pod.UID)] {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	s.t.Fatalf("no control group of pod %s has a memory limit: %v", pod.Name, groups[string(pod.UID)])
	return ""
}
