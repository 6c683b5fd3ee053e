package podlifecycle

import "pgregory.net/rapid"

// This file has sequences of events that occur in clusters; events_test.go has single events.

// deleted is a deletion in the API server, with the pod's own grace period or a shorter one.
func (m *sim) deleted(t *rapid.T) {
	uid := m.drawKnown(t)
	facts := simPods[uid]
	facts.Deleting, facts.DeletionGrace, facts.SpecGrace = true, new(rapid.Int64Range(0, 60).Draw(t, "grace")),
		new(int64(30))
	m.send(uid, Updated{Type: UpdateChange, Pod: facts})
}

// forceDeleted is a pod that its source has removed: the sync loop kills it, and housekeeping does not find it in the
// configuration.
func (m *sim) forceDeleted(t *rapid.T) {
	uid := m.drawKnown(t)
	facts := simPods[uid]
	if !facts.Static {
		facts.Deleting, facts.DeletionGrace = true, new(int64(0))
	}
	m.send(uid, Updated{Type: UpdateKill, Pod: facts})
	if rapid.Bool().Draw(t, "seen by housekeeping") {
		m.reconcileOne(uid, Reconciled{Config: &facts})
	}
}

// evicted is what the eviction manager and the preemption do.
func (m *sim) evicted(t *rapid.T) {
	uid := m.drawKnown(t)
	kill := &Kill{Evict: true, Grace: pointers(30).Draw(t, "grace"), Waiter: m.waiter(uid), Amends: true}
	m.send(uid, Updated{Type: UpdateKill, Pod: m.drawFacts(t, uid), Kill: kill})
}

// killedSooner is a kill with a shorter grace period than the accepted one, if that is possible.
func (m *sim) killedSooner(t *rapid.T) {
	uid := m.drawKnown(t)
	s, _ := m.table.State(uid)
	kill := &Kill{Grace: new(rapid.Int64Range(0, max(1, s.Termination.Grace)).Draw(t, "grace")),
		Evict: rapid.Bool().Draw(t, "evict")}
	m.send(uid, Updated{Type: UpdateKill, Pod: simPods[uid], Kill: kill})
}

// createdAgain is a pod of the same UID that is created while the earlier one is there.
func (m *sim) createdAgain(t *rapid.T) {
	uid := m.drawKnown(t)
	m.send(uid, Updated{Type: UpdateCreate, Pod: m.drawFacts(t, uid), Stopped: m.drawStopped(t, uid)})
}

// movedWhileTheRuntimeIsDown is a pod that leaves its source while operations fail. It is created again before its
// retry is due, afterwards, or not at all.
func (m *sim) movedWhileTheRuntimeIsDown(t *rapid.T) {
	uid := m.drawKnown(t)
	m.send(uid, Updated{Type: UpdateKill, Pod: simPods[uid]})
	for range rapid.IntRange(1, 5).Draw(t, "turns") {
		m.stepWorker(uid, Failed, WorkerReady{}, simPods[uid])
	}
	back := rapid.IntRange(0, 2).Draw(t, "back")
	if back == 1 {
		m.send(uid, Updated{Type: UpdateCreate, Pod: simPods[uid]})
	}
	if p := m.pod(uid); p.requeued {
		m.requeueDue(uid, back == 1)
	}
	if back == 2 {
		m.send(uid, Updated{Type: UpdateCreate, Pod: simPods[uid]})
	}
}

// replaced is a manifest that was changed: another UID under the same full name, the old one killed before or after.
func (m *sim) replaced(t *rapid.T) {
	old := rapid.SampledFrom([]UID{"s1", "s2", "s3"}).Draw(t, "old")
	created := rapid.SampledFrom([]UID{"s1", "s2", "s3"}).Draw(t, "new")
	kill := func() { m.send(old, Updated{Type: UpdateKill, Pod: simPods[old]}) }
	create := func() { m.send(created, Updated{Type: UpdateCreate, Pod: simPods[created]}) }
	if rapid.Bool().Draw(t, "created first") {
		create()
		kill()
		return
	}
	kill()
	create()
}

// mirrored is an event of a mirror pod: it only syncs the static pod.
func (m *sim) mirrored(t *rapid.T) {
	uid := rapid.SampledFrom([]UID{"s1", "s2", "s3", "s4", "s5"}).Draw(t, "static")
	m.send(uid, Updated{Type: UpdateSync, Pod: simPods[uid]})
}

// foundInRuntime is a pod that housekeeping finds in the runtime and in no configuration.
func (m *sim) foundInRuntime(t *rapid.T) {
	uid := drawUID(t)
	ev := RuntimePodFound{FullName: simPods[uid].FullName, Kill: m.drawKill(t, uid)}
	if s, known := m.table.State(uid); known && !s.Marks.RuntimeOnly {
		ev.Config = new(m.drawFacts(t, uid))
	}
	m.send(uid, ev)
}

// orphaned is a pod that left the configuration.
func (m *sim) orphaned(t *rapid.T) {
	uid := m.drawKnown(t)
	ev := Reconciled{}
	if s, known := m.table.State(uid); known && !s.Marks.RuntimeOnly {
		ev.Config = new(m.drawFacts(t, uid))
	}
	m.reconcileOne(uid, ev)
}

// reconcileOne reconciles one pod, if it has a state.
func (m *sim) reconcileOne(uid UID, ev Reconciled) {
	m.markSynced()
	if _, known := m.table.State(uid); known {
		m.send(uid, ev)
	}
}

// reconciled is a round of housekeeping with any configuration.
func (m *sim) reconciled(t *rapid.T) {
	m.reconcile(rapid.SliceOfDistinct(rapid.SampledFrom(simUIDs), func(u UID) UID { return u }).Draw(t, "desired"))
}

// agentRestarts restarts the agent. Pods continue to run; the new agent gets updates from sources and runtime, and
// resumes most of the terminations.
func (m *sim) agentRestarts(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "rarely") != 0 {
		t.Skip()
	}
	begun := map[UID]Termination{}
	for _, uid := range m.table.UIDs() {
		if s, _ := m.table.State(uid); s.Phase == Terminating && !s.Static && rapid.IntRange(0, 3).Draw(t, "kept") != 0 {
			begun[uid] = s.Termination
		}
	}
	m.restart()
	for _, uid := range rapid.SliceOfDistinct(rapid.SampledFrom(simUIDs), func(u UID) UID { return u }).Draw(t,
		"configured") {
		facts := m.drawFacts(t, uid)
		switch was := begun[uid]; was.Cause {
		case CauseEviction, CauseKill, CauseDeletion:
			kill := &Kill{Evict: was.Cause == CauseEviction, Grace: &was.Grace, Resumed: was.Cause, Amends: was.Amended}
			m.send(uid, Updated{Type: UpdateKill, Pod: facts, Kill: kill})
			s, _ := m.table.State(uid)
			m.check(s.Termination.Cause == was.Cause && s.Termination.Grace <= was.Grace,
				"%s goes on as %v, %d s, and was %v, %d s", uid,
				s.Termination.Cause, s.Termination.Grace, was.Cause, was.Grace)
		default:
			m.send(uid, Updated{Type: UpdateCreate, Pod: facts, Stopped: m.drawStopped(t, uid)})
		}
	}
	for _, uid := range simUIDs {
		if _, known := m.table.State(uid); !known && m.running[uid] {
			m.send(uid, RuntimePodFound{FullName: simPods[uid].FullName, Kill: &Kill{Grace: new(int64(1))}})
		}
	}
}
