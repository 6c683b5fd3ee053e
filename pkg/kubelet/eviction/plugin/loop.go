package plugin

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

const (
	// gatherTime is how long an answer waits for those of other plugins at most, so that plugins that answer at the same
	// time are settled together, in the arbiter's order. A plugin that was asked in an earlier round, or that did not
	// answer the last time, is not waited for.
	gatherTime = 5 * time.Millisecond
	// crossingInterval is the shortest time between two rounds because memory crosses thresholds.
	crossingInterval = time.Second
)

// loop is the state of Run. One goroutine uses it.
type loop struct {
	*Driver
	ctx context.Context
	// events are from the goroutines of calls, which calls counts.
	events chan event
	calls  sync.WaitGroup
	// ending are the callers of plugins in the agent that were replaced or disabled during a call that has not ended.
	ending map[string]*caller
	timer  clock.Timer
	// round is the number of the round, taken the time at which it began.
	round uint64
	taken time.Time
	// nextRound, nextCrossing and settleAt are when the next round is due, one because of a crossing, and the settlement
	// of pending answers; zero for never.
	nextRound, nextCrossing, settleAt time.Time
	lastCrossing                      time.Time
	files                             noticeFiles
}

// event is the end of the calls of a plugin.
type event struct {
	caller *caller
	// answer is that to a round; nil if a question was asked. reply is nil if the question was not answered.
	answer *arbiter.Answer
	reply  *arbiter.Reply
}

// wait returns a channel that receives when something is due; nil if nothing is.
func (l *loop) wait() <-chan time.Time {
	var due time.Time
	for _, t := range []time.Time{l.nextRound, l.nextCrossing, l.settleAt} {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if due.IsZero() {
		if l.timer != nil {
			l.timer.Stop()
		}
		return nil
	}
	left := max(0, due.Sub(l.clock.now()))
	if l.timer == nil {
		l.timer = l.config.Clock.NewTimer(left)
	} else {
		l.timer.Reset(left)
	}
	return l.timer.C()
}

// act does what is due.
func (l *loop) act() {
	now := l.clock.now()
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	if due(l.settleAt) {
		l.settle(now)
	}
	if due(l.nextRound) {
		// A round begins at the time at which it was due, so that clocks of thresholds advance by whole periods.
		period, begun := l.options.Load().Period, l.nextRound
		if now.Sub(begun) >= period {
			begun = now
		}
		l.nextRound = begun.Add(period)
		l.begin(now, begun, false)
	}
	if due(l.nextCrossing) {
		l.nextCrossing, l.lastCrossing = time.Time{}, now
		l.begin(now, now, true)
	}
}

func (l *loop) memoryCrossed() {
	if len(l.callers) > 0 && l.nextCrossing.IsZero() {
		l.nextCrossing = l.clock.now()
		if soonest := l.lastCrossing.Add(crossingInterval); l.nextCrossing.Before(soonest) {
			l.nextCrossing = soonest
		}
	}
}

// settleSoon has the answers settled, together with those that are about to be.
func (l *loop) settleSoon() {
	if len(l.callers) > 0 && l.settleAt.IsZero() {
		l.settleAt = l.clock.now()
	}
}

// begin begins a round: it asks each plugin that has no call under way. The answer of a plugin that has not
// answered since the last round is missing. Rounds because of a crossing do not count for that: a plugin may have
// been asked for one just before.
func (l *loop) begin(now, taken time.Time, crossing bool) {
	if l.unsettled() {
		l.settle(now)
	}
	view := l.view(taken)
	for _, c := range l.callers {
		switch {
		case !c.busy:
		case crossing:
			c.again = true
		case !c.answered:
			p := &l.bookOf(c).pending
			p.Plugins = append(p.Plugins, arbiter.Answer{Plugin: c.name, Asked: c.taken})
		}
		c.answered = c.answered && crossing
	}
	l.round, l.taken = l.round+1, taken
	l.files.changed = l.files.changed || l.files.failed
	l.live.pending.Begun, l.dry.pending.Begun = true, true
	for _, c := range l.callers {
		if !c.busy {
			l.ask(c, view)
		}
	}
	switch {
	case !l.outstanding():
		l.settleAt = now
	case l.unsettled():
		l.settleAt = now.Add(gatherTime)
	}
}

// unsettled reports whether answers have come in that are not settled.
func (l *loop) unsettled() bool {
	return len(l.live.pending.Plugins)+len(l.live.pending.Replies)+
		len(l.dry.pending.Plugins)+len(l.dry.pending.Replies) > 0
}

// outstanding reports whether a plugin that was asked in this round has not answered. One that did not answer the last
// time is not waited for.
func (l *loop) outstanding() bool {
	for _, c := range l.callers {
		if c.busy && c.asked == l.round && !c.failed {
			return true
		}
	}
	return false
}

func (d *Driver) bookOf(c *caller) *book {
	if c.dryRun {
		return &d.dry
	}
	return &d.live
}

func (l *loop) ask(c *caller, view *View) {
	c.busy, c.again, c.asked, c.taken = true, false, l.round, view.Taken
	l.goAsk(c, view)
}

// receive notes the end of the calls of a plugin, and when its answer is to be settled.
func (l *loop) receive(e event) {
	if c := l.callers[e.caller.name]; c != e.caller {
		if l.ending[e.caller.name] == e.caller {
			delete(l.ending, e.caller.name)
			if c != nil {
				c.busy = false
			}
		}
		return
	}
	e.caller.busy = false
	p := &l.bookOf(e.caller).pending
	switch {
	case e.answer != nil:
		e.caller.answered = true
		e.caller.failed = e.answer.Demand == nil || e.answer.Threshold == nil
		// The answer was late if it counts as missing. There is one of each plugin.
		p.Plugins = append(slices.DeleteFunc(p.Plugins, func(a arbiter.Answer) bool { return a.Plugin == e.caller.name }),
			*e.answer)
	case e.reply != nil:
		p.Replies = append(p.Replies, *e.reply)
	}
	switch now := l.clock.now(); {
	case !l.outstanding():
		l.settleAt = now
	case l.settleAt.IsZero():
		l.settleAt = now.Add(gatherTime)
	}
}

// refresh brings the plugins that are called in line with the options and with what is registered.
func (l *loop) refresh() {
	now := l.clock.now()
	if l.unsettled() {
		l.settle(now)
	}
	l.mu.Lock()
	l.updateCallers()
	l.mu.Unlock()
	l.active.Store(len(l.callers) > 0)
	if len(l.callers) == 0 {
		l.last.Store(nil)
	}
	l.settle(now)
	switch soonest := l.taken.Add(l.options.Load().Period); {
	case l.idle():
		l.nextRound, l.nextCrossing = time.Time{}, time.Time{}
	case l.nextRound.IsZero() && soonest.Before(now):
		l.nextRound = now
	case l.nextRound.IsZero() || soonest.Before(l.nextRound):
		l.nextRound = soonest
	}
}

// idle reports whether there is nothing to do until the options or the registered plugins change. A write of notice
// files that has failed is to be repeated.
func (l *loop) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.callers) == 0 && len(l.live.state.Conditions) == 0 && !l.files.failed
}

