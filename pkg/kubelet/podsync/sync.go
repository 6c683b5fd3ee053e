package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// syncPass is one run through the steps of Sync.
type syncPass struct {
	SyncRequest
	// api is the published status; set by publishStatus.
	api v1.PodStatus
	// pullSecrets are the credentials for the pod's images; set by fetchPullSecrets.
	pullSecrets []v1.Secret
	// runtime is the result of the runtime manager, restartAll is true if it restarted all containers; set by
	// runContainers.
	runtime    kubecontainer.PodSyncResult
	restartAll bool
	// outcome is the result for the caller.
	outcome SyncResult
}

// newSyncPass copies the status, which is shared with the PLEG's cache, because steps modify it.
func newSyncPass(req SyncRequest) *syncPass {
	req.Status = copyStatus(req.Pod, req.Status)
	return &syncPass{SyncRequest: req}
}

// copyStatus returns a shallow copy of the status, or the status of a pod without containers if it is nil.
func copyStatus(pod *v1.Pod, status *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	if status == nil {
		return &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	}
	shallow := *status
	return &shallow
}

// afterSync adds a function to be called after the worker has recorded the result.
func (p *syncPass) afterSync(do func()) {
	before := p.outcome.AfterSync
	if before == nil {
		p.outcome.AfterSync = do
		return
	}
	p.outcome.AfterSync = func() {
		before()
		do()
	}
}

// syncSteps returns the steps of Sync.
func syncSteps(c Config) []step[*syncPass] {
	ev := events{c.Recorder}
	return []step[*syncPass]{
		// First: it measures the time until the worker began.
		recordWorkerStart{},
		// Before the status, which shows the limits of the cgroup; before containers are started in it.
		when(c.RepairFence != nil, step[*syncPass](repairSync{c.RepairFence})),
		// Before the status, which has the condition.
		when(c.Features.InPlacePodVerticalScaling, step[*syncPass](showResizeProgress{
			tracker: c.Runtime, conditions: c.Statuses, events: ev,
		})),
		// Before steps that may fail or block, so that the API server always has the current status. It ends the phase for a
		// pod whose containers have terminated and will not be restarted.
		publishStatus{generator: c.Generator, statuses: c.Statuses},
		// Before the pod is set up: without a network no sandbox can be created.
		requireNetwork{errors: c.NetworkErrors, events: ev},
		// Before volumes and environment, which read the objects: registration starts the watches, which need some time.
		registerObjects{registries: registries(c), lifecycle: c.Lifecycle},
		// Before volumes, since memory-backed ones are charged to the cgroup; before containers, whose cgroups are its
		// children.
		ensureCgroup{
			containers: c.Containers, lifecycle: c.Lifecycle, kill: newKiller(c), resizes: c.Runtime, events: ev,
			restartRules: c.Features.ContainerRestartRules,
		},
		// Before steps that may block for minutes: the API server should have a static pod even while its volumes are not
		// mounted.
		reconcileMirror{mirrors{client: c.Mirrors, node: c.Node}},
		// Before volumes, which are mounted below these directories.
		makeDataDirs{dirs: c.DataDirs, events: ev},
		// Before containers, which mount them; after all quick steps, since it blocks.
		awaitVolumes{volumes: c.Volumes, reject: c.Reject, events: ev},
		// After the wait for volumes, so that the credentials are up to date when images are pulled.
		fetchPullSecrets{secrets: c.Secrets, events: ev},
		// Before containers: without its startup probe a container would be regarded as started.
		addProbes{c.Probes},
		// The step for which all others prepare.
		runContainers{
			starter: c.Runtime, lifecycle: c.Lifecycle, startErrors: c.StartErrors, backOff: c.BackOff,
			restartAll: c.Features.RestartAllContainersOnContainerExits,
		},
		// The following steps read the runtime's result. None of them fails, so that all are executed.
		requeueRestarted{requeue: c.Requeue},
		when(c.Features.InPlacePodVerticalScaling, step[*syncPass](reportResizeErrors{
			conditions: c.Statuses, events: ev,
		})),
		// Last: it converts the runtime's errors into the result of the phase.
		concludeSync{relist: c.Relist},
	}
}
