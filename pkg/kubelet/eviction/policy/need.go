package policy

import (
	"cmp"
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// need is how much of one resource must come free, before it is decided how.
type need struct {
	group group
	// trigger is the index of the threshold that messages show.
	trigger int
	signal  snapshot.Signal
	hard    bool
	// amount must come free, at least 1, until every active threshold of the group and kind is resolved; target is
	// available then. Both are in the unit of the group.
	amount, target int64
	// measured: the amount was measured by a node-level reclaim at its end, later than the observation of the signals.
	measured bool
	// signals are those of the active thresholds, in order.
	signals []snapshot.Signal
	// outdated: the observations of all signals are from before the last release.
	outdated bool
}

func (n *need) has(sig snapshot.Signal) bool { return slices.Contains(n.signals, sig) }

// needs returns one need for each group that has an active threshold: hard ones first, then in the order of signals.
// While a hard threshold of a group is active, its soft ones are ignored: pods are evicted without grace only for what
// the hard threshold requires. Outdated observations, which are from before the last release, are ignored beside others
// of the group: what was released since is not missing any more.
func needs(
	s *snapshot.Snapshot, thresholds []Threshold, states []thresholdState, outdated func(snapshot.Signal) bool,
) []need {
	var found []need
	for i := range states {
		if !states[i].acts() {
			continue
		}
		g, ok := groupOf(thresholds[i].Signal, s.Layout)
		if !ok {
			continue
		}
		n := needOf(i, g, &thresholds[i], s)
		n.outdated = outdated(n.signal)
		found = merge(found, n)
	}
	slices.SortFunc(found, func(a, b need) int {
		if a.hard != b.hard {
			return trueFirst(a.hard)
		}
		return cmp.Compare(a.signal, b.signal)
	})
	return found
}

func needOf(i int, g group, t *Threshold, s *snapshot.Snapshot) need {
	o := s.Signals[t.Signal]
	target := t.target(o.Capacity)
	missing := saturatingAdd(target, -o.Available)
	return need{group: g, trigger: i, signal: t.Signal, hard: t.Hard(), amount: max(1, missing), target: target,
		signals: []snapshot.Signal{t.Signal}}
}

func merge(found []need, n need) []need {
	i := slices.IndexFunc(found, func(have need) bool { return have.group == n.group })
	switch {
	case i < 0:
		return append(found, n)
	case found[i].hard && !n.hard:
		return found
	case n.hard && !found[i].hard, !n.outdated && found[i].outdated:
		found[i] = n
		return found
	case n.outdated && !found[i].outdated:
		return found
	}
	have := &found[i]
	if n.signal < have.signal {
		have.signal, have.trigger = n.signal, n.trigger
	}
	have.amount, have.target = max(have.amount, n.amount), max(have.target, n.target)
	have.signals = append(have.signals, n.signals...)
	return found
}
