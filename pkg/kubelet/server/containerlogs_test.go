package server

import (
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	_ "k8s.io/kubernetes/pkg/kubelet" // the oracle
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"pgregory.net/rapid"
)

//go:linkname stockLoggedContainer k8s.io/kubernetes/pkg/kubelet.(*Kubelet).validateContainerLogStatus
func stockLoggedContainer(
	kubelet unsafe.Pointer, pod string, status *v1.PodStatus, name string, previous bool,
) (kubecontainer.ContainerID, error)

// The choice of the container whose log is requested, and every message, equal stock's.
func TestContainerForLogsEqualsStock(t *testing.T) {
	names := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		status := &v1.PodStatus{}
		for _, list := range []*[]v1.ContainerStatus{
			&status.ContainerStatuses, &status.InitContainerStatuses, &status.EphemeralContainerStatuses,
		} {
			for range rapid.IntRange(0, 2).Draw(rt, "containers") {
				*list = append(*list, drawStatus(rt, rapid.SampledFrom(names).Draw(rt, "name")))
			}
		}
		name, previous := rapid.SampledFrom(names).Draw(rt, "asked"), rapid.Bool().Draw(rt, "previous")
		got, gotErr := containerForLogs("pod", status, name, previous)
		want, wantErr := stockLoggedContainer(nil, "pod", status, name, previous)
		if got != want || (gotErr == nil) != (wantErr == nil) || gotErr != nil && gotErr.Error() != wantErr.Error() {
			rt.Errorf("got %v, %v; stock says %v, %v", got, gotErr, want, wantErr)
		}
	})
}

func drawStatus(rt *rapid.T, name string) v1.ContainerStatus {
	id := func() string { return rapid.SampledFrom([]string{"", "t://1", "t://2"}).Draw(rt, "id") }
	state := func() (s v1.ContainerState) {
		switch rapid.IntRange(0, 3).Draw(rt, "state") {
		case 1:
			s.Running = &v1.ContainerStateRunning{}
		case 2:
			s.Terminated = &v1.ContainerStateTerminated{ContainerID: id()}
		case 3:
			s.Waiting = &v1.ContainerStateWaiting{
				Reason: rapid.SampledFrom([]string{"", "ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff"}).Draw(rt, "reason"),
			}
		}
		return s
	}
	return v1.ContainerStatus{Name: name, ContainerID: id(), State: state(), LastTerminationState: state()}
}
