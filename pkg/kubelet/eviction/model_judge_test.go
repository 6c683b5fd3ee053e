package eviction

import (
	"slices"
	"time"
)

// judge checks the decisions of this instant, once it is over: all requests of an instant are one decision.
func (n *modelNode) judge() {
	c := &n.checks
	if c.judged == len(n.orders) {
		return
	}
	all := n.orders[c.judged:]
	c.judged = len(n.orders)
	if c.stock || n.agent.stopped {
		return // of the last decision before a stop, some requests may have been refused
	}
	for i, o := range all {
		n.judgeKill(all[:i], o)
	}
	all = forNode(all)
	if memory := victimsFor(all, forMemory); len(memory) > 0 {
		c.uncovered = time.Time{}
		n.judgeMemory(all, memory)
	}
	if disk := victimsFor(all, forImages); len(disk) > 0 {
		n.judgeDisk(all, disk)
	}
}

func victimsFor(all []*modelOrder, cause modelCause) (list []*modelOrder) {
	for _, o := range all {
		if o.cause == cause {
			list = append(list, o)
		}
	}
	return list
}

// victims is true for the pods of a decision.
func victims(all []*modelOrder) func(*modelPod) bool {
	return func(p *modelPod) bool {
		return slices.ContainsFunc(all, func(o *modelOrder) bool { return o.pod == p })
	}
}

// judgeKill checks one request. earlier are those of the same decision.
func (n *modelNode) judgeKill(earlier []*modelOrder, o *modelOrder) {
	p, t := o.pod, &n.settings.timing
	if p.critical {
		n.fail(neverCritical, "%s is critical", p.name())
	}
	if i := slices.IndexFunc(earlier, func(e *modelOrder) bool { return e.pod == p }); i >= 0 {
		if (o.cause == forRequest) != (earlier[i].cause == forRequest) {
			return // two rounds may be made at one instant; the sink alone checks each
		}
		n.fail(oneKill, "%s is asked twice by one decision", p.name())
		return
	}
	i := slices.Index(p.orders, o)
	if i == 0 {
		return
	}
	last := p.orders[i-1]
	if o.cause == forRequest && p.failedAt.Before(last.at) {
		n.judgeRequest(o)
		return
	}
	deadline := last.at.Add(last.grace)
	switch {
	case !p.failedAt.Before(last.at) && n.at.Sub(p.failedAt) >= retryAfter:
	case n.at.Sub(deadline) >= t.Patience:
	case o.grace < last.grace && deadline.Sub(n.at) > t.KillTime:
	default:
		n.fail(oneKill, "%s was asked already %v ago", p.name(), n.at.Sub(last.at))
	}
}

// judgeMemory checks one decision about memory. all has the victims for other causes too.
func (n *modelNode) judgeMemory(all, memory []*modelOrder) {
	hard := memory[0].grace <= time.Second
	need := n.deficit(!hard)
	inFlight, newest := n.inFlight(n.surely(hard), (*modelPod).uses)
	within := 0
	for _, o := range memory {
		if !o.pod.exceeds() && !o.joins {
			within++
		}
	}
	offenders := !slices.ContainsFunc(memory, func(o *modelOrder) bool { return !o.pod.exceeds() })
	for _, v := range memory {
		// A victim of plugins goes in any case: to hasten it takes no other pod.
		if !v.hastens() {
			n.judgeVictim(all, v, need, inFlight, offenders)
		}
	}
	if len(memory) > 1 {
		n.checks.together++
	}
	n.judgeTurn(hard, newest)
	if hard {
		n.judgePace(all, within)
		n.judgeHurry(all)
	}
	n.noteCover(all, hard, need)
}

// judgeVictim checks whether the need is covered without one of the victims. offenders: all of them exceed their
// requests.
func (n *modelNode) judgeVictim(all []*modelOrder, v *modelOrder, need, inFlight float64, offenders bool) {
	others := slices.DeleteFunc(slices.Clone(all), func(o *modelOrder) bool { return o == v })
	have := 0.0
	for _, o := range others {
		have += n.seen(o.pod)
	}
	if grows := n.growing(others, offenders); inFlight+have >= need+grows+modelSlack {
		n.fail(noneSuperfluous,
			"%s need not go: %s are missing, candidates use up %s, in flight are %s, %d other victims give %s",
			v.pod.name(), mib(need), mib(grows), mib(inFlight), len(others), mib(have))
	}
}

// growing is how much the candidates that are not chosen come to use at the greatest rate that may be measured.
func (n *modelNode) growing(chosen []*modelOrder, offenders bool) (sum float64) {
	t := &n.settings.timing
	isChosen := victims(chosen)
	for _, p := range n.pods {
		last := p.lastOrder()
		stays := n.candidate(p) || (last != nil && last.at.Equal(n.at))
		if isChosen(p) || !stays {
			continue
		}
		horizon := t.KillTime
		if offenders && p.exceeds() {
			horizon = max(t.KillTime, t.Settling)
		}
		sum += most(p.rates, n.at.Add(-modelMemory)) * horizon.Seconds()
	}
	return sum
}

