package eviction

import (
	"context"
	"errors"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// collectPatience is the duration of a collection from which on the loop synchronizes without it, and the time
	// without an answer from which on the container runtime counts as silent. shortPatience replaces the former when the
	// last collection took longer too, and both when the runtime was silent in the last collection.
	collectPatience = 15 * time.Second
	shortPatience   = time.Second
	// slower times the time to its slowest answer in the last collection is what a runtime may take for an answer.
	slower = 2
	// collectAtMost is the time without an answer of the runtime after which a collection is cancelled, as if the summary
	// had failed: the default time-out of one request. A collection that gets answers is not cancelled, however long it
	// takes.
	collectAtMost = 2 * time.Minute
	// localPatience is the duration of a local collection from which on the loop synchronizes with memory only.
	localPatience = 5 * time.Second
	// thirdReadEvery is the shortest time between two rounds for which memory is read three times.
	thirdReadEvery = 15 * time.Second
)

var errCollecting = errors.New("stats are still being collected")

// collecting is the state of the collections under way: at most one complete one, and at most one local one while that
// takes long. It belongs to the loop.
type collecting struct {
	// since and degradedSince are when the complete and the local collection began; zero while none is under way. took is
	// the duration of the last complete one.
	since, degradedSince time.Time
	took                 time.Duration
	// options are those in force when that collection began, also if it has kept stats of pods.
	options *settings.Options
	// progress has the answers of the runtime to the collection under way, slowest the longest time without an answer
	// during the last collection that succeeded.
	progress progress
	slowest  time.Duration
	// silent is true when the last stats were collected while the runtime was silent, so that waiting is probably useless.
	silent bool
	// atMost is the longest time without an answer of the runtime. patient is the context of all collections until giveUp
	// cancels one, so that a collection allocates no context.
	atMost  time.Duration
	patient context.Context
	giveUp  context.CancelFunc
}

func (c *collecting) underWay() bool { return !c.since.IsZero() }

// begin records the beginning of a collection, and returns the context for it.
func (c *collecting) begin(ctx context.Context, now time.Time) context.Context {
	c.since = now
	c.progress.begin(now)
	if c.patient == nil || c.patient.Err() != nil {
		c.patient, c.giveUp = context.WithCancel(WithAnswers(ctx, c.progress.answered))
	}
	return c.patient
}

// ended records the end of the collection that has these results. One that has kept stats of pods does not say how long
// a complete one takes, nor that no answer takes longer.
func (c *collecting) ended(now time.Time, f *stats) {
	last, slowest := c.progress.view()
	slowest = max(slowest, now.Sub(last))
	switch {
	case f.keptPods:
		c.slowest = max(c.slowest, slowest)
	case f.Err == nil:
		c.took, c.slowest = now.Sub(c.since), slowest
	default:
		c.took = now.Sub(c.since)
	}
	c.since = time.Time{}
}

// bound cancels a collection that has got no answer for too long. A source that ignores its context continues.
func (c *collecting) bound(now time.Time) {
	if last, _ := c.progress.view(); now.Sub(last) >= c.atMost {
		c.giveUp()
	}
}

// patience returns the time that the loop waits for a collection before it synchronizes without.
func (c *collecting) patience() time.Duration {
	if c.silent || c.took >= collectPatience {
		return shortPatience
	}
	return collectPatience
}

// overdue reports whether a collection has taken so long that the loop synchronizes without it.
func (c *collecting) overdue(now time.Time) bool {
	return c.underWay() && now.Sub(c.since) >= c.patience()
}

// isSilent reports whether the runtime has not answered the collection for longer than a slow runtime takes.
func (c *collecting) isSilent(now time.Time) bool {
	patience := max(collectPatience, slower*c.slowest)
	if c.silent {
		patience = shortPatience
	}
	last, _ := c.progress.view()
	return now.Sub(last) >= patience
}

// until returns when the loop has to act on the collection under way; the next round is due at next.
func (c *collecting) until(next time.Time) time.Time {
	t := snapshot.Later(next, c.since.Add(c.patience()))
	if !c.degradedSince.IsZero() {
		t = snapshot.Later(t, c.degradedSince.Add(localPatience))
	}
	last, _ := c.progress.view()
	if end := last.Add(c.atMost); c.patient.Err() == nil && end.Before(t) {
		return end
	}
	return t
}

// collect begins a collection.
func (m *Manager) collect(ctx context.Context, now time.Time) {
	l := &m.loop
	l.collecting.options = m.options.Load()
	r := collectRequest{
		readPods: l.watcher != nil && l.watcher.Near(), counting: l.collecting.options.Counting(), rules: l.rules,
	}
	if r.active = m.config.ActivePods(); m.mayKeepPods(r.active, now) {
		r.last = new(l.last)
	}
	patient := l.collecting.begin(ctx, now)
	m.work.Go(func() {
		l.collected <- m.collectStats(patient, r)
		m.ring()
	})
}

