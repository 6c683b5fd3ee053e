package policy

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Protection says which pods may influence whether and when they are evicted, and how far. The zero value lets none. It
// is for the owner of the node to set: what pods say for themselves counts only within it.
type Protection struct {
	// Namespaces are names, or patterns in the manner of package path, of the namespaces whose pods' annotations count.
	Namespaces []string
	// MaxPods and MaxMemory bound how many pods of the node may opt out, and the sum of their memory requests.
	MaxPods   int
	MaxMemory snapshot.Bytes
	// MaxDelay is for how long a hard threshold spares pods that opted out, while others can give what it needs.
	MaxDelay time.Duration
}

// optOutForgotten is after how long a need that returns begins to pass over pods anew.
const optOutForgotten = 10 * time.Minute

// optOutState records when pods that opted out were passed over, or should have been.
type optOutState struct {
	// First is the first time in a row, Last the newest.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// protect takes the wishes of pods into account. Soft thresholds leave those alone that opted out; for hard ones they
// are marked.
func (r *round) protect(n *need, list []candidate, st *Starved) []candidate {
	wishes := r.rules.Protection.wishes(r.snapshot.Pods)
	if len(wishes) == 0 {
		return list
	}
	for i := range list {
		w := wishes[list[i].pod.UID]
		list[i].preference, list[i].spared = w.preference, w.spares(n, r.snapshot.Layout)
	}
	rank(list)
	if !n.hard {
		all := len(list)
		list = slices.DeleteFunc(list, isSpared)
		st.Spared = all - len(list)
	}
	return list
}

func isSpared(c candidate) bool { return c.spared }

// choice is which pods cover a need, and how many were passed over for them that opted out.
type choice struct {
	pods []candidate
	// urgent is how much they have to cover until a kill has taken effect.
	urgent int64
	spared int
}

// choose finds the pods that cover the need. If pods would be among them that opted out, others go instead as long as
// they can cover it; when they cannot, or when the need has been passing over such pods for longer than MaxDelay,
// nobody is spared: no pod may let the node run into the kernel's OOM killer.
func (r *round) choose(n *need, list []candidate, d demand) choice {
	all := choice{pods: choose(list, d), urgent: d.urgent(list)}
	if !slices.ContainsFunc(all.pods, isSpared) || r.sparedLongEnough(n) {
		return all
	}
	others := slices.DeleteFunc(slices.Clone(list), isSpared)
	if urgent := d.urgent(others); covers(others, urgent, d.killTime) {
		return choice{pods: choose(others, d), urgent: urgent, spared: len(list) - len(others)}
	}
	last := others
	for i := range list {
		if list[i].spared {
			last = append(last, list[i])
		}
	}
	return choice{pods: choose(last, d), urgent: all.urgent}
}

// sparedLongEnough is asked when it is a spared pod's turn. A need that comes and goes, because others are evicted for
// it one after the other, is one need.
func (r *round) sparedLongEnough(n *need) bool {
	s, now := &r.next.Needs[n.group].OptOut, r.snapshot.Taken
	if s.First.IsZero() || now.Sub(s.Last) >= optOutForgotten {
		s.First = now
	}
	s.Last = now
	return now.Sub(s.First) >= r.rules.Protection.MaxDelay
}