// judgePace checks decisions while no candidate grows. within is the number of victims within their requests.
func (n *modelNode) judgePace(all []*modelOrder, within int) {
	chosen := victims(all)
	if within == 0 || n.highest(func(p *modelPod) bool { return chosen(p) || n.candidate(p) }) > 0 {
		return
	}
	if within > 1 {
		n.fail(oneByOne, "%d pods within their requests go together, and no candidate grows", within)
	}
	c := &n.checks
	since := n.at.Sub(c.coveredAt)
	if c.covered && n.othersGrow(c.coveredAt) && since < n.settings.timing.Period-time.Second {
		n.fail(pace, "%s goes %v after pods that covered the deficit", all[0].pod.name(), since)
	}
}

// othersGrow is true when the system, or a critical pod, has grown without a break since a time.
func (n *modelNode) othersGrow(since time.Time) bool {
	grows := func(p *modelPod) bool { return p.critical && least(p.rates, since) > 0 }
	return least(n.systemRates, since) > 0 || slices.ContainsFunc(n.pods, grows)
}

// judgeTurn checks a decision beside what is in flight. newest is the time of the newest request for that.
func (n *modelNode) judgeTurn(hard bool, newest time.Time) {
	t := &n.settings.timing
	if newest.IsZero() || n.at.Sub(newest) >= t.Patience {
		return
	}
	counted := n.surely(hard)
	rate := n.highest(func(p *modelPod) bool { return p.here() && !p.critical && !counted(p) })
	if free := n.scarcest(); !hard || free > rate*t.KillTime.Seconds()*1.1+modelSlack {
		n.fail(turn, "another pod went %v ago, and %s are not used up within %v at %s/s",
			n.at.Sub(newest), mib(free), t.KillTime, mib(rate))
	}
}

// others is the greatest rate that may be measured of what evictions do not end.
func (n *modelNode) others() float64 {
	return most(n.systemRates, n.at.Add(-modelMemory)) + n.highest(func(p *modelPod) bool { return p.critical })
}

// judgeHurry checks whether enough go at once. Where others grow more than candidates do, pods within their requests
// have their pace.
func (n *modelNode) judgeHurry(all []*modelOrder) {
	killTime := n.settings.timing.KillTime.Seconds()
	staying, leaving := n.steady(n.candidate), n.steady(victims(all))
	// What happens in the moment between reading and deciding is not read.
	moment := n.at.Add(-2 * modelReads)
	// Nor is known whether a pod whose end is found by this decision had ended before the reading.
	atOnce := func(p *modelPod) bool {
		return p.deadAt.After(moment) || p.failedAt.After(moment) || p.foundAt.After(moment)
	}
	if staying <= n.others() || n.available() > (staying+leaving)*killTime*0.8 || slices.ContainsFunc(n.pods, atOnce) {
		return
	}
	have, _ := n.inFlight(n.possibly(true), (*modelPod).seems)
	for _, o := range all {
		have += o.pod.uses()
	}
	if need := n.below() + staying*killTime; have < need-modelSlack {
		n.fail(enoughInHurry,
			"memory is used up in %.1fs; %s are missing or will be, %s come back, and there are others",
			n.available()/(staying+leaving), mib(need), mib(have))
	}
}

// noteCover records whether what is in flight with the victims of this instant is certain to cover the deficit.
func (n *modelNode) noteCover(all []*modelOrder, hard bool, need float64) {
	have, _ := n.inFlight(n.surely(hard), (*modelPod).certain)
	reliable := true
	for _, o := range all {
		have += o.pod.certain()
		reliable = reliable && o.pod.dying
	}
	n.checks.covered, n.checks.coveredAt = reliable && have >= need, n.at
}

// judgeDisk checks one decision about the image disk. Only pods that are being stopped already go together.
func (n *modelNode) judgeDisk(all, disk []*modelOrder) {
	back, counted := 0.0, n.surely(true)
	for _, p := range n.pods {
		if !counted(p) {
			continue
		}
		back += min(p.disk, p.sampled.disk)
		if last := p.lastForNode(); last != nil && n.at.Sub(last.at) < n.settings.timing.Patience {
			n.fail(turn, "%s goes for the image disk %v after %s", disk[0].pod.name(), n.at.Sub(last.at), p.name())
		}
	}
	for _, o := range all {
		back += min(o.pod.disk, o.pod.sampled.disk)
	}
	need := n.diskDeficit()
	for _, v := range disk {
		others := back - min(v.pod.disk, v.pod.sampled.disk)
		if (len(disk) > 1 && !v.joins) || others >= need+modelSlack {
			n.fail(noneSuperfluous, "%s need not go: %s are missing on the image disk, %s come back",
				v.pod.name(), mib(need), mib(others))
		}
	}
}