// syncDegraded synchronizes while a collection takes long: with what needs no container runtime, and if even that
// hangs, with memory only.
func (m *Manager) syncDegraded(ctx context.Context, now time.Time) {
	l := &m.loop
	switch {
	case l.collecting.degradedSince.IsZero():
		l.collecting.degradedSince = now
		r := collectRequest{counting: m.options.Load().Counting(), layout: l.layout}
		m.work.Go(func() {
			l.collectedLocal <- m.collectLocal(ctx, r)
			m.ring()
		})
	case now.Sub(l.collecting.degradedSince) >= localPatience:
		f := m.memoryOnly()
		m.missing(&f, now)
		m.syncWith(ctx, f)
	}
}

// missing records why stats that were collected while a collection is under way have none of the runtime: it is silent,
// or it is slow. If it is slow its last stats are used. They keep their dates, so that conditions hold and nothing else
// is done because of them.
func (m *Manager) missing(f *stats, now time.Time) {
	l := &m.loop
	if f.RuntimeSilent = l.collecting.isSilent(now); f.RuntimeSilent {
		return
	}
	f.awaited = true
	if f.Err != nil {
		return
	}
	last := &l.last
	f.Pods, f.usages, f.Images = last.Pods, last.usages, last.Images
	for _, sig := range imageFsSignals {
		if !f.Signals[sig].Known() && last.Signals[sig].Known() {
			f.Signals[sig] = last.Signals[sig]
		}
	}
}

// imageFsSignals are the signals whose observations may come from the container runtime only.
var imageFsSignals = [...]snapshot.Signal{
	snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree, snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree,
}

// syncWith synchronizes with new stats. Rounds that the memory watcher triggers use them until the next collection:
// what the last collection did not read is unknown. While the memory watcher postpones a decision, or has yet to read a
// crossing, the round waits: it does not know which pod uses up memory.
func (m *Manager) syncWith(ctx context.Context, f stats) {
	m.takeOptions()
	l := &m.loop
	if f.keptPods && m.outdated(&f) {
		l.collecting.silent = false
		m.syncNow()
		return
	}
	l.last, l.collecting.silent = f, f.RuntimeSilent
	if m.countingChanged() {
		m.readAgain()
	}
	if l.roundWaits, l.reread = m.awaitsRead(), false; l.roundWaits {
		l.next = m.clock.now().Add(l.rules.Timing.Period) // The round sets it again.
		return
	}
	m.synchronize(ctx, &l.last)
}

// awaitsRead reports whether the round of the last collection has to wait for a read of the counters. One that was
// begun on a calm node has not read memory; then that is done now.
func (m *Manager) awaitsRead() bool {
	w, last := m.loop.watcher, &m.loop.last
	if w == nil || (!w.ShowsUnreadCrossing(last.memory) && !w.RatesDecide()) {
		return m.loop.postpones()
	}
	if last.memory == nil {
		m.readAgain()
	}
	w.Await(last.memory)
	return true
}

// syncWaiting makes the round of a collection that has waited, unless the read for which it has waited caused one. If
// the counters do not show the crossing, memory may have been freed since the collection read it, or options may have
// changed: it is read again. Since that takes some time, it may show a crossing that the counters could not have shown:
// then the round waits once more. If the counters then show that memory was freed, it is read a third time; that would
// cost too much where they always show more than readings do.
func (m *Manager) syncWaiting(ctx context.Context) {
	l := &m.loop
	if !l.roundWaits || l.postpones() {
		return
	}
	l.roundWaits = false
	if (!l.reread && l.watcher.ShowsUnreadCrossing(l.last.memory)) || m.countingChanged() {
		l.reread = true
		m.readAgain()
		if l.roundWaits = m.awaitsRead(); l.roundWaits {
			return
		}
	} else if now := m.clock.now(); l.reread && l.watcher.Freed() && now.Sub(l.thirdReadAt) >= thirdReadEvery {
		m.readAgain() // What it has shown is over.
		if l.watcher.ShowsUnreadCrossing(l.last.memory) {
			l.thirdReadAt = now
		}
	}
	l.watcher.AddRates(l.last.memory)
	m.synchronize(ctx, &l.last)
}

// countingChanged reports whether options have changed since the last collection was begun, so that memory is counted
// in another way.
func (m *Manager) countingChanged() bool {
	last := &m.loop.last
	return last.memory != nil && last.counting != m.options.Load().Counting()
}

// readAgain reads memory for the round of the last collection.
func (m *Manager) readAgain() {
	last := &m.loop.last
	last.readAt = m.clock.now()
	last.readMemory(m.config.Memory, m.options.Load().Counting())
	last.moment = m.clock.moment()
}

// postpones reports whether the memory watcher postpones a decision.
func (l *loopState) postpones() bool { return l.watcher.Postpones() }
