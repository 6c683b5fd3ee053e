package podlifecycle

// Question is something that other parts of the agent ask about a pod.
type Question uint8

const (
	// CouldHaveRunningContainers: may a container of the pod run, now or later?
	CouldHaveRunningContainers Question = iota
	// ShouldPodBeFinished: is everything done for the pod that the worker does?
	ShouldPodBeFinished
	// TerminationRequested: has anybody asked for the pod's end? Not for clean-up loops: false for a pod that is long
	// gone.
	TerminationRequested
	// ContainersBeTerminating: will no container of the pod be started any more? For loops that prepare what containers
	// need.
	ContainersBeTerminating
	// RuntimeBeRemoved: may what running containers need (mounted volumes, for example) be taken away?
	RuntimeBeRemoved
	// ContentBeRemoved: may everything of the pod be deleted, dead containers and their logs included? Not before all have
	// stopped: how they ended is read from them then.
	ContentBeRemoved
	// KnownTerminated: has this pod, which is known, been stopped? For admission, which must not count it.
	KnownTerminated
	questions
)

type answer func(State) bool

func no(State) bool         { return false }
func yes(State) bool        { return true }
func begun(s State) bool    { return s.Termination.Begun }
func unwanted(s State) bool { return s.Evicted() || s.Marks.Deleted }

// answers has one row per question and one column per phase. A pod without a state has two columns: before the whole
// configuration was given to the workers it may be one that runs since before the agent started, afterwards it cannot.
var answers = [questions][columns]answer{
	// unknown, known, syncing, terminating, terminated, finished, unknown after the first reconciliation
	CouldHaveRunningContainers: {yes, yes, yes, yes, no, no, no},
	ShouldPodBeFinished:        {no, no, no, no, no, yes, yes},
	TerminationRequested:       {no, no, no, yes, yes, yes, no},
	ContainersBeTerminating:    {no, no, no, begun, yes, yes, yes},
	RuntimeBeRemoved:           {no, no, no, no, yes, yes, yes},
	ContentBeRemoved:           {no, no, no, no, unwanted, unwanted, yes},
	KnownTerminated:            {no, no, no, no, yes, yes, no},
}

const (
	columnUnknownSynced = int(Finished) + 1
	columns             = columnUnknownSynced + 1
)

// Answer answers the question for a pod in state s; synced says whether the whole configuration has been read.
func (q Question) Answer(s State, synced bool) bool {
	column := int(s.Phase)
	if s.Phase == Unknown && synced {
		column = columnUnknownSynced
	}
	return answers[q][column](s)
}
