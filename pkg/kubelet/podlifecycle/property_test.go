package podlifecycle

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMain sets how many histories are tried, and how long they are, where the command line does not say:
// -rapid.checks=100000 tries more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "2000", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// live is a random history, after which everything goes well and nothing is desired any more: then every pod is
// forgotten, and every waiter has been answered.
func (m *sim) live() {
	m.t.Repeat(m.actions())
	for range 4 { // a static pod per round may get its turn only now
		m.reconcile(nil)
		m.settle(Succeeded)
	}
	m.check(len(m.table.UIDs()) == 0, "not forgotten:%s", m.dump())
	m.check(len(m.waiting) == 0, "not answered: %v", m.waiting)
	m.check(len(m.table.names.holder) == 0 && len(m.table.names.waiting) == 0, "names are kept: %+v", m.table.names)
}

func TestRandomHistories(t *testing.T) {
	histories, events, met := 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		m.live()
		histories++
		for name, n := range m.sent {
			met[name] += n
			events += n
		}
	})
	t.Logf("%d histories of %d events agree with the oracle and keep all promises", histories, events)
	rarest := ""
	for _, name := range mustBeMet() {
		if rarest == "" || met[name] < met[rarest] {
			rarest = name
		}
	}
	t.Logf("of %d kinds of event and phase the rarest is %s: %d times", len(mustBeMet()), rarest, met[rarest])
	const enough = 2000 // fewer, as somebody may ask for, need not meet everything
	if histories >= enough && met[rarest] == 0 {
		t.Errorf("the histories are poor: never %s", rarest)
	}
}

// mustBeMet are the events in all phases that they can meet, without which histories would show little.
func mustBeMet() []string {
	var names []string
	for phase := Unknown; phase <= Finished; phase++ {
		for kind := UpdateSync; kind <= UpdateKill; kind++ {
			names = append(names, nameOf(State{Phase: phase}, Updated{Type: kind}))
		}
		names = append(names, nameOf(State{Phase: phase}, RuntimePodFound{}))
		if phase != Unknown {
			names = append(names, nameOf(State{Phase: phase}, Reconciled{}),
				nameOf(State{Phase: phase}, Reconciled{Desired: true}))
		}
	}
	for phase := Known; phase <= Finished; phase++ {
		names = append(names, nameOf(State{Phase: phase}, RetryDue{}))
	}
	for doing := OpSync; doing <= OpCleanUp; doing++ {
		for outcome := Failed; outcome <= Succeeded; outcome++ {
			names = append(names, nameOf(State{Doing: doing}, Returned{Outcome: outcome}))
		}
	}
	return append(names, nameOf(State{Doing: OpSync}, Returned{Outcome: Completed}),
		nameOf(State{Phase: Terminating}, WaiterLeft{}))
}

// After any history, operations that only fail never finish a pod nor answer a waiter of one that may run, and the
// machine comes to rest.
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

// After any history a pod that has to be stopped ends by its own retries alone, once operations succeed: no source
// names it and housekeeping does not come, which waits for all sources.
func TestTerminationsEndWithoutAnySource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		for range 3 { // one for the containers, one to clean up, one for an operation that was cancelled
			m.settle(Succeeded)
			for _, uid := range m.table.UIDs() {
				if m.pod(uid).requeued {
					m.fallsDue(uid, false)
				}
			}
		}
		m.settle(Succeeded)
		for _, uid := range m.table.UIDs() {
			s, _ := m.table.State(uid)
			m.check(!s.TerminationRequested() || s.Phase == Finished, "%s does not end:%s", uid, m.dump())
		}
	})
}

// A static pod that is replaced again and again, however quickly, ends with the last one running, woken by nothing but
// the end of those before.
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
				if m.pod(uid).requeued && uid != last {
					m.fallsDue(uid, false) // no source names those that were replaced
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

// FuzzHistories is TestRandomHistories with histories that the fuzzer makes up; the oracle sees every step of them.
func FuzzHistories(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		seed := make([]byte, 16<<10)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { newSim(t).live() }))
}
