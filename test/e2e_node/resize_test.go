//go:build e2e

package e2enode

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestDeferredResizeSurvivesRestarts asks for more CPU for a pod than there is beside its neighbour. The pod keeps what it has, also when
// the kubelet crashes, or is the upstream one, which both must know what the pod was given before. It gets the rest when the neighbour
// is gone.
func TestDeferredResizeSurvivesRestarts(t *testing.T) {
	s := newSpace(t)
	most := s.shareOfNode(3, 5)
	neighbour := kit.IdlePod("neighbour")
	neighbour.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: most}
	neighbour = s.ready(neighbour)
	pod := s.ready(resizable("pod"))
	s.askForCPU("pod", most)
	s.wait(pod, podTimeout, resizePending(v1.PodReasonDeferred))
	s.swapKubelets(nil, func() {
		s.knows("pod")
		pod = s.wait(pod, podTimeout, resizePending(v1.PodReasonDeferred))
		s.must(hasCPU(resource.MustParse("10m"))(pod))
	})

	s.remove(neighbour)
	pod = s.wait(pod, podTimeout, hasCPU(most))
	if kit.ConditionStatus(pod, v1.PodResizePending) == v1.ConditionTrue || pod.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("after the resize: %v, %s", pod.Status.Conditions, kit.Describe(pod))
	}
}

// shareOfNode is that part of the CPUs that pods can have.
func (s *space) shareOfNode(times, of int64) resource.Quantity {
	s.t.Helper()
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	return *resource.NewMilliQuantity(got.Status.Allocatable.Cpu().MilliValue()*times/of, resource.DecimalSI)
}

// askForCPU resizes the pod called name.
func (s *space) askForCPU(name string, cpu resource.Quantity) {
	s.t.Helper()
	s.kubectl("patch", "pod", name, "--subresource=resize", "-p",
		fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%[1]q},"limits":{"cpu":%[1]q}}}]}}`, cpu.String()))
}

// resizePending is a check for a pod whose resize waits, for that reason.
func resizePending(reason string) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodResizePending && condition.Status == v1.ConditionTrue && condition.Reason == reason {
				return nil
			}
		}
		return kit.IfEnded(pod, fmt.Errorf("the resize of %s is not pending for reason %s: %v", pod.Name, reason, pod.Status.Conditions))
	}
}

// hasCPU is a check for a pod that was given that much, and whose container has it.
func hasCPU(want resource.Quantity) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		status, err := container(pod, "main")
		if err != nil {
			return err
		}
		given := status.AllocatedResources.Cpu()
		if status.Resources == nil || given.Cmp(want) != 0 || status.Resources.Requests.Cpu().Cmp(want) != 0 {
			return fmt.Errorf("%s was given %s and has %v, want %s", pod.Name, given, status.Resources, &want)
		}
		return nil
	}
}
