package arbiter

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Notice is a pod that plugins ask for without force and that is to be given notice instead of being evicted.
type Notice struct {
	UID types.UID
	// Plugins ask for the pod, in the order of their names.
	Plugins []string
	Scope   string
	Reason  string
	// Since is when a plugin first asked for the pod without interruption.
	Since time.Time
	// GraceSeconds is the grace period that plugins ask for, nil for the pod's own.
	GraceSeconds *int64
}

// withoutNotices returns the candidates that may be requested. The others are given notice, unless their pods are being
// evicted already: a notice takes no place, and nothing of the limits of a round. A pod that is asked for with force is
// evicted.
func (s *settling) withoutNotices(list []candidate) (rest []candidate) {
	for i := range list {
		c := &list[i]
		switch {
		case c.Forced || !c.pod.NotifyOnly:
			rest = append(rest, *c)
		case !c.pod.InFlight:
			s.outcome.Notices = append(s.outcome.Notices, Notice{
				UID: c.UID, Plugins: c.Plugins, Scope: c.Scope, Reason: c.Reason, Since: c.Since,
				GraceSeconds: c.GraceSeconds,
			})
		}
	}
	slices.SortFunc(s.outcome.Notices, func(a, b Notice) int { return cmp.Compare(a.UID, b.UID) })
	return rest
}
