package policy

import (
	"slices"
	"time"
)

// demand is what the victims of one need must cover.
type demand struct {
	// base must come free now. It is negative when what is in flight frees more than is missing at this instant.
	base     int64
	killTime time.Duration
	settling time.Duration
}

// choose is the fewest pods of a ranking that cover the demand, in the order of the ranking.
//
// Two horizons are looked at. Until a kill has taken effect every candidate grows on: that much is needed in any case.
// Beyond that, the node should stay clear for some time; but that is a guess, and only pods that use more than they
// asked for are evicted for it. Choosing a pod that grows covers its own growth, so a leak is found however many small
// pods stand before it (D23). Growth of anything else (the system, critical pods) enters no need: evicting pods does
// not end it.
func choose(list []candidate, d demand) []candidate {
	within := slices.IndexFunc(list, candidate.isWithin)
	if within < 0 {
		within = len(list)
	}
	offenders := list[:within]
	settled := max(d.settling, d.killTime)
	if need := d.need(offenders, settled, list[within:]); covers(offenders, need, settled) {
		return fewest(offenders, need, settled)
	}
	return fewest(list, d.urgent(list), d.killTime)
}

// urgent is how much must be covered until a kill has taken effect, when all pods of the list grow on.
func (d demand) urgent(list []candidate) int64 { return d.need(list, d.killTime, nil) }

// need is how much must be covered when grown pods grow on for the horizon, and others only until a kill takes effect.
func (d demand) need(grown []candidate, horizon time.Duration, others []candidate) int64 {
	return saturatingAdd(d.base, saturatingAdd(over(together(grown), horizon), over(together(others), d.killTime)))
}

// together is how fast the pods grow steadily, all of them. It is not more than they have grown together in any window:
// pods whose use goes up and down do not grow, though each of them does when it is looked at for a short time.
func together(list []candidate) (sum float64) {
	net := unmeasured
	for i := range list {
		sum += list[i].growth.steady()
		net.add(list[i].growth)
	}
	return min(sum, net.worst())
}

// gain is what evicting the pod contributes within the horizon: what it holds, and what it would have come to hold.
func (c *candidate) gain(horizon time.Duration) int64 {
	if !c.known {
		return 0
	}
	return saturatingAdd(max(0, c.usage), over(c.growth.steady(), horizon))
}

func covers(list []candidate, need int64, horizon time.Duration) bool {
	var sum int64
	for i := range list {
		if sum = saturatingAdd(sum, list[i].gain(horizon)); sum >= need {
			return true
		}
	}
	return false
}

// fewest takes the shortest prefix that covers the need and then, from its end to its beginning, drops every pod
// without which the rest still covers it. The result is a subset of what stock would evict for the same need, in the
// same order. When all together do not cover it, the need is what they can give; when nothing is known of any, the
// first one goes.
func fewest(list []candidate, need int64, horizon time.Duration) []candidate {
	if len(list) == 0 {
		return nil
	}
	end, sum := 0, int64(0)
	for end < len(list) && sum < need {
		sum = saturatingAdd(sum, list[end].gain(horizon))
		end++
	}
	need = min(need, sum)
	if need <= 0 {
		return list[:1:1]
	}
	kept := make([]candidate, 0, 4)
	for i := end - 1; i >= 0; i-- {
		if g := list[i].gain(horizon); sum-g >= need {
			sum -= g
		} else {
			kept = append(kept, list[i])
		}
	}
	slices.Reverse(kept)
	return kept
}
