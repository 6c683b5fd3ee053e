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
	// pollLedger is how often to ask whether stopped pods are cleaned up.
	pollLedger = time.Second
	// stopPatience is how long Run waits at its end for what it has begun.
	stopPatience = 5 * time.Second
	// askedPause is the least time to the next collection while pods wait; after one that took long, it is collectShare
	// times as long as that, so that a twentieth of the time is the most that collecting takes. A look may begin a
	// node-level reclaim, and end with another collection.
	askedPause   = 2 * time.Second
	collectShare = 20
)

// Run watches the node until ctx ends. It waits a short while for the kills it has begun, which end with ctx too.
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
	if !m.hasWork() {
		<-ctx.Done()
		return
	}
	m.loop.next = m.clock.now()
	timer := m.config.Clock.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
			m.lookNow()
		case <-m.asked:
			m.lookSoon()
		case f := <-m.loop.collector.results:
			m.loop.collecting.ended(m.clock.now(), f.err == nil)
			m.lookAt(ctx, f)
		case f := <-m.loop.collector.besides:
			m.loop.collecting.beside = time.Time{}
			// Otherwise the collection has come to its end, and knows more.
			if now := m.clock.now(); m.loop.collecting.overdue(now) {
				m.missing(&f, now)
				m.lookAt(ctx, f)
			}
		case <-m.nudge:
			if m.loop.gate != nil {
				m.loop.nudged = true
				m.loop.gate.hurry(m.clock.now())
			}
		case <-timer.C():
		}
		m.tick(ctx)
		timer.Reset(m.untilTick())
	}
}

// hasWork is false when nothing is configured that could ever lead to an eviction.
func (m *Manager) hasWork() bool {
	return len(m.config.Thresholds) > 0 || m.config.LocalStorageCapacityIsolation
}

func (m *Manager) lookNow() {
	m.loop.next, m.loop.trigger = m.clock.now(), TriggerEvent
	m.loop.again = m.loop.collecting.underWay()
}

// lookSoon answers a pod that was told to wait, and will ask again: the end of what it waits for is to be seen soon.
// While a condition merely lingers its end is known beforehand, and what the gate watches it will notice itself.
func (m *Manager) lookSoon() {
	l, last := &m.loop, m.last.Load()
	blocked := func(c policy.Condition) bool {
		return (c.HardMet || c.Restored) && (c.Type != v1.NodeMemoryPressure || !l.gate.watches())
	}
	if last == nil || !slices.ContainsFunc(last.Decision.Conditions[:], blocked) {
		return
	}
	if soon := l.taken.Add(max(askedPause, collectShare*l.collecting.took)); soon.Before(l.next) {
		l.next = soon
	}
}

// tick begins a collection when it is time for one, and looks on without when one takes too long.
func (m *Manager) tick(ctx context.Context) {
	m.takeOptions()
	now := m.clock.now()
	changed, results := m.ledger.sweep(now, m.loop.last.silent,
		lives{stopped: m.config.PodStopped, cleanedUp: m.config.PodCleanedUp})
	if changed {
		m.lookNow()
	}
	for i := range results {
		m.sinks.result(ctx, &results[i])
	}
	l := &m.loop
	if l.gate != nil && l.gate.due(now) {
		m.watch(ctx)
	}
	switch {
	case l.collecting.underWay():
		l.collecting.bound(now)
		if l.collecting.overdue(now) && !now.Before(l.next) {
			m.lookBeside(ctx, now)
		}
	case !now.Before(l.next):
		m.collect(ctx, now)
	}
}

// watch looks at the memory counters, and decides at once when a threshold is crossed: a collection takes too long
// then.
func (m *Manager) watch(ctx context.Context) {
	l := &m.loop
	l.gate.arm(l.rules.Thresholds)
	if l.kernel != nil {
		l.kernel.arm(ctx, l.gate, m.clock.now())
	}
	if r := l.gate.check(); r != nil {
		l.last.pods.convert()
		f, trigger := l.last, l.trigger
		f.memory, f.direct, f.moment = r, true, m.clock.moment()
		if l.trigger = TriggerCounters; l.nudged {
			l.trigger = TriggerKernel
		}
		m.look(ctx, &f)
		l.trigger = trigger
	}
	l.nudged = false
}

