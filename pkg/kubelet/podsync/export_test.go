package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// StoppedWorld is for tests outside of the package: a Config around a pod whose container runs until it is killed and has then
// failed, with another status manager; and the pod as the runtime shows it after that.
func StoppedWorld(statuses StatusManager) (Config, *kubecontainer.PodStatus) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up), container("b", down))
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}}
	w.api = v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "a", State: ended}, {Name: "b", State: ended}}}
	c := w.config()
	c.Statuses = statuses
	return c, runtimeStatus(container("a", down), container("b", down))
}
