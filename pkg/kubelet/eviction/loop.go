package eviction

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// pollLedger is the time between two checks of whether stopped pods are cleaned up.
	pollLedger = time.Second
	// stopPatience is the longest time that Run waits at its end for kills, collections and sinks.
	stopPatience = 5 * time.Second
	// askedPause is the shortest time to the next collection while pods wait for admission. After a collection that took
	// long it is collectShare times that duration, so that collections take at most a twentieth of the time. A round may
	// begin a node-level reclaim, whose end causes another collection.
	askedPause   = 2 * time.Second
	collectShare = 20
)

// Run manages evictions until ctx ends. Then it waits a short time for the kills that it has begun, which end with ctx
// too. While the configuration cannot lead to an eviction and plugins request none, it only waits for Wake. It is
// called once.
func (m *Manager) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	logger.Info("Eviction manager: starting control loop")
	m.sinks.start(ctx)
	defer m.drain()
	defer func() {
		if m.loop.kernel != nil {
			m.loop.kernel.close()
		}
	}()
	m.loop.next = m.clock.now()
	alarm, stop := m.startAlarm(ctx)
	defer stop()
	for ctx.Err() == nil {
		if !m.take(ctx) {
			if alarm.Wait(); ctx.Err() != nil {
				return
			}
			m.take(ctx)
		}
		if m.idle() {
			continue
		}
		m.tick(ctx)
		alarm.Set(m.untilTick())
	}
}

// take takes something that was sent to the loop, and reports whether there was anything.
func (m *Manager) take(ctx context.Context) bool {
	select {
	case <-m.wake:
		m.syncNow()
	case <-m.asked:
		m.syncSoon()
	case f := <-m.loop.collected:
		m.loop.collecting.ended(m.clock.now(), &f)
		m.syncWith(ctx, f)
	case f := <-m.loop.collectedLocal:
		m.loop.collecting.degradedSince = time.Time{}
		// Otherwise the complete collection has ended, and has newer stats.
		if now := m.clock.now(); m.loop.collecting.overdue(now) {
			m.missing(&f, now)
			m.syncWith(ctx, f)
		}
	case <-m.nudge:
		if w := m.loop.watcher; w != nil && w.Hurry(m.clock.now()) {
			m.loop.nudged = true
		}
	default:
		return false
	}
	return true
}

// hasWork reports whether the configuration can lead to an eviction without a request of plugins.
func (m *Manager) hasWork() bool {
	return len(m.config.Thresholds) > 0 || m.config.LocalStorageCapacityIsolation
}

// observesPods reports whether plugins use what pods use, by the options that are in force or about to be.
func (m *Manager) observesPods() bool {
	o := m.newOptions.Load()
	if o == nil {
		o = m.options.Load()
	}
	return o.AllPods
}

// idle reports whether only a request of plugins can lead to an eviction, and there is none, nor anything to observe
// for them or of earlier ones.
func (m *Manager) idle() bool {
	return !m.hasWork() && !m.observesPods() && m.ledger.unused() && !m.loop.collecting.underWay() &&
		len(m.requests()) == 0
}

// requests returns the evictions that plugins request.
func (m *Manager) requests() []snapshot.Request {
	if m.config.Requests == nil {
		return nil
	}
	return m.config.Requests()
}

// syncNow makes the next collection due. If a collection is under way, which may have missed the event, another one
// follows it. If its round waits for a read of the counters, the next collection follows the round.
func (m *Manager) syncNow() {
	l := &m.loop
	underWay := l.collecting.underWay()
	if l.again = underWay || l.roundWaits; underWay || !l.roundWaits {
		l.next, l.trigger = m.clock.now(), TriggerEvent
	}
}

// syncSoon shortens the time to the next collection while a pod waits for the end of pressure. It does nothing when a
// condition is True only until the end of its transition period, which is scheduled already, when the memory watcher
// detects the end, and while the round of a collection waits for a read of the counters.
func (m *Manager) syncSoon() {
	l, last := &m.loop, m.last.Load()
	blocked := func(c policy.Condition) bool {
		return (c.HardMet || c.Restored) && (c.Type != v1.NodeMemoryPressure || !l.watcher.Watches())
	}
	if last == nil || l.roundWaits || !slices.ContainsFunc(last.Decision.Conditions[:], blocked) {
		return
	}
	if soon := l.taken.Add(max(askedPause, collectShare*l.collecting.took)); soon.Before(l.next) {
		l.next = soon
	}
}

