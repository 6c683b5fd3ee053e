package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// cleanUpPass is one run through the steps of CleanUp.
type cleanUpPass struct {
	pod    *v1.Pod
	status *kubecontainer.PodStatus
}

func newCleanUpPass(pod *v1.Pod, status *kubecontainer.PodStatus) *cleanUpPass {
	return &cleanUpPass{pod: pod, status: copyStatus(pod, status)}
}

// cleanUpSteps is what cleaning up after a pod consists of. Containers are not removed here: their logs can be read until the pod
// is deleted, and the container garbage collector and the container deletor see to them.
func cleanUpSteps(c Config) []step[*cleanUpPass] {
	return []step[*cleanUpPass]{
		// First: the final state of the containers should not wait for volumes.
		publishFinal{generator: c.Generator, statuses: c.Statuses, returning: c.Returning},
		// The volume manager unmounts once the pod workers have reported the end of the containers; here we wait for it.
		unlessIdle{awaitUnmount{c.Volumes}, c.Unmounting},
		// After the volume manager's word: what it does not know (mounts of an earlier run) has to be gone as well.
		unlessIdle{awaitVolumePaths{c.VolumePaths}, c.Unmounting},
		// After unmounting, which may read the objects.
		unregisterSources{registries(c)},
		// After unmounting: memory-backed volumes are charged to the pod's cgroup, and to its parent once it is gone.
		when(c.CgroupsPerQOS, step[*cleanUpPass](destroyCgroup{containers: c.Containers, left: newPodCgroups(c)})),
		// After the volumes, whose files may belong to these user IDs, and before the pod is final: the range may be given to another
		// pod from here on.
		releaseUserNamespace{c.UserNamespaces},
		// Last: from here on the API object may be deleted, and nothing of the pod must be left.
		finalizeStatus{statuses: c.Statuses, returning: c.Returning},
	}
}