// stop ends all calls, and waits for them.
func (l *loop) stop() {
	l.mu.Lock()
	for _, c := range l.callers {
		c.cancel()
	}
	l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.calls.Wait()
}

// view is what plugins are given now.
func (l *loop) view(taken time.Time) *View {
	skip := &l.options.Load().Skip
	pods := slices.DeleteFunc(slices.Clone(l.config.Pods()), func(pod *v1.Pod) bool {
		return skip.Exclude(pod) != arbiter.NotExcluded
	})
	sortPods(pods)
	return &View{Taken: taken, Pods: pods, Node: l.last.Load()}
}

// questionView is what plugins are given with a question: as view, without the pods that the question omits.
func (l *loop) questionView(q *arbiter.Question) *View {
	view := l.view(l.taken)
	view.Pods = slices.DeleteFunc(view.Pods, func(pod *v1.Pod) bool {
		_, omitted := slices.BinarySearch(q.Omitted, pod.UID)
		return omitted
	})
	return view
}

// pods are the pods of this node for the arbiter, by our own objects (E7). Those in flight are among them until they
// are released.
func (l *loop) pods() (list []arbiter.Pod) {
	skip, blocked := &l.options.Load().Skip, l.config.blocked()
	inFlight := map[types.UID]bool{}
	for _, pod := range l.config.InFlight() {
		inFlight[pod.UID] = pod.Overdue
	}
	for _, pod := range l.config.Pods() {
		overdue, flies := inFlight[pod.UID]
		delete(inFlight, pod.UID)
		p := arbiter.Pod{UID: pod.UID, Excluded: skip.Exclude(pod), InFlight: flies, Overdue: overdue,
			QoSLevel: skip.Levels.Of(pod), GraceSeconds: ownGrace(pod),
			NotifyOnly: pod.Annotations[arbiter.SoftNoticeKey] == "true", Blocked: slices.Contains(blocked, pod.UID)}
		if pod.Spec.Priority != nil {
			p.Priority = *pod.Spec.Priority
		}
		list = append(list, p)
	}
	for uid, overdue := range inFlight {
		list = append(list, arbiter.Pod{UID: uid, Excluded: arbiter.Unknown, InFlight: true, Overdue: overdue})
	}
	return list
}

// ownGrace is the grace period of a pod in seconds.
func ownGrace(pod *v1.Pod) int64 {
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return *seconds
	}
	return v1.DefaultTerminationGracePeriodSeconds
}