// untilTick is the time to sleep. Clean-up is polled while something is in flight.
func (m *Manager) untilTick() time.Duration {
	l := &m.loop
	wait := l.next.Sub(m.clock.now())
	if l.collecting.underWay() {
		wait = l.collecting.until(l.next).Sub(m.clock.now())
	}
	if !m.ledger.empty() {
		wait = min(wait, pollLedger)
	}
	if l.gate != nil {
		wait = min(wait, l.gate.next.Sub(m.clock.now()))
	}
	return max(wait, 0)
}

// look is one round: a snapshot, a decision, its effects.
func (m *Manager) look(ctx context.Context, f *figures) {
	l := &m.loop
	// First, since the thresholds say which pods a snapshot needs.
	m.effective(ctx, f.layout)
	s := m.snapshot(f)
	if held := m.restored.Swap(nil); held != nil {
		l.state = l.state.WithConditions(*held, s.Taken)
	}
	r := &Round{Trigger: l.trigger, Snapshot: s}
	r.Decision, l.state = policy.Decide(s, &l.rules, l.state)
	l.trigger = TriggerTimer
	if l.gate != nil {
		l.gate.hold(&r.Decision)
		r.CountersErr, r.CountersErrSince = l.gate.failure, l.gate.failedSince
	}
	m.last.Store(r)
	m.publish(r)
	r.Notices = l.notices.of(r, l.rules.Timing.Period)
	m.sinks.round(ctx, r)
	m.act(ctx, &r.Decision)
	next := s.Taken.Add(nextLook(&r.Decision, l.rules.Timing.Period))
	if f.direct && l.next.Before(next) {
		// A look between collections does not put off the next one.
		next = l.next
	}
	l.next = next
	if l.again && !l.collecting.underWay() && !f.direct {
		l.again, l.next, l.trigger = false, s.Taken, TriggerEvent
	}
}

func nextLook(d *policy.Decision, period time.Duration) time.Duration {
	if d.LookAgain > 0 && d.LookAgain < period {
		return d.LookAgain
	}
	return period
}

func (m *Manager) snapshot(f *figures) *snapshot.Snapshot {
	// A collection that was overtaken by a look without it must not turn back time.
	if !f.taken.Before(m.loop.taken) {
		m.loop.moment = f.moment
	}
	s := &snapshot.Snapshot{
		Taken: m.loop.taken, WallTime: m.loop.wallTime, Layout: f.layout, Signals: f.observations(),
		Reclaims: m.reclaims.view(), RuntimeSilent: f.silent, PodsAwaited: f.awaited,
	}
	s.InFlight, s.LastRelease = m.ledger.view()
	s.Pods = m.loop.builder.pods(m.config.ActivePods(), f, m.wanted(s))
	m.ledger.observe(s.Pods, f.layout)
	return s
}

// wanted says which pods a decision about the snapshot can need: on a calm node only those that may break limits of
// their own.
func (m *Manager) wanted(s *snapshot.Snapshot) wanted {
	switch {
	case !policy.Calm(s, &m.loop.rules):
		return everyPod
	case m.loop.rules.LocalStorageLimits:
		return limitedPods
	}
	return noPod
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// effective works out the thresholds that hold for the layout, again when that changes.
func (m *Manager) effective(ctx context.Context, layout snapshot.Layout) {
	l := &m.loop
	if layout != l.layout || l.underived {
		l.layout, l.underived = layout, false
		thresholds, replaced := policy.Effective(l.configured, layout)
		l.rules.Thresholds = thresholds
		if l.gate != nil {
			l.gate.armAt = time.Time{}
		}
		if len(replaced) > 0 {
			klog.FromContext(ctx).Info(
				"Eviction manager: thresholds of the container file system are derived, configured ones are ignored", "signals",
				replaced)
		}
	}
}

// drain waits for what was begun and for the sinks, but not for something that hangs.
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
