package podsync

import (
	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// syncPass is one run through the steps of Sync.
type syncPass struct {
	SyncRequest
	// api is the status that was published; set by publishStatus.
	api v1.PodStatus
	// pullSecrets are the credentials for the pod's images; set by fetchPullSecrets.
	pullSecrets []v1.Secret
	// runtime is what the runtime manager did, restartAll whether it was asked to restart everything; set by runContainers.
	runtime    kubecontainer.PodSyncResult
	restartAll bool
	// outcome is what the caller gets.
	outcome SyncResult
}

// newSyncPass copies the part of the runtime's status that a step changes: the status itself is shared with the PLEG's cache.
func newSyncPass(req SyncRequest) *syncPass {
	req.Status = copyStatus(req.Pod, req.Status)
	return &syncPass{SyncRequest: req}
}

// copyStatus returns a status that can be changed at the top level. Without one it returns that of a pod with nothing running.
func copyStatus(pod *v1.Pod, status *kubecontainer.PodStatus) *kubecontainer.PodStatus {
	if status == nil {
		return &kubecontainer.PodStatus{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}
	}
	shallow := *status
	return &shallow
}

// afterSync adds something to do once the worker has recorded the result.
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

// syncSteps is what bringing a pod up consists of.
func syncSteps(c Config) []step[*syncPass] {
	ev := events{c.Recorder}
	return []step[*syncPass]{
		// First: it measures the time until the worker began, not until some step was done.
		recordWorkerStart{},
		// Before the status, which shows the condition.
		when(c.Features.InPlacePodVerticalScaling, step[*syncPass](showResizeProgress{tracker: c.Runtime, conditions: c.Statuses, events: ev})),
		// Before anything that may fail or wait, so that the API server sees the present state however long the rest takes; and it
		// ends the pass for a pod whose containers have ended for good.
		publishStatus{generator: c.Generator, statuses: c.Statuses},
		// Before the first thing that would be set up for nothing: without a network no sandbox can be made.
		requireNetwork{errors: c.NetworkErrors, events: ev},
		// Before volumes and environment, which read the objects: registering starts the watches, and what comes next gives them time.
		registerSources{registries: registries(c), lifecycle: c.Lifecycle},
		// Before volumes: memory-backed ones and whatever else is charged should find the limits in place; before containers, whose
		// cgroups are made below.
		ensureCgroup{containers: c.Containers, lifecycle: c.Lifecycle, kill: newKiller(c), resizes: c.Runtime, events: ev, restartRules: c.Features.ContainerRestartRules},
		// Before what can wait for minutes: a static pod should be seen in the API even while its volumes are not mounted.
		reconcileMirror{mirrors{client: c.Mirrors, node: c.Node}},
		// Before volumes: they are mounted below these directories.
		makeDataDirs{dirs: c.DataDirs, events: ev},
		// Before containers, which mount them; after everything cheap, as this waits.
		awaitVolumes{volumes: c.Volumes, reject: c.Reject, events: ev},
		// After the wait for volumes, so that the credentials are as fresh as can be when images are pulled.
		fetchPullSecrets{secrets: c.Secrets, events: ev},
		// Before containers: a start-up probe has to be known when its container starts, or it would be taken for started.
		addProbes{c.Probes},
		// The step all the others prepare.
		runContainers{starter: c.Runtime, lifecycle: c.Lifecycle, reasons: c.Reasons, backOff: c.BackOff, restartAll: c.Features.RestartAllContainersOnContainerExits},
		// The rest reads the result of the runtime. None of it can fail, so that the result itself is always looked at.
		requeueRestarted{requeue: c.Requeue},
		when(c.Features.InPlacePodVerticalScaling, step[*syncPass](reportResizeErrors{conditions: c.Statuses, events: ev})),
		// Last: it turns the runtime's errors into the result of the pass.
		concludeSync{relist: c.Relist},
	}
}
