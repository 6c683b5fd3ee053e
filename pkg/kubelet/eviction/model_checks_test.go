package eviction

import (
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// What must hold of a manager's actions, by name. Each is judged by the true state of the model. What no manager can
// have measured counts in its favour: stats of the summary are as old as their sources allow, and a rate is measured
// only when it has held for a while.
const (
	// neverCritical: critical and static pods are never evicted.
	neverCritical = "no critical pod is evicted"
	// oneKill: a pod is in one list, once. It is asked a second time only to hasten it, when its kill failed half a
	// minute ago, or when it has outlived its grace period and patience.
	oneKill = "one kill for a pod"
	// noneSuperfluous: without any one of the victims of a decision, the others and what is in flight do not cover
	// what is missing and what candidates come to use. They use more for the time that a kill takes; those that exceed
	// their requests for the time of settling, if all victims exceed theirs. So growth that no candidate can give back
	// takes nobody, and no decision has more victims than the fewest that cover the deficit and the growth of
	// candidates.
	noneSuperfluous = "no superfluous victim"
	// pace: when what was in flight after the last decision covered what was missing, no candidate grows, and the
	// system or a critical pod has grown ever since, then only growth that evictions do not end keeps the deficit
	// open: pods within their requests go no faster than one in a monitoring period.
	pace = "pods within their requests go at stock's pace"
	// oneByOne: while no candidate grows, no two pods within their requests go together.
	oneByOne = "pods within their requests go one by one"
	// turn: another pod goes beside one that was asked to stop less than patience ago only when pods that may be
	// evicted use memory up before a kill takes effect.
	turn = "victims await their turn"
	// enoughInHurry: when candidates use memory up before a kill takes effect, and mostly they do, all that are needed
	// go at once.
	enoughInHurry = "enough go in a hurry"
	// noStandstill: while a hard threshold is met, a candidate exists and too little is in flight, a pod goes in time
	// (bound).
	noStandstill = "no standstill while memory is short"
	// noDiskStandstill is the same for the image disk (diskBound), where removing images counts too.
	noDiskStandstill = "no standstill while the image disk is short"
	// notAheadOfStock: where pods do not grow and no kill fails, ours has evicted at no time more than one pod more
	// than stock has a monitoring period later.
	notAheadOfStock = "at most one victim ahead of stock"
	// sameWritten: the same is decided from a snapshot and a state that were written and read (replay).
	sameWritten = "the same decision from what was written"
)

var modelCheckNames = []string{
	neverCritical, oneKill, noneSuperfluous, pace, oneByOne, turn, enoughInHurry,
	noStandstill, noDiskStandstill, notAheadOfStock, sameWritten,
	inForce, aloneWithoutForce, forcedInTime, softInTime, needsAlone, noneAfterStop, acceptedReported,
}

const (
	// modelMemory is how long a rate that has ended may still be measured, and how long one has to hold until it is:
	// the oldest of the manager's samples is 27 s old at a round every second, and 40 s at one every ten.
	modelMemory = 45 * time.Second
	// modelSlack is the error of a comparison of amounts: counters are read a moment before the decision.
	modelSlack = float64(8 << 20)
	// modelReaction is how soon memory that is short leads to a decision while counters can be read: the counters are
	// read every 250 ms while a hard threshold is met, and the ends of pods are polled every second.
	modelReaction = 1500 * time.Millisecond
)

// modelFault is a check that failed.
type modelFault struct{ check, text string }

// modelPoint is what was available at a time. Between two points of an epoch it changes evenly.
type modelPoint struct {
	at                     time.Time
	memory, toPods, images float64
	memoryEpoch, diskEpoch int
	// hard: something changed other than evenly.
	hard bool
}

// modelChecks is the state of the checks.
type modelChecks struct {
	faults []modelFault
	// stock: the actions are those of stock's manager, which are not judged.
	stock bool
	// judged is the number of orders that were judged.
	judged int
	past   []modelPoint
	// memoryEpoch and diskEpoch count releases: stats of an earlier epoch do not show the last release.
	memoryEpoch, diskEpoch int
	// uncovered is since when memory is short and too little in flight, hurried since when candidates use it up before
	// a kill takes effect besides; zero when it is not so.
	uncovered, hurried time.Time
	// sampling is since when memory is so scarce that the manager keeps samples, zero while it is not.
	sampling time.Time
	// diskIdle is since when the image disk is short and something can be done about it.
	diskIdle time.Time
	// covered: what was in flight after the last decision for memory, which was made at coveredAt, covered the deficit.
	covered   bool
	coveredAt time.Time
	// together is the number of decisions with several victims for memory, compared that of evictions compared with
	// stock's.
	together, compared int
	// decisions is the number of those that were replayed.
	decisions int
}

// fail records the first failure of a check in a run.
func (n *modelNode) fail(check, f string, a ...any) {
	if slices.ContainsFunc(n.checks.faults, func(f modelFault) bool { return f.check == check }) {
		return
	}
	text := fmt.Sprintf("%9.3fs  ", n.sinceStart(n.at).Seconds()) + fmt.Sprintf(f, a...)
	n.checks.faults = append(n.checks.faults, modelFault{check, text})
	n.trace = append(n.trace, text+"  <- "+check)
}

// remember adds a point. One in the middle of an even change is not kept.
func (n *modelNode) remember(at time.Time, hard bool) {
	c := &n.checks
	p := modelPoint{
		at: at, memory: n.available(), toPods: n.podsLimit - n.podsUsed(), hard: hard,
		memoryEpoch: c.memoryEpoch, diskEpoch: c.diskEpoch,
	}
	if n.images != nil {
		p.images = n.imagesFree()
	}
	if k := len(c.past) - 1; k > 0 && !hard {
		if last := &c.past[k]; !last.hard && last.memoryEpoch == p.memoryEpoch && last.diskEpoch == p.diskEpoch {
			*last = p
			return
		}
	}
	c.past = append(c.past, p)
}

// window is the beginning of the time in which the stats of a decision at this instant may have been measured.
func (n *modelNode) window() time.Time {
	return n.at.Add(-modelSampling - 2*n.summaryTook - time.Second)
}

// deficit is the most memory that was missing in the window and after the last release, for soft thresholds too if
// soft is true.
func (n *modelNode) deficit(soft bool) float64 {
	target := n.settings.hard + n.settings.minReclaim
	if soft {
		target = max(target, n.settings.soft+n.settings.minReclaim)
	}
	found := target - n.scarcest()
	for i := len(n.checks.past) - 1; i >= 0; i-- {
		p := &n.checks.past[i]
		if p.memoryEpoch != n.checks.memoryEpoch {
			break
		}
		if found = max(found, target-p.memory); n.settings.allocatable {
			found = max(found, target-p.toPods)
		}
		if p.at.Before(n.window()) {
			break
		}
	}
	return found
}

// diskDeficit is the same for the image disk.
func (n *modelNode) diskDeficit() float64 {
	found := n.settings.images - n.imagesFree()
	for i := len(n.checks.past) - 1; i >= 0; i-- {
		p := &n.checks.past[i]
		if p.diskEpoch != n.checks.diskEpoch {
			break
		}
		if found = max(found, n.settings.images-p.images); p.at.Before(n.window()) {
			break
		}
	}
	return found
}

// scarcest is what is available of that memory for which a threshold is nearest.
func (n *modelNode) scarcest() float64 {
	if n.settings.allocatable {
		return min(n.available(), n.podsLimit-n.podsUsed())
	}
	return n.available()
}

// below is by how much a hard memory threshold is met now; negative when none is.
func (n *modelNode) below() float64 { return n.settings.hard - n.scarcest() }

// surely is true for pods of which every manager counts what they give back as on its way, possibly for those of which
// it may.
func (n *modelNode) surely(hard bool) func(*modelPod) bool {
	return func(p *modelPod) bool { return n.counted(p, hard, -n.unsure(p)) }
}

func (n *modelNode) possibly(hard bool) func(*modelPod) bool {
	return func(p *modelPod) bool { return n.counted(p, hard, max(n.unsure(p), 1)) }
}

// unsure is by how much the end of a pod's grace period may seem sooner or later than it is. The deletion of a pod is
// dated by the wall clock; when that is set before the deletion is seen, it is only known between which rounds it was.
func (n *modelNode) unsure(p *modelPod) time.Duration {
	period := n.settings.timing.Period + n.summaryTook
	unseen := func(t time.Time) bool { return !t.Before(p.deletedAt) && !t.After(p.deletedAt.Add(period)) }
	if p.deletedUntil.IsZero() || !p.deadline.Equal(p.deletedUntil) || !slices.ContainsFunc(n.steppedAt, unseen) {
		return 0
	}
	return period
}

// counted is true when what the pod gives back is on its way: before this instant we asked it to stop, or others did,
// that has not failed, and the pod has neither outlived its grace period and patience nor, once its containers have
// ended, been waited for that long. A hard need does not count a pod that was given longer than a kill takes. The end
// of the grace period may be off by so much either way.
func (n *modelNode) counted(p *modelPod, hard bool, off time.Duration) bool {
	t := &n.settings.timing
	deadline := p.deadline
	if last := p.lastOrder(); last != nil {
		if !last.at.Before(n.at) || (!p.dying && !p.failedAt.Before(last.at)) {
			return false
		}
		if asked := last.at.Add(last.grace); !p.dying || (p.failedAt.Before(last.at) && asked.Before(deadline)) {
			deadline = asked
		}
	}
	switch {
	case p.clean || (!p.dying && len(p.orders) == 0):
		return false
	case p.dead():
		// A pod that was not evicted is known to have ended only where a round was made before that had all pods.
		return (len(p.orders) > 0 || off > 0) && n.at.Sub(p.deadAt) < t.Patience
	case hard && deadline.Sub(n.at) > t.KillTime+off:
		return false
	case !hard && p.requested() && deadline.Sub(n.at) > max(t.Patience, modelMaxGrace*time.Second)+off:
		return false
	}
	return n.at.Sub(deadline) < t.Patience+off
}

// inFlight is how much memory is on its way, and when the newest request for it was made. Of a pod whose containers
// have ended only the content of its volumes and page cache are.
func (n *modelNode) inFlight(
	counted func(*modelPod) bool, amount func(*modelPod) float64,
) (sum float64, newest time.Time) {
	for _, p := range n.pods {
		if !counted(p) {
			continue
		}
		back := amount(p)
		sum += back
		if last := p.lastForNode(); last != nil && (back > 0 || last.cause == forMemory) {
			newest = snapshot.Later(newest, last.at)
		}
	}
	return sum, newest
}

// candidate is true for pods that may be evicted, other than those that are being stopped, of which some may be
// hastened, and those whose kill failed a moment ago.
func (n *modelNode) candidate(p *modelPod) bool {
	if !p.here() || p.critical || p.dying {
		return false
	}
	last := p.lastOrder()
	return last == nil || (p.failedAt.After(last.at) && n.at.Sub(p.failedAt) > retryAfter+2*time.Second)
}

// readable is true when the counters could be read ever since.
func (n *modelNode) readable(since time.Time) bool { return n.readerFailed.Before(since) }

// seen is the least that a manager may have measured a pod to use: where counters fail, it is what the summary has.
func (n *modelNode) seen(p *modelPod) float64 {
	if n.readable(n.at.Add(-modelSampling - n.summaryTook)) {
		return p.uses()
	}
	return min(p.uses(), p.sampled.memory)
}

// highest is the sum of the greatest rates of some pods that may be measured now.
func (n *modelNode) highest(of func(*modelPod) bool) (sum float64) {
	since := n.at.Add(-modelMemory)
	for _, p := range n.pods {
		if of(p) {
			sum += most(p.rates, since)
		}
	}
	return sum
}

// steady is the sum of those rates of some pods that have held for so long, and held back by nothing, that they are
// measured.
func (n *modelNode) steady(of func(*modelPod) bool) (sum float64) {
	since := n.at.Add(-modelMemory)
	sampled := n.at.Add(-n.settings.timing.Period - n.summaryTook - modelSampling)
	if !n.fullAt.Before(since) || !n.readable(since) || n.checks.sampling.IsZero() || n.checks.sampling.After(sampled) {
		return 0
	}
	for _, p := range n.pods {
		if of(p) {
			sum += least(p.rates, since)
		}
	}
	return sum
}

// most is the greatest of the rates that held since a time.
func most(rates []modelRate, since time.Time) (found float64) {
	for i := len(rates) - 1; i >= 0; i-- {
		if found = max(found, rates[i].rate); !rates[i].at.After(since) {
			break
		}
	}
	return found
}

// least is the smallest of the rates that held since a time, never negative. Before the first there was no growth.
func least(rates []modelRate, since time.Time) float64 {
	if len(rates) == 0 || rates[0].at.After(since) {
		return 0
	}
	found := rates[len(rates)-1].rate
	for i := len(rates) - 1; i >= 0; i-- {
		if found = min(found, rates[i].rate); !rates[i].at.After(since) {
			break
		}
	}
	return max(0, found)
}
