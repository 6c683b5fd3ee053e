package policy

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Protection limits the effect of annotations by which pods influence whether and when they are evicted. It is
// configured by the owner of the node. With the zero value annotations have no effect.
type Protection struct {
	// Namespaces are the namespaces in which annotations have an effect: names, or patterns of path.Match.
	Namespaces []string
	// MaxPods limits the number of pods of the node that may opt out, MaxMemory the sum of their memory requests.
	MaxPods   int
	MaxMemory snapshot.Bytes
	// MaxDelay is for how long a hard threshold passes over pods that opted out, while others can release enough.
	MaxDelay time.Duration
}

// optOutResetAfter is the time after which a need that recurs counts as a new one, for MaxDelay.
const optOutResetAfter = 10 * time.Minute

// optOutState records when pods that opted out were chosen for a need, and so were passed over or evicted.
type optOutState struct {
	// First is the first time since the need began, Last the newest one.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// applyAnnotations ranks the candidates with their annotations. For a soft need it removes those that opted out; for a
// hard one it marks them.
func (r *round) applyAnnotations(n *need, list []candidate, nd *NeedDecision) []candidate {
	granted := r.rules.Protection.granted(r.snapshot.Pods)
	if len(granted) == 0 {
		return list
	}
	for i := range list {
		a := granted[list[i].pod.UID]
		list[i].preference, list[i].optedOut = a.preference, a.optsOutOf(n, r.snapshot.Layout)
	}
	rank(list)
	if !n.hard {
		all := len(list)
		list = slices.DeleteFunc(list, hasOptedOut)
		nd.PassedOver = all - len(list)
	}
	return list
}

func hasOptedOut(c candidate) bool { return c.optedOut }

// choice is the pods that cover a need.
type choice struct {
	pods []candidate
	// urgent is how much they have to cover until a kill has taken effect.
	urgent int64
	// passedOver is the number of pods that were left out because they opted out.
	passedOver int
}

// choose selects the pods that cover the need. Instead of pods that opted out it selects others as long as those can
// cover the need. If they cannot, or if the need has passed over such pods for MaxDelay, opting out has no effect:
// otherwise the node could run into the kernel's OOM killer.
func (r *round) choose(n *need, list []candidate, d demand) choice {
	all := choice{pods: choose(list, d), urgent: d.urgent(list)}
	if !slices.ContainsFunc(all.pods, hasOptedOut) || r.passedOverLongEnough(n) {
		return all
	}
	others := slices.DeleteFunc(slices.Clone(list), hasOptedOut)
	if urgent := d.urgent(others); covers(others, urgent, d.killTime) {
		return choice{pods: choose(others, d), urgent: urgent, passedOver: len(list) - len(others)}
	}
	last := others
	for i := range list {
		if list[i].optedOut {
			last = append(last, list[i])
		}
	}
	return choice{pods: choose(last, d), urgent: all.urgent}
}

// passedOverLongEnough reports whether pods that opted out have been passed over for MaxDelay. The caller has found
// that one of them would be chosen now. A need that ends and recurs, because other pods are evicted for it one after
// the other, is one need.
func (r *round) passedOverLongEnough(n *need) bool {
	s, now := &r.next.Needs[n.group].OptOut, r.snapshot.Taken
	if s.First.IsZero() || now.Sub(s.Last) >= optOutResetAfter {
		s.First = now
	}
	s.Last = now
	return now.Sub(s.First) >= r.rules.Protection.MaxDelay
}
