package podlifecycle

// Query is a question that other parts of the agent ask about a pod.
type Query uint8

const (
	// CouldHaveRunningContainers: may a container of the pod run, now or later?
	CouldHaveRunningContainers Query = iota
	// ShouldPodBeFinished: has the worker of the pod finished all its work?
	ShouldPodBeFinished
	// TerminationRequested: was the termination of the pod requested? Not for clean-up loops: false for a pod whose state
	// was removed.
	TerminationRequested
	// ContainersBeTerminating: is it certain that no container of the pod will be started any more? For loops that prepare
	// resources of containers.
	ContainersBeTerminating
	// RuntimeBeRemoved: may resources of running containers be removed, for example mounted volumes?
	RuntimeBeRemoved
	// ContentBeRemoved: may everything of the pod be deleted, including dead containers and their logs? Not before all
	// containers have stopped: until then their exit codes are read from them.
	ContentBeRemoved
	// KnownTerminated: does the pod have a state, and have its containers stopped? For admission, which does not count the
	// requests of such a pod.
	KnownTerminated
	queryCount
)

type predicate func(State) bool

func no(State) bool                 { return false }
func yes(State) bool                { return true }
func begun(s State) bool            { return s.Termination.Begun }
func evictedOrDeleted(s State) bool { return s.Evicted() || s.Marks.Deleted }

// results has one row per query and one column per phase. A pod without a state has two columns: before the whole
// configuration was given to the workers it may be one that runs since before the agent started, afterwards it cannot.
var results = [queryCount][columnCount]predicate{
	// unknown, known, syncing, terminating, terminated, finished, unknown after the first reconciliation
	CouldHaveRunningContainers: {yes, yes, yes, yes, no, no, no},
	ShouldPodBeFinished:        {no, no, no, no, no, yes, yes},
	TerminationRequested:       {no, no, no, yes, yes, yes, no},
	ContainersBeTerminating:    {no, no, no, begun, yes, yes, yes},
	RuntimeBeRemoved:           {no, no, no, no, yes, yes, yes},
	ContentBeRemoved:           {no, no, no, no, evictedOrDeleted, evictedOrDeleted, yes},
	KnownTerminated:            {no, no, no, no, yes, yes, no},
}

const (
	columnUnknownSynced = int(Finished) + 1
	columnCount         = columnUnknownSynced + 1
)

// Evaluate returns the answer for a pod in state s; synced is true once the whole configuration has been read.
func (q Query) Evaluate(s State, synced bool) bool {
	column := int(s.Phase)
	if s.Phase == Unknown && synced {
		column = columnUnknownSynced
	}
	return results[q][column](s)
}
