//go:build e2e

package e2enode

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestDeferredResizeSurvivesRestarts requests more CPU for a pod than its neighbour leaves. The pod keeps its
// allocation, also when the kubelet crashes or is replaced by the stock kubelet, which must both know the allocation.
// The resize is done when the neighbour is deleted.
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
		s.waitUntilListed("pod")
		pod = s.wait(pod, podTimeout, resizePending(v1.PodReasonDeferred))
		s.must(hasCPU(resource.MustParse("10m"))(pod))
	})

	s.remove(neighbour)
	pod = s.wait(pod, podTimeout, hasCPU(most))
	pending := kit.ConditionStatus(pod, v1.PodResizePending) == v1.ConditionTrue
	if pending || pod.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("after the resize: %v, %s", pod.Status.Conditions, kit.Describe(pod))
	}
}

// shareOfNode returns that part of the node's allocatable CPU.
func (s *space) shareOfNode(times, of int64) resource.Quantity {
	s.t.Helper()
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	return *resource.NewMilliQuantity(got.Status.Allocatable.Cpu().MilliValue()*times/of, resource.DecimalSI)
}

// askForCPU resizes the pod called name.
func (s *space) askForCPU(name string, cpu resource.Quantity) {
	s.t.Helper()
	const patch = `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%[1]q},"limits":{"cpu":%[1]q}}}]}}`
	s.kubectl("patch", "pod", name, "--subresource=resize", "-p", fmt.Sprintf(patch, cpu.String()))
}

// resizePending is a check for a pod whose resize is pending for that reason.
func resizePending(reason string) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodResizePending && condition.Status == v1.ConditionTrue && condition.Reason == reason {
				return nil
			}
		}
		err := fmt.Errorf("the resize of %s is not pending for reason %s: %v", pod.Name, reason, pod.Status.Conditions)
		return kit.IfEnded(pod, err)
	}
}

// hasCPU is a check for a pod to which that much is allocated, and whose container has it.
func hasCPU(want resource.Quantity) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		status, err := container(pod, "main")
		if err != nil {
			return err
		}
		allocated := status.AllocatedResources.Cpu()
		if status.Resources == nil || allocated.Cmp(want) != 0 || status.Resources.Requests.Cpu().Cmp(want) != 0 {
			return fmt.Errorf("%s is allocated %s and has %v, want %s", pod.Name, allocated, status.Resources, &want)
		}
		return nil
	}
}
