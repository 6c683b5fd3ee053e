package podlifecycle

// Phase is a step of the lifecycle. It never decreases, until the pod is removed.
type Phase uint8

const (
	// Unknown is the phase of a pod for which no event has arrived.
	Unknown Phase = iota
	// Known pods wait to be started; this agent has not started any of their containers.
	Known
	// Syncing pods are set up and kept running.
	Syncing
	// Terminating pods are, or are about to be, stopped; containers may still run.
	Terminating
	// Terminated pods have no running container and never will; their resources are being released.
	Terminated
	// Finished pods have released all resources. Their state remains until they leave the configuration, so that they are
	// not started again.
	Finished
)

var phaseNames = [...]string{"Unknown", "Known", "Syncing", "Terminating", "Terminated", "Finished"}

func (p Phase) String() string { return phaseNames[p] }

// Work is the coarse phase of a worker, for metrics and housekeeping. Its names are values of the label "lifecycle" of
// stock's metric kubelet_working_pods, and must not change.
type Work uint8

const (
	WorkSync Work = iota
	WorkTerminating
	WorkTerminated
)

var workNames = [...]string{"sync", "terminating", "terminated"}

func (w Work) String() string { return workNames[w] }

// Operation is what the worker of a pod executes.
type Operation uint8

const (
	OpNone Operation = iota
	OpSync
	// OpTerminate stops the containers of a pod whose specification is known.
	OpTerminate
	// OpTerminateRuntime stops a runtime pod: one that only the runtime has, without a specification.
	OpTerminateRuntime
	OpCleanUp
)

var operationNames = [...]string{"none", "sync", "terminate", "terminate runtime pod", "clean up"}

func (o Operation) String() string { return operationNames[o] }

// Cause is why the termination of a pod began. Later requests do not change it.
type Cause uint8

const (
	CauseNone Cause = iota
	// CauseDeletion: the API server has marked the pod as deleted.
	CauseDeletion
	// CauseCompleted: the pod's containers have ended for good, or its phase in the configuration says so.
	CauseCompleted
	// CauseKill: the agent requested it, for another reason than eviction.
	CauseKill
	// CauseEviction: the agent evicted the pod to free resources.
	CauseEviction
	// CauseOrphan: the pod is no longer in the configuration.
	CauseOrphan
	// CauseRuntimeOnly: the runtime runs the pod, and no configuration has it.
	CauseRuntimeOnly
)

var causeNames = [...]string{"none", "deletion", "completed", "kill", "eviction", "orphan", "runtime only"}

func (c Cause) String() string { return causeNames[c] }

// ByAgent is true for terminations that the agent itself began. Only their requests may amend the pod's status.
func (c Cause) ByAgent() bool { return c == CauseKill || c == CauseEviction }
