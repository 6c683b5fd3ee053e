package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// StoppedPodConfig is for tests of other packages. It returns a Config for a pod whose container runs until it is
// killed and then fails, and the status of the pod in the runtime after that.
func StoppedPodConfig(statuses StatusManager) (Config, *kubecontainer.PodStatus) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning), container("b", stateExited))
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}
	w.api = v1.PodStatus{
		Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: ended}, {Name: "b", State: ended}},
	}
	c := w.config()
	c.Statuses = statuses
	return c, runtimeStatus(container("a", stateExited), container("b", stateExited))
}
