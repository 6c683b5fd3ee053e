package podlifecycle

import (
	"slices"
	"testing"

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

// identity of the simulated pods: two static full names with three UIDs each, and three other pods.
var simPods = map[UID]PodFacts{
	"s1": {FullName: "a_ns", Static: true}, "s2": {FullName: "a_ns", Static: true}, "s3": {FullName: "a_ns", Static: true},
	"s4": {FullName: "b_ns", Static: true}, "s5": {FullName: "b_ns", Static: true},
	"p1": {FullName: "a_ns"}, "p2": {FullName: "p2_ns"}, "p3": {FullName: "p3_ns"},
}

func simUIDs() []UID {
	var uids []UID
	for uid := range simPods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
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
	if rapid.Bool().Draw(t, "waits") {
		kill.Waiter = m.waiter(uid)
	}
	return kill
}

// actions are everything that can happen, each to a random pod.
func (m *sim) actions() map[string]func(*rapid.T) {
	uid := func(t *rapid.T) UID { return rapid.SampledFrom(simUIDs()).Draw(t, "uid") }
	update := func(kind UpdateType) func(*rapid.T) {
		return func(t *rapid.T) {
			uid := uid(t)
			ev := Updated{Type: kind, Pod: m.drawFacts(t, uid), Stopped: rapid.Bool().Draw(t, "stopped")}
			if kind == UpdateKill || rapid.IntRange(0, 9).Draw(t, "strangeKill") == 0 {
				ev.Kill = m.drawKill(t, uid)
			}
			m.send(uid, ev)
		}
	}
	return map[string]func(*rapid.T){
		"create": update(UpdateCreate), "change": update(UpdateChange), "resync": update(UpdateSync), "kill": update(UpdateKill),
		"runtimePod": func(t *rapid.T) {
			uid := uid(t)
			ev := RuntimePodFound{FullName: simPods[uid].FullName, Kill: m.drawKill(t, uid)}
			if s, known := m.table.State(uid); known && !s.Marks.RuntimeOnly {
				ev.Config = new(m.drawFacts(t, uid))
			}
			m.send(uid, ev)
		},
		"worker": func(t *rapid.T) {
			uid := uid(t)
			outcome := rapid.SampledFrom([]Outcome{Failed, Cancelled, Succeeded, Succeeded, Completed}).Draw(t, "outcome")
			m.turn(uid, outcome, WorkTaken{Stopped: rapid.Bool().Draw(t, "stopped")}, m.drawFacts(t, uid))
		},
		"spuriousWake": func(t *rapid.T) {
			uid := uid(t)
			if p := m.pod(uid); p.alive {
				p.wake = true
			}
		},
		"reconcile": func(t *rapid.T) {
			desired := rapid.SliceOfDistinct(rapid.SampledFrom(simUIDs()), func(u UID) UID { return u }).Draw(t, "desired")
			m.reconcile(desired)
		},
		"waiterLeaves": func(t *rapid.T) {
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
		},
	}
}

func (m *sim) reconcile(desired []UID) {
	m.table.MarkSynced()
	for _, uid := range m.table.UIDs() {
		m.send(uid, Reconciled{Desired: slices.Contains(desired, uid)})
	}
}

// After any history, when everything goes well and nothing is desired any more, every pod is forgotten and every waiter answered.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		m.reconcile(nil)
		m.settle(Succeeded)
		for range 3 { // a static pod per round may get its turn only now
			m.reconcile(nil)
			m.settle(Succeeded)
		}
		m.check(len(m.table.UIDs()) == 0, "not forgotten:%s", m.dump())
		m.check(len(m.waiting) == 0, "not answered: %v", m.waiting)
		m.check(len(m.table.names.holder) == 0 && len(m.table.names.waiting) == 0, "names are kept: %+v", m.table.names)
	})
}

// After any history, operations that only fail never finish a pod nor answer a waiter of one that may run, and the machine comes to rest.
func TestFailuresNeverFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		m.settle(Failed)
		before := m.dump()
		m.settle(Failed)
		if after := m.dump(); after != before {
			t.Fatalf("not at rest:%s\nthen%s", before, after)
		}
	})
}

// A static pod that is replaced again and again, however quickly, ends with the last one running, woken by nothing but the end of those before.
func TestStaticReplacementEndsWithTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		uids := []UID{"1", "2", "3", "4", "5", "6"}[:rapid.IntRange(1, 6).Draw(t, "replacements")]
		facts := PodFacts{FullName: "a_ns", Static: true, SpecGrace: new(int64(30))}
		for i, uid := range uids {
			if i > 0 {
				m.send(uids[i-1], Updated{Type: UpdateKill, Pod: facts})
			}
			m.send(uid, Updated{Type: UpdateCreate, Pod: facts})
			for range rapid.IntRange(0, 6).Draw(t, "turns") {
				m.turn(rapid.SampledFrom(uids).Draw(t, "uid"), rapid.SampledFrom([]Outcome{Succeeded, Failed}).Draw(t, "outcome"),
					WorkTaken{Stopped: true}, facts)
			}
		}
		last := uids[len(uids)-1]
		for range 20 {
			for _, uid := range m.table.UIDs() {
				m.turn(uid, Succeeded, WorkTaken{Stopped: true}, facts)
				if s, _ := m.table.State(uid); s.Phase == Terminating || s.Phase == Terminated {
					m.send(uid, Updated{Type: UpdateSync, Pod: facts}) // what failed is sent again by the sync loop
				}
			}
		}
		s, _ := m.table.State(last)
		m.check(s.Phase == Syncing, "the last one is %v:%s", s.Phase, m.dump())
	})
}

// Grace: the result is the smallest of what was accepted and requested; the specification counts only without either.
func TestEffectiveGraceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		accepted := rapid.Int64Range(0, 50).Draw(t, "accepted")
		pod := PodFacts{DeletionGrace: pointers(50).Draw(t, "deletion"), SpecGrace: pointers(50).Draw(t, "spec")}
		override := pointers(50).Draw(t, "override")
		got := effectiveGrace(accepted, pod, override)
		var candidates []int64
		for _, c := range []*int64{pod.DeletionGrace, override} {
			if c != nil && *c >= 0 {
				candidates = append(candidates, *c)
			}
		}
		if accepted != 0 {
			candidates = append(candidates, accepted)
		}
		if len(candidates) == 0 && pod.SpecGrace != nil {
			candidates = append(candidates, *pod.SpecGrace)
		}
		want := int64(1)
		if len(candidates) > 0 {
			want = max(1, slices.Min(candidates))
		}
		if got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	})
}

// FuzzHistories is TestRandomHistories with histories that the fuzzer makes up.
func FuzzHistories(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		for range 4 {
			m.reconcile(nil)
			m.settle(Succeeded)
		}
		m.check(len(m.table.UIDs()) == 0 && len(m.waiting) == 0, "left: %v, %v", m.table.UIDs(), m.waiting)
	}))
}
