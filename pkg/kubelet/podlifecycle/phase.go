package podlifecycle

// Phase says how far a pod has come. It only ever grows, until the pod is forgotten.
type Phase uint8

const (
	// Unknown is the phase of a pod that no event has named yet.
	Unknown Phase = iota
	// Known pods wait to be started; nothing of them runs on behalf of this agent.
	Known
	// Syncing pods are set up and kept running.
	Syncing
	// Terminating pods are, or are about to be, stopped; containers may still run.
	Terminating
	// Terminated pods have no running container and never will; their resources are being released.
	Terminated
	// Finished pods are done. They are remembered until they leave the configuration, so that they are not started again.
	Finished
)

var phaseNames = [...]string{"Unknown", "Known", "Syncing", "Terminating", "Terminated", "Finished"}

func (p Phase) String() string { return phaseNames[p] }

// Work is the coarse view that metrics and housekeeping have of a worker. Its names are the values of the label
// "lifecycle" of the metric working_pods, and so are interface.
type Work uint8

const (
	WorkSync Work = iota
	WorkTerminating
	WorkTerminated
)

var workNames = [...]string{"sync", "terminating", "terminated"}

func (w Work) String() string { return workNames[w] }

// Operation is what the worker of a pod is doing right now.
type Operation uint8

const (
	OpNone Operation = iota
	OpSync
	// OpTerminate stops the containers of a pod whose specification is known.
	OpTerminate
	// OpTerminateRuntime stops a pod of which only the runtime knows.
	OpTerminateRuntime
	OpCleanUp
)

var operationNames = [...]string{"none", "sync", "terminate", "terminate runtime pod", "clean up"}

func (o Operation) String() string { return operationNames[o] }

// Cause says who began the termination of a pod. It is set once and not changed by later requests.
type Cause uint8

const (
	CauseNone Cause = iota
	// CauseDeletion: the API server has marked the pod as deleted.
	CauseDeletion
	// CauseCompleted: the pod's containers have ended for good, or its phase in the configuration says so.
	CauseCompleted
	// CauseKill: the agent asked for it, for another reason than eviction.
	CauseKill
	// CauseEviction: the agent evicted the pod to free resources.
	CauseEviction
	// CauseOrphan: the pod is no longer in the configuration.
	CauseOrphan
	// CauseRuntimeOnly: the pod was found in the runtime and is in no configuration.
	CauseRuntimeOnly
)

var causeNames = [...]string{"none", "deletion", "completed", "kill", "eviction", "orphan", "runtime only"}

func (c Cause) String() string { return causeNames[c] }

// ByAgent is true for terminations that the agent itself began: only those may amend the pod's reported status.
func (c Cause) ByAgent() bool { return c == CauseKill || c == CauseEviction }
