package policy

import "time"

// demand is what the victims of one need must cover.
type demand struct {
	// base must come free now.
	base int64
	// rest is how fast memory goes that no candidate could give back: pods that cannot be evicted, and the system.
	rest     float64
	killTime time.Duration
	settling time.Duration
}

// choose is the fewest pods of a ranking that cover the demand, in the order of the ranking.
//
// Two horizons are looked at. Until a kill has taken effect everything grows on: that much is needed in any case. Beyond that,
// the node should stay clear for some time; but that is a guess, and only pods that use more than they asked for are evicted
// for it. Choosing a pod that grows covers its own growth, so a leak is found however many small pods stand before it (D23).
func choose(list []candidate, d demand) []candidate {
	first := 0
	for first < len(list) && list[first].first {
		first++
	}
	offenders := list[:first]
	if settled := d.need(offenders, d.settling, list[first:]); covers(offenders, settled, d.settling) {
		return fewest(offenders, settled, d.settling)
	}
	return fewest(list, d.need(list, d.killTime, nil), d.killTime)
}

// need is how much must be covered when grown pods grow on for the horizon, and others only until a kill takes effect.
func (d demand) need(grown []candidate, horizon time.Duration, others []candidate) int64 {
	n := saturatingAdd(d.base, over(d.rest, d.killTime))
	for i := range grown {
		n = saturatingAdd(n, over(grown[i].rate, horizon))
	}
	for i := range others {
		n = saturatingAdd(n, over(others[i].rate, d.killTime))
	}
	return n
}

// gain is what evicting the pod contributes within the horizon: what it holds, and what it would have come to hold.
func (c *candidate) gain(horizon time.Duration) int64 {
	if !c.known {
		return 0
	}
	return saturatingAdd(max(0, c.usage), over(c.rate, horizon))
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

// fewest takes the shortest prefix that covers the need and then, from its end to its beginning, drops every pod without which
// the rest still covers it. The result is a subset of what stock would evict for the same need, in the same order. When all
// together do not cover it, the need is what they can give; when nothing is known of any, the first one goes.
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
	reverse(kept)
	return kept
}

func reverse(list []candidate) {
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
}
