package snapshot

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Request asks for the eviction of one pod, on behalf of eviction plugins.
type Request struct {
	UID types.UID
	// Plugins ask for it, in the order of their names.
	Plugins []string
	// Scope is what is scarce, in the plugins' words.
	Scope string
	// Forced requests are served before soft ones, and while the node itself needs something.
	Forced bool
	// GraceSeconds is at least 1, nil for the pod's own grace period. Decisions do not limit it.
	GraceSeconds *int64
	// Reason is for the pod's status and events.
	Reason string
	// Since is when a plugin first asked for it.
	Since time.Time
	// Killer is what evicts the pod.
	Killer Killer
	// Submitted is true while the API server is being asked to evict the pod by this killer and has not accepted it. The
	// pod is not in flight: it releases nothing.
	Submitted bool
}

// Grace returns the grace period in seconds of an eviction for the request, at least 1. The pod's own is own seconds.
func (q *Request) Grace(own int64) int64 {
	if q.GraceSeconds != nil {
		own = *q.GraceSeconds
	}
	return max(1, own)
}

// Killer is what evicts a pod that plugins request.
type Killer uint8

// The killers. The pod workers of the agent need no API server; disruption budgets limit the eviction API.
const (
	PodWorker Killer = iota
	EvictionAPI
	DeleteAPI
)
