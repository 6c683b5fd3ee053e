package podlifecycle

import (
	"slices"

	"pgregory.net/rapid"
)

func pointers(max int64) *rapid.Generator[*int64] {
	return rapid.Custom(func(t *rapid.T) *int64 {
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return new(rapid.Int64Range(-1, max).Draw(t, "seconds"))
	})
}

// simPods are the simulated pods: two full names of static pods with several UIDs each, and three other pods.
var simPods = map[UID]PodFacts{
	"s1": {FullName: "a_ns", Static: true}, "s2": {FullName: "a_ns", Static: true}, "s3": {FullName: "a_ns", Static: true},
	"s4": {FullName: "b_ns", Static: true}, "s5": {FullName: "b_ns", Static: true},
	"p1": {FullName: "a_ns"}, "p2": {FullName: "p2_ns"}, "p3": {FullName: "p3_ns"},
}

var simUIDs = []UID{"p1", "p2", "p3", "s1", "s2", "s3", "s4", "s5"}

func drawUID(t *rapid.T) UID { return rapid.SampledFrom(simUIDs).Draw(t, "uid") }

// drawKnown draws a pod that has a state, so that most events have an effect; any pod if none has.
func (m *sim) drawKnown(t *rapid.T) UID {
	if known := m.table.UIDs(); len(known) > 0 {
		return rapid.SampledFrom(known).Draw(t, "known")
	}
	return drawUID(t)
}

func (m *sim) drawFacts(t *rapid.T, uid UID) PodFacts {
	facts := simPods[uid]
	facts.Deleting = !facts.Static && rapid.IntRange(0, 5).Draw(t, "deleting") == 0
	facts.Completed = rapid.IntRange(0, 7).Draw(t, "completed") == 0
	if facts.Deleting {
		facts.DeletionGrace = pointers(60).Draw(t, "deletionGrace")
	}
	facts.SpecGrace = pointers(100).Draw(t, "specGrace")
	return facts
}

func (m *sim) drawKill(t *rapid.T, uid UID) *Kill {
	if rapid.Bool().Draw(t, "noKill") {
		return nil
	}
	kill := &Kill{
		Evict:  rapid.Bool().Draw(t, "evict"),
		Grace:  pointers(60).Draw(t, "grace"),
		Amends: rapid.Bool().Draw(t, "amends"),
	}
	if rapid.IntRange(0, 9).Draw(t, "resumed") == 0 {
		kill.Resumed = rapid.SampledFrom([]Cause{CauseEviction, CauseKill, CauseDeletion}).Draw(t, "cause")
	}
	if rapid.Bool().Draw(t, "waits") {
		kill.Waiter = m.waiter(uid)
	}
	return kill
}

// drawStopped draws whether the runtime reports a pod as stopped. It never does for a running pod.
func (m *sim) drawStopped(t *rapid.T, uid UID) bool {
	return rapid.Bool().Draw(t, "stopped") && !m.running[uid]
}

// update sends an update of the given type with random contents, including unusual combinations.
func (m *sim) update(kind UpdateType) func(*rapid.T) {
	return func(t *rapid.T) {
		uid := drawUID(t)
		ev := Updated{Type: kind, Pod: m.drawFacts(t, uid), Stopped: m.drawStopped(t, uid)}
		if kind == UpdateKill || rapid.IntRange(0, 9).Draw(t, "strangeKill") == 0 {
			ev.Kill = m.drawKill(t, uid)
		}
		m.send(uid, ev)
	}
}

// actions are all events and sequences of events, each for a random pod.
func (m *sim) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"create": m.update(UpdateCreate), "change": m.update(UpdateChange), "resync": m.update(UpdateSync),
		"kill":   m.update(UpdateKill),
		"delete": m.deleted, "force delete": m.forceDeleted, "evict": m.evicted, "kill with less grace": m.killedSooner,
		"same UID again": m.createdAgain, "moved away and back": m.movedWhileTheRuntimeIsDown,
		"replace static pod": m.replaced, "mirror pod": m.mirrored, "retry": m.retry,
		"runtime pod": m.foundInRuntime, "orphan": m.orphaned, "reconcile": m.reconciled, "agent restarts": m.agentRestarts,
		"worker": m.worker, "busy worker": m.busyWorker, "workers go on": m.workersGoOn, "spurious wake": m.spuriousWake,
		"waiter leaves": m.waiterLeaves,
	}
}

func (m *sim) worker(t *rapid.T) { m.work(t, drawUID(t)) }

// busyWorker ends an operation in progress.
func (m *sim) busyWorker(t *rapid.T) {
	var busy []UID
	for _, uid := range m.table.UIDs() {
		if m.pod(uid).operation != OpNone {
			busy = append(busy, uid)
		}
	}
	if len(busy) == 0 {
		t.Skip()
	}
	m.work(t, rapid.SampledFrom(busy).Draw(t, "busy"))
}

// workersGoOn makes several operations of one pod succeed, so that histories reach late phases.
func (m *sim) workersGoOn(t *rapid.T) {
	uid := m.drawKnown(t)
	for range rapid.IntRange(1, 6).Draw(t, "turns") {
		m.stepWorker(uid, Succeeded, WorkerReady{Stopped: m.drawStopped(t, uid)}, simPods[uid])
	}
}

func (m *sim) work(t *rapid.T, uid UID) {
	outcome := rapid.SampledFrom([]Outcome{Failed, Cancelled, Succeeded, Succeeded, Succeeded, Completed}).Draw(t,
		"outcome")
	m.stepWorker(uid, outcome, WorkerReady{Stopped: m.drawStopped(t, uid)}, m.drawFacts(t, uid))
}

func (m *sim) spuriousWake(t *rapid.T) {
	if p := m.pod(drawUID(t)); p.alive {
		p.wake = true
	}
}

// retry makes a Requeue due, occasionally one of an earlier pod with the same UID, as the sync loop does.
func (m *sim) retry(t *rapid.T) {
	uid := m.drawKnown(t)
	if !m.pod(uid).requeued && rapid.IntRange(0, 3).Draw(t, "of an earlier life") != 0 {
		t.Skip()
	}
	m.requeueDue(uid, rapid.Bool().Draw(t, "named"))
}

// requeueDue sends the event of a Requeue that is due: an update if named, that is if a source has the pod.
func (m *sim) requeueDue(uid UID, named bool) {
	m.pod(uid).requeued = false
	if named {
		m.send(uid, Updated{Type: UpdateSync, Pod: simPods[uid]})
		return
	}
	m.send(uid, RetryDue{})
}

func (m *sim) waiterLeaves(t *rapid.T) {
	var ids []WaiterID
	for id := range m.waiting {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		t.Skip()
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "waiter")
	uid := m.waiting[id]
	delete(m.waiting, id)
	m.send(uid, WaiterLeft{Waiter: id})
}

// reconcile is a round of housekeeping.
func (m *sim) reconcile(desired []UID) {
	m.markSynced()
	for _, uid := range m.table.UIDs() {
		m.send(uid, Reconciled{Desired: slices.Contains(desired, uid)})
	}
}

func (m *sim) markSynced() {
	m.table.MarkSynced()
	if m.oracle != nil {
		m.oracle.synced = true
	}
}
