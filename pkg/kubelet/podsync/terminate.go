package podsync

import (
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// terminatePass is one run through the steps of Terminate.
type terminatePass struct {
	TerminateRequest
	// current is the pod in the runtime just before it is killed; answered is true if the runtime has returned it. Both
	// are set by readStatus.
	current  *kubecontainer.PodStatus
	answered bool
	// stopped is the pod in the runtime after it was killed; set by verifyStopped.
	stopped *kubecontainer.PodStatus
}

func newTerminatePass(req TerminateRequest) *terminatePass {
	req.Status = copyStatus(req.Pod, req.Status)
	return &terminatePass{TerminateRequest: req, current: req.Status}
}

// terminateSteps returns the steps of Terminate.
func terminateSteps(c Config, e *escalator) []step[*terminatePass] {
	ev := events{c.Recorder}
	return []step[*terminatePass]{
		// First, before containers are stopped, which may take long: the status should show the reason at once.
		publishTerminating{generator: c.Generator, statuses: c.Statuses, timeout: e.inspector.timeout},
		// Before the kill: a liveness probe fails while its container shuts down, and must not restart it. Readiness probes
		// continue, since they remove the pod from the endpoints of its services.
		stopLivenessProbes{c.Probes},
		// Before the kill: a pod at an earlier fence cannot end in time.
		when(c.RepairFence != nil, step[*terminatePass](repairTermination{c.RepairFence})),
		// Just before the kill: the given status may be older than the last container that was started.
		readStatus{observer: c.Runtime, timeout: e.inspector.timeout},
		killContainers{kill: newKiller(c), events: ev, escalator: e},
		// After the kill, since readiness has no meaning any more.
		removeProbes{c.Probes},
		// After the kill, and before all steps that require stopped containers.
		verifyStopped{observer: c.Runtime, escalator: e},
		// After the runtime's status, which has the IDs of the containers.
		verifyProcesses{e},
		// After all containers have stopped, since they use the devices; before the final status, because the control plane
		// then reassigns the claims.
		when(c.Features.DynamicResourceAllocation, step[*terminatePass](unprepareResources{c.Containers})),
		// Last. Not in CleanUp, because the exit codes are those of containers that may be removed by then.
		publishStopped{generator: c.Generator, statuses: c.Statuses, shutdown: c.Shutdown},
	}
}
