package policy

import (
	"slices"
	"time"
)

// demand is what the victims for one need must cover, in the unit of the need.
type demand struct {
	// base must come free now. It is negative if terminations in progress release more than is missing.
	base     int64
	killTime time.Duration
	settling time.Duration
}

// choose returns the fewest candidates that cover the demand, in the order of the ranking.
//
// It uses two horizons. Until a kill has taken effect, the growth of all candidates counts. Beyond that, up to
// settling, the growth is a forecast, for which only pods above their requests are evicted. A pod that grows is
// credited with its own growth, and chosen if it covers the demand alone where several others would: so a leak is
// chosen however many small pods rank before it (D23 in docs/defects.md). Growth of anything else (the system,
// critical pods) does not count, since no eviction ends it.
func choose(list []candidate, d demand) []candidate {
	within := slices.IndexFunc(list, candidate.isWithin)
	if within < 0 {
		within = len(list)
	}
	offenders := list[:within]
	settled := max(d.settling, d.killTime)
	if need := d.need(offenders, settled, list[within:]); covers(offenders, need, settled) {
		chosen := fewest(offenders, need, settled)
		// Without a forecast beyond the kill, the ranking alone counts.
		if len(chosen) > 1 && d.settling > d.killTime {
			if i := cause(offenders, need, settled); i >= 0 {
				return offenders[i : i+1 : i+1]
			}
		}
		return chosen
	}
	return fewest(list, d.urgent(list), d.killTime)
}

// cause returns the index of the first candidate that covers the need alone and accounts for at least half of the
// growth of all; -1 if there is none. Evicting several others instead, because they rank before it, would end no
// growth.
func cause(list []candidate, need int64, horizon time.Duration) int {
	growth := combinedGrowth(list)
	return slices.IndexFunc(list, func(c candidate) bool {
		own := c.growth.steady()
		return own > 0 && 2*own >= growth && c.gain(horizon) >= need
	})
}

// urgent returns how much must be covered until a kill has taken effect, if all candidates continue to grow.
func (d demand) urgent(list []candidate) int64 { return d.need(list, d.killTime, nil) }

// need returns how much must be covered if the pods in grown continue to grow for the horizon, and the others until a
// kill has taken effect.
func (d demand) need(grown []candidate, horizon time.Duration, others []candidate) int64 {
	growth := saturatingAdd(growthIn(combinedGrowth(grown), horizon), growthIn(combinedGrowth(others), d.killTime))
	return saturatingAdd(d.base, growth)
}

// combinedGrowth returns how fast the candidates grow in total, in bytes per second. It is limited by their total
// growth in every window, so that fluctuations, in which some grow while others shrink, do not count.
func combinedGrowth(list []candidate) (sum float64) {
	net := unmeasured
	for i := range list {
		sum += list[i].growth.steady()
		net.add(list[i].growth)
	}
	return min(sum, net.peak())
}

// gain returns what evicting the pod contributes within the horizon: its usage, and its growth from when that was read
// until then.
func (c *candidate) gain(horizon time.Duration) int64 {
	if !c.known {
		return 0
	}
	return saturatingAdd(max(0, c.usage), growthIn(c.growth.steady(), horizon+c.behind))
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

// fewest takes the shortest prefix that covers the need, and then, from its end to its beginning, drops each pod
// without which the rest still covers it. The result is a subset of what stock would evict for the same need, in the
// same order. If all candidates together do not cover the need, those that gain something are taken; if no usage is
// known, the first one is.
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
