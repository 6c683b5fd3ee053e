package podsync

import (
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// terminatePass is one run through the steps of Terminate.
type terminatePass struct {
	TerminateRequest
	// current is the pod in the runtime just before it is killed, reached that the runtime has said so; set by lookAgain.
	current *kubecontainer.PodStatus
	reached bool
	// stopped is the pod in the runtime after it was killed; set by verifyStopped.
	stopped *kubecontainer.PodStatus
}

func newTerminatePass(req TerminateRequest) *terminatePass {
	req.Status = copyStatus(req.Pod, req.Status)
	return &terminatePass{TerminateRequest: req, current: req.Status}
}

// terminateSteps is what taking a pod down consists of.
func terminateSteps(c Config, e *escalator) []step[*terminatePass] {
	ev := events{c.Recorder}
	return []step[*terminatePass]{
		// First, before the long wait for containers to stop: who watches should see at once that the pod goes, and why.
		publishTerminating{generator: c.Generator, statuses: c.Statuses, timeout: e.look.timeout},
		// Before the kill: a container that is shutting down fails its liveness probe, and must not be restarted for it. Readiness
		// goes on: it takes the pod out of its services.
		stopLivenessProbes{c.Probes},
		// As late as can be before the kill: the status given may be older than the last container that was started.
		lookAgain{observer: c.Runtime, timeout: e.look.timeout},
		killContainers{kill: newKiller(c), events: ev, escalator: e},
		// After the kill: now readiness says nothing any more.
		removeProbes{c.Probes},
		// After the kill and before anything that relies on it.
		verifyStopped{observer: c.Runtime, escalator: e},
		// After the runtime's word, which tells which containers there were.
		verifyProcesses{e},
		// After every container has stopped, since they use the devices; before the final status, on seeing which the control plane
		// gives the claims to others.
		when(c.Features.DynamicResourceAllocation, step[*terminatePass](unprepareResources{c.Containers})),
		// Last, and here rather than in CleanUp: exit codes are read from containers that may be removed by then.
		publishStopped{generator: c.Generator, statuses: c.Statuses, returning: c.Returning},
	}
}
