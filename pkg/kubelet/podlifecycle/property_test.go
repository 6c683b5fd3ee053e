package podlifecycle

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMain sets the default number and length of the histories; -rapid.checks=100000 plays more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": historyCount, "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// runHistory plays a random history. Afterwards all operations succeed and no pod is desired: then every pod must be
// removed, and every waiter notified.
func (m *sim) runHistory() {
	m.t.Repeat(m.actions())
	for range 4 { // each round may start one more static pod of a name
		m.reconcile(nil)
		m.settle(Succeeded)
	}
	m.check(len(m.table.UIDs()) == 0, "not removed:%s", m.dump())
	m.check(len(m.waiting) == 0, "not notified: %v", m.waiting)
	m.check(len(m.table.names.holder) == 0 && len(m.table.names.waiting) == 0, "names are kept: %+v", m.table.names)
}

func TestRandomHistories(t *testing.T) {
	histories, events, met := 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		m.runHistory()
		histories++
		for name, n := range m.sent {
			met[name] += n
			events += n
		}
	})
	t.Logf("%d histories of %d events agree with the oracle and keep all guarantees", histories, events)
	rarest := ""
	for _, name := range mustBeMet() {
		if rarest == "" || met[name] < met[rarest] {
			rarest = name
		}
	}
	t.Logf("of %d kinds of event and phase the rarest is %s: %d times", len(mustBeMet()), rarest, met[rarest])
	const enough = 2000 // fewer (-rapid.checks) may miss some of them
	if histories >= enough && met[rarest] == 0 {
		t.Errorf("no history has %s", rarest)
	}
}

// mustBeMet returns the events in all phases in which they can arrive; the histories must have all of them.
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
			names = append(names, nameOf(State{Operation: doing}, Returned{Outcome: outcome}))
		}
	}
	return append(names, nameOf(State{Operation: OpSync}, Returned{Outcome: Completed}),
		nameOf(State{Phase: Terminating}, WaiterLeft{}))
}

// While all operations fail, no pod is finished and no waiter of a running pod is notified; the workers become idle.
func TestFailuresNeverFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		m.settle(Failed)
		before := m.dump()
		m.settle(Failed)
		if after := m.dump(); after != before {
			t.Fatalf("not idle:%s\nthen%s", before, after)
		}
	})
}

// A pod that has to be stopped is finished by its own retries once operations succeed, without a source and without
// housekeeping, which waits for all sources.
func TestTerminationsEndWithoutAnySource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newSim(t)
		t.Repeat(m.actions())
		for range 3 { // one for the containers, one to clean up, one for an operation that was cancelled
			m.settle(Succeeded)
			for _, uid := range m.table.UIDs() {
				if m.pod(uid).requeued {
					m.requeueDue(uid, false)
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

// When a static pod is replaced several times, the last one runs in the end. It is woken only by the ends of the
// others.
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
				m.stepWorker(rapid.SampledFrom(uids).Draw(t, "uid"),
					rapid.SampledFrom([]Outcome{Succeeded, Failed}).Draw(t, "outcome"), WorkerReady{Stopped: true}, facts)
			}
		}
		last := uids[len(uids)-1]
		for range 20 {
			for _, uid := range m.table.UIDs() {
				m.stepWorker(uid, Succeeded, WorkerReady{Stopped: true}, facts)
				if m.pod(uid).requeued && uid != last {
					m.requeueDue(uid, false) // no source names those that were replaced
				}
			}
		}
		s, _ := m.table.State(last)
		m.check(s.Phase == Syncing, "the last one is %v:%s", s.Phase, m.dump())
	})
}

// The result is the minimum of the accepted and requested grace periods; the specification counts only without them.
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

// FuzzHistories is TestRandomHistories with histories from the fuzzer.
func FuzzHistories(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		seed := make([]byte, 16<<10)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { newSim(t).runHistory() }))
}