// sweep updates the ledger, and passes what has become of evictions to the sinks.
func (m *Manager) sweep(ctx context.Context) (changed bool) {
	changed, results := m.ledger.sweep(m.clock.now, m.loop.last.RuntimeSilent, m.lives())
	for i := range results {
		m.sinks.result(ctx, &results[i])
	}
	return changed
}

// tick begins a collection when one is due, and synchronizes without when one takes too long.
func (m *Manager) tick(ctx context.Context) {
	m.takeOptions()
	changed := m.sweep(ctx)
	ended := m.loop.ended.sweep(m.clock.now, m.loop.rules.Timing.Patience, m.lives())
	now := m.clock.now()
	if changed || ended {
		m.syncNow()
	}
	l := &m.loop
	if l.watcher != nil && l.watcher.Due(now) {
		m.watch(ctx)
	}
	m.syncWaiting(ctx)
	switch {
	case l.collecting.underWay():
		l.collecting.bound(now)
		if l.collecting.overdue(now) && !now.Before(l.next) {
			m.syncDegraded(ctx, now)
		}
	case !now.Before(l.next):
		m.collect(ctx, now)
	}
}

// watch reads the memory counters, and synchronizes at once when a threshold is crossed: a collection would take too
// long.
func (m *Manager) watch(ctx context.Context) {
	l := &m.loop
	l.watcher.Arm(l.rules.Thresholds)
	if l.last.counting == l.watcher.Counting() {
		l.watcher.Use(l.last.memory, l.last.readAt)
	}
	if l.kernel != nil {
		l.kernel.arm(ctx, l.watcher, m.clock.now())
	}
	if r := l.watcher.Check(); r != nil {
		l.last.convert()
		f, trigger := l.last, l.trigger
		f.memory, f.counting, f.readAt, f.moment = r, l.watcher.Counting(), m.clock.now(), m.clock.moment()
		// The round of a collection that waits for this read is made with it: another one, with what the collection read
		// before, would report that what this read shows is over.
		f.direct, l.roundWaits = !l.roundWaits, false
		if l.trigger = TriggerCounters; l.nudged {
			l.trigger = TriggerKernel
		}
		m.synchronize(ctx, &f)
		if f.direct {
			l.trigger = trigger
		}
	} else {
		m.prepareFence()
	}
	l.nudged = l.nudged && l.postpones()
}

// untilTick returns the time until the next tick. The clean-up of pods is polled while an eviction is in flight.
func (m *Manager) untilTick() time.Duration {
	l := &m.loop
	wait := l.next.Sub(m.clock.now())
	if l.collecting.underWay() {
		wait = l.collecting.until(l.next).Sub(m.clock.now())
	}
	if !m.ledger.empty() || !l.ended.empty() {
		wait = min(wait, pollLedger)
	}
	if l.watcher != nil {
		wait = min(wait, l.watcher.Next().Sub(m.clock.now()))
	}
	return max(wait, 0)
}

// synchronize runs one round: it takes a snapshot, decides, publishes the decision and carries it out.
func (m *Manager) synchronize(ctx context.Context, f *stats) {
	l := &m.loop
	// This comes first, since the thresholds determine which pods a snapshot needs.
	m.effective(ctx, f.Layout)
	// A pod may have ended since the last tick, after it was read: it must be in flight as one that has stopped.
	m.sweep(ctx)
	s := m.snapshot(f)
	replaced := false
	if held := m.restored.Swap(nil); held != nil {
		l.state, replaced = l.state.WithConditions(*held, s.Taken), true
	}
	if l.counting != f.counting {
		l.counting, l.state, replaced = f.counting, l.state.WithoutMemorySamples(), true
	}
	m.observeLeft(s)
	if l.frozen == nil {
		l.frozen = new(l.rules)
	}
	r := &Round{
		Trigger: l.trigger, Snapshot: s, Rules: l.frozen, MemoryRead: f.memory != nil || f.keptPods, AllPods: l.allPods,
		StateReplaced: replaced,
	}
	var after policy.State
	r.Decision, after = policy.Decide(s, r.Rules, l.state)
	l.trigger = TriggerTimer
	if l.watcher != nil {
		l.watcher.Decided(&r.Decision, s.InFlight)
		r.CountersErrSince, r.CountersErr = l.watcher.Failure()
	}
	m.last.Store(r)
	m.publish(r)
	r.Notices = l.notices.of(r, l.rules.Timing.Period)
	m.carryOut(ctx, r, &l.state)
	l.state = after
	next := s.Taken.Add(nextSync(&r.Decision, l.rules.Timing.Period))
	if f.direct && l.next.Before(next) {
		// A round between two collections does not delay the next one.
		next = l.next
	}
	l.next = next
	if l.again && !l.collecting.underWay() && !f.direct {
		l.again, l.next, l.trigger = false, s.Taken, TriggerEvent
	}
}

