package arbiter

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Kind says whether the threshold of a plugin is met, and how.
type Kind uint8

// The kinds. A hard threshold has one pod evicted by force at a time, a soft one nominates candidates.
const (
	NotMet Kind = iota
	Soft
	Hard
)

// Threshold is the answer of a plugin about its threshold in one round.
type Threshold struct {
	Kind Kind
	// Scope names what is scarce, in the plugin's words: memory, cpu, …
	Scope string
	// Target and Observed are for messages. LessThan: the threshold is met when Observed is below Target.
	Target, Observed float64
	LessThan         bool
	// Grace is how long the threshold must be met until pods are asked for.
	Grace time.Duration
	// Candidates are the pods that the plugin would choose from.
	Candidates []types.UID
	Condition  *ConditionReport
}

// Demand is the answer of a plugin about pods that it wants evicted whatever its threshold says.
type Demand struct {
	Pods      []PodDemand
	Condition *ConditionReport
}

// PodDemand asks for the eviction of one pod.
type PodDemand struct {
	UID    types.UID
	Reason string
	// GraceSeconds is nil if the plugin has set no deletion options: the pod gets its own grace period.
	GraceSeconds *int64
	// Force: the pod is evicted; otherwise it is a candidate, of which one is chosen in a round.
	Force bool
}

// ConditionReport is a node condition as a plugin reports it.
type ConditionReport struct {
	// Resource: the condition is one of Katalyst's CustomNodeResource, not of the Node.
	Resource bool
	Name     string
	Met      bool
	// Effects are effects of taints. For the CustomNodeResource each has a QoS level before it:
	// reclaimed_cores/NoSchedule.
	Effects []string
}

// Answer is what one plugin has answered in one round.
type Answer struct {
	Plugin string
	// Asked is when the round began in which the plugin was asked. Clocks of thresholds measure from one to the next.
	Asked time.Time
	// Threshold and Demand are nil if the plugin has not answered that call in time or with an error. A plugin that does
	// not implement a call has answered with the zero value.
	Threshold *Threshold
	Demand    *Demand
}

// Question asks a plugin which pods should be evicted for a threshold that has been met for its grace.
type Question struct {
	Plugin, Scope string
	Kind          Kind
	// TopN is how many pods are asked for, 0 for any number of candidates.
	TopN uint64
	// Candidates are those that the plugin named and that may be evicted; all pods when it named none.
	Candidates []types.UID
	// Omitted are the pods that the plugin need not name, in order: those in flight, and for a hard threshold those whose
	// eviction is blocked.
	Omitted []types.UID
}

// Reply is the answer to a question.
type Reply struct {
	Question Question
	Pods     []types.UID
	// GraceSeconds is nil if the plugin has set no deletion options.
	GraceSeconds *int64
}

// Answers is what has come in since the last call of Settle. Answers count as they come: no plugin waits for another.
type Answers struct {
	// Active are the names of all plugins that are called now. What any other plugin asked for ends at once.
	Active []string
	// Begun: a round has begun since the last call, so that the limits of a round begin again.
	Begun bool
	// Plugins has at most one answer of each plugin. An active plugin that is not among them has been asked and may yet
	// answer: what it said before stays as it is.
	Plugins []Answer
	Replies []Reply
}
