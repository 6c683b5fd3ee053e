package eviction

import (
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// watch checks that something is done in time. It is called every modelTick.
func (n *modelNode) watch() {
	defer n.locked()()
	n.judge()
	if n.checks.stock {
		return
	}
	n.watchMemory()
	n.watchHistory()
	n.watchRequests()
	if n.images != nil {
		n.watchDisk()
	}
}

func (n *modelNode) watchMemory() {
	c := &n.checks
	have, _ := n.inFlight(n.possibly(true), (*modelPod).seems)
	rate := n.steady(n.candidate)
	grows := rate * n.settings.timing.KillTime.Seconds()
	short := n.below() > 0 && have < n.below()+grows-modelSlack
	if n.settings.hard == 0 || !short || !slices.ContainsFunc(n.pods, n.candidate) {
		c.uncovered, c.hurried = time.Time{}, time.Time{}
		return
	}
	if c.uncovered.IsZero() {
		c.uncovered = n.at
	}
	if rate <= n.others() || n.available() >= grows*0.8 {
		c.hurried = time.Time{}
	} else if c.hurried.IsZero() {
		c.hurried = n.at
	}
	if n.at.After(n.bound()) {
		n.fail(noStandstill, "%s are missing for %v, candidates use up %s, in flight are %s, no eviction since %v ago",
			mib(n.below()), n.at.Sub(c.uncovered), mib(grows), mib(have), n.at.Sub(n.lastOrder()))
		c.uncovered = time.Time{}
	}
}

// watchHistory records since when the manager keeps samples: less than a quarter of the capacity is left above the
// thresholds.
func (n *modelNode) watchHistory() {
	switch c := &n.checks; {
	case n.scarcest()-n.settings.hard-n.settings.minReclaim >= n.capacity/4:
		c.sampling = time.Time{}
	case c.sampling.IsZero():
		c.sampling = n.at
	}
}

func (n *modelNode) lastOrder() time.Time {
	if len(n.orders) == 0 {
		return n.began
	}
	return n.orders[len(n.orders)-1].at
}

// bound is until when another pod goes at the latest, while memory is short and too little in flight: a moment while
// counters can be read, else the duration of a collection. In a hurry nothing else is waited for. Otherwise
// what is in flight has patience, what has failed the time that a kill takes, and any eviction is followed by a
// monitoring period.
func (n *modelNode) bound() time.Time {
	t, c := &n.settings.timing, &n.checks
	reaction := modelReaction
	if !n.readable(n.at.Add(-t.Period - time.Second)) {
		reaction += t.Period + n.summaryTook + modelSampling
	}
	due := c.uncovered.Add(reaction)
	if !c.hurried.IsZero() {
		return snapshot.Later(due, snapshot.Later(c.hurried, n.lastOrder()).Add(reaction))
	}
	if len(n.orders) > 0 {
		due = snapshot.Later(due, n.lastOrder().Add(t.Period+reaction))
	}
	for _, p := range n.pods {
		if !p.failedAt.IsZero() {
			due = snapshot.Later(due, p.failedAt.Add(t.KillTime+reaction))
		}
		if last := p.lastOrder(); last != nil {
			due = snapshot.Later(due, snapshot.Later(last.at, p.deadAt).Add(t.Patience+reaction))
		}
	}
	return due
}

// diskBound is for how long the image disk may be short with nothing done: patience for the last victim, stats that
// are newer than its release, each as old as its source allows, a collection, and a reclaim.
func (n *modelNode) diskBound() time.Duration {
	t := &n.settings.timing
	return t.Patience + 2*(modelSampling+t.Period+n.summaryTook) + 5*time.Second
}

func (n *modelNode) watchDisk() {
	c := &n.checks
	useful := n.images.reclaimable > 0 || slices.ContainsFunc(n.pods, n.candidate)
	if n.imagesFree() >= n.settings.images || !useful {
		c.diskIdle = time.Time{}
		return
	}
	if c.diskIdle.IsZero() {
		c.diskIdle = n.at
	}
	since := snapshot.Later(c.diskIdle, n.lastOrder())
	for _, r := range n.reclaims {
		since = snapshot.Later(since, snapshot.Later(r.begin, r.end))
	}
	for _, p := range n.pods {
		if p.clean {
			since = snapshot.Later(since, p.cleanAt)
		}
	}
	if n.at.Sub(since) > n.diskBound() {
		n.fail(noDiskStandstill, "%s are missing on the image disk, and nothing was done for %v",
			mib(n.settings.images-n.imagesFree()), n.at.Sub(since))
		c.diskIdle = time.Time{}
	}
}