// nextSync returns the time from a decision to the next collection.
func nextSync(d *policy.Decision, period time.Duration) time.Duration {
	if d.SyncAfter > 0 && d.SyncAfter < period {
		return d.SyncAfter
	}
	return period
}

func (m *Manager) snapshot(f *stats) *snapshot.Snapshot {
	// Snapshots are in the order of time: a round without the collection may have been made since the collection ended.
	// Pods may have been read before that round, and have grown since.
	current := !f.readAt.Before(m.loop.taken)
	if !f.taken.Before(m.loop.taken) {
		m.loop.moment = f.moment
	}
	s := &snapshot.Snapshot{
		Taken: m.loop.taken, WallTime: m.loop.wallTime, Layout: f.Layout, Signals: f.signals(),
		Reclaims: m.reclaims.view(), RuntimeSilent: f.RuntimeSilent, PodsAwaited: f.awaited,
	}
	if f.memory != nil {
		s.MemoryRate, s.LongMemoryRate = f.memory.Rate, f.memory.LongRate
	}
	s.InFlight, s.LastRelease = m.ledger.view()
	s.Requests = m.requests()
	which := m.wanted(s)
	m.loop.allPods = which == everyPod
	s.Pods = m.loop.builder.pods(m.config.ActivePods(), f, which)
	if current {
		m.ledger.observe(s.Pods, f.Layout)
	}
	switch {
	case which != everyPod:
		m.loop.ended.forget()
	case current:
		m.loop.ended.observe(s, m.config.PodStopped)
	}
	m.loop.ended.sweep(m.clock.now, m.loop.rules.Timing.Patience, m.lives())
	m.loop.ended.addTo(s)
	return s
}

func (m *Manager) lives() lives {
	return lives{stopped: m.config.PodStopped, cleanedUp: m.config.PodCleanedUp}
}

// wanted returns which pods a decision on the snapshot can need: on a calm node only those with limits on local
// storage, unless plugins request evictions or use what pods use. A snapshot that is recorded has every pod.
func (m *Manager) wanted(s *snapshot.Snapshot) wanted {
	switch {
	case m.options.Load().AllPods, !policy.Calm(s, &m.loop.rules), m.config.Recorded != nil && m.config.Recorded(s):
		return everyPod
	case m.loop.rules.LocalStorageLimits:
		return limitedPods
	}
	return noPod
}

// effective derives the thresholds for the layout, again when that changes.
func (m *Manager) effective(ctx context.Context, layout snapshot.Layout) {
	l := &m.loop
	if layout != l.layout || l.underived {
		l.layout, l.underived = layout, false
		thresholds, replaced := policy.Effective(l.configured, layout)
		l.rules.Thresholds, l.frozen = thresholds, nil
		if l.watcher != nil {
			l.watcher.Rearm()
		}
		if len(replaced) > 0 {
			klog.FromContext(ctx).Info(
				"Eviction manager: thresholds of the container file system are derived, configured ones are ignored", "signals",
				replaced)
		}
	}
}

// drain waits for the goroutines of the manager and for the sinks, each at most stopPatience.
func (m *Manager) drain() {
	done := make(chan struct{})
	go func() { m.work.Wait(); close(done) }()
	m.await(done)
	m.await(m.sinks.close())
}

// await waits for done, at most stopPatience.
func (m *Manager) await(done <-chan struct{}) {
	timer := m.config.Clock.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}
