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

// cleanUpSteps returns the steps of CleanUp. No step removes containers: their logs can be read until the pod is
// deleted, and the container garbage collector and the container deletor remove them.
func cleanUpSteps(c Config) []step[*cleanUpPass] {
	return []step[*cleanUpPass]{
		// First: the final state of the containers should not wait for volumes.
		publishFinal{generator: c.Generator, statuses: c.Statuses, shutdown: c.Shutdown},
		// The volume manager unmounts when the containers of the pod have terminated; this step waits for it.
		whileUnmounting{awaitUnmount{c.Volumes}, c.UnmountsVolumes},
		// After the volume manager: mounts of an earlier run of the agent, which it does not list, must be gone too.
		whileUnmounting{awaitVolumePaths{c.VolumePaths}, c.UnmountsVolumes},
		// After unmounting, which may read the objects.
		unregisterObjects{registries(c)},
		// After unmounting: memory-backed volumes are charged to the pod's cgroup, and to its parent once that is removed.
		when(c.CgroupsPerQOS, step[*cleanUpPass](destroyCgroup{containers: c.Containers, cgroups: newPodCgroups(c)})),
		// After the volumes, whose files may belong to these user IDs, and before the status is final: from then on another
		// pod may get the range.
		releaseUserNamespace{c.UserNamespaces},
		// Last: from then on the API object may be deleted, so all resources of the pod must be released.
		finalizeStatus{statuses: c.Statuses, shutdown: c.Shutdown},
	}
}
