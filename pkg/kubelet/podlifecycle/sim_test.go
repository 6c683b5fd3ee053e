package podlifecycle

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// sim is a driver as simple as one can be: it obeys commands on paper, keeps its own books, and complains when the
// machine breaks a promise or differs from the oracle.
type sim struct {
	t     *rapid.T
	table *Table
	now   time.Time
	pods  map[UID]*simPod
	// running are the pods that have containers, also over a restart of the agent.
	running map[UID]bool
	// waiting are waiters that were neither answered nor left.
	waiting map[WaiterID]UID
	waiters WaiterID
	// oracle is nil when promises alone are to be checked.
	oracle *oracle
	// fault, if not nil, makes the machine a faulty one; then complaints are panics of type brokenPromise.
	fault func(step) (State, []Command)
	// sent counts events by what they are and the phase they met.
	sent map[string]int
}

// brokenPromise is what the sim complains about.
type brokenPromise string

// step is one event and what the machine made of it.
type step struct {
	before State
	event  Event
	now    time.Time
	after  State
	cmds   []Command
}

// simPod is what the driver keeps of one life of a pod.
type simPod struct {
	alive, wake      bool
	doing            Operation
	payload, applied bool
	cancelled        bool
	amended          int
	hastened         int64
	last             State
	ended            bool
	// well is true when the last operation succeeded.
	well bool
	// requeued is true from a Requeue until it falls due.
	requeued bool
}

func newSim(t *rapid.T) *sim {
	m := &sim{t: t, now: time.Unix(1000, 0), running: map[UID]bool{}, oracle: newOracle(), sent: map[string]int{}}
	m.restart()
	return m
}

// restart is what a new agent begins with: nothing but what runs.
func (m *sim) restart() {
	m.table, m.pods, m.waiting = NewTable(), map[UID]*simPod{}, map[WaiterID]UID{}
	if m.oracle != nil {
		m.oracle = newOracle()
	}
}

func (m *sim) check(ok bool, format string, args ...any) {
	switch {
	case ok:
	case m.fault != nil:
		panic(brokenPromise(fmt.Sprintf(format, args...)))
	default:
		m.t.Fatalf("broken promise: "+format, args...)
	}
}

func (m *sim) pod(uid UID) *simPod {
	if m.pods[uid] == nil {
		m.pods[uid] = &simPod{}
	}
	return m.pods[uid]
}

// send lets an event happen, obeys, and checks every promise.
func (m *sim) send(uid UID, ev Event) State {
	m.now = m.now.Add(time.Second)
	before, _ := m.table.State(uid)
	m.sent[nameOf(before, ev)]++
	frozen := before
	frozen.Waiters = slices.Clone(before.Waiters)
	after, cmds := m.apply(uid, before, ev)
	m.check(reflect.DeepEqual(frozen, before) || len(before.Waiters) == 0, "Next changed its receiver: %+v became %+v",
		frozen, before)
	p := m.pod(uid)
	m.compare(uid, ev, after, cmds)
	m.checkStep(p, before, after, ev)
	for _, cmd := range cmds {
		m.obey(uid, p, after, cmd)
	}
	if _, known := m.table.State(uid); !known {
		m.check(p.ended || !p.alive, "%s was forgotten while its worker runs", uid)
		delete(m.pods, uid)
		return after
	}
	p.last = after
	m.checkBooks(uid, p, after)
	return after
}

// nameOf says what an event is and what it meets.
func nameOf(before State, ev Event) string {
	switch ev := ev.(type) {
	case Updated:
		return fmt.Sprintf("update %d in %v", ev.Type, before.Phase)
	case RuntimePodFound:
		return fmt.Sprintf("runtime pod in %v", before.Phase)
	case Returned:
		return fmt.Sprintf("outcome %d of %v", ev.Outcome, before.Doing)
	case Reconciled:
		return fmt.Sprintf("desired %t in %v", ev.Desired, before.Phase)
	}
	return fmt.Sprintf("%T in %v", ev, before.Phase)
}

// apply lets the machine, or the faulty one, take an event.
func (m *sim) apply(uid UID, before State, ev Event) (State, []Command) {
	after, cmds := m.table.Apply(uid, ev, m.now)
	if m.fault == nil {
		return after, cmds
	}
	after, cmds = m.fault(step{before: before, event: ev, now: m.now, after: after, cmds: cmds})
	if _, known := m.table.states[uid]; known {
		m.table.states[uid] = after
	}
	return after, cmds
}

func (m *sim) checkStep(p *simPod, before, after State, ev Event) {
	m.check(after.Phase >= before.Phase, "phase went from %v to %v by %#v", before.Phase, after.Phase, ev)
	if grace := before.Termination.Grace; grace != 0 {
		m.check(after.Termination.Grace <= grace && after.Termination.Grace >= 1, "grace went from %d to %d", grace,
			after.Termination.Grace)
	}
	if cause := before.Termination.Cause; cause != CauseNone {
		m.check(after.Termination.Cause == cause, "cause went from %v to %v", cause, after.Termination.Cause)
	}
	m.check((after.Termination.Cause != CauseNone) == after.TerminationRequested() || after.Phase == Finished,
		"phase %v has cause %v", after.Phase, after.Termination.Cause)
	m.check(after.TerminationRequested() == !after.Times.Requested.IsZero() || after.Phase == Finished, "times %+v in %v",
		after.Times, after.Phase)
	m.check((after.Phase >= Terminated) == !after.Times.Terminated.IsZero(), "times %+v in %v", after.Times, after.Phase)
	m.check((after.Phase == Finished) == !after.Times.Finished.IsZero(), "times %+v in %v", after.Times, after.Phase)
	m.check(!p.cancelled || after.TerminationRequested(), "a sync was cancelled for nothing")
}

func (m *sim) obey(uid UID, p *simPod, s State, cmd Command) {
	switch cmd := cmd.(type) {
	case StartWorker:
		m.check(!p.alive && !p.ended, "worker started twice")
		p.alive = true
	case StopWorker:
		m.check(p.alive && p.doing == OpNone, "worker stopped while it does %v", p.doing)
		p.alive, p.ended, p.wake, p.payload = false, true, false, false
	case Accept:
		p.payload = true
		if cmd.Amend {
			p.amended++
			m.check(p.amended == 1 && s.Termination.Cause.ByAgent(), "amendment %d with cause %v", p.amended,
				s.Termination.Cause)
		}
	case Replay:
		m.check(!p.payload && p.applied, "replay with payload=%t applied=%t", p.payload, p.applied)
		p.payload = true
	case Wake:
		p.wake = p.alive
	case WakeOther:
		other := m.pod(cmd.UID)
		other.wake = other.alive
	case Run:
		m.obeyRun(uid, p, s, cmd)
	case CancelSync:
		m.check(p.doing == OpSync, "cancel of %v", p.doing)
		p.cancelled = true
	case Hasten:
		m.check(p.doing == OpTerminate, "hasten of %v", p.doing)
		m.check(p.hastened == 0 || cmd.Grace < p.hastened, "hastened from %d to %d", p.hastened, cmd.Grace)
		p.hastened = cmd.Grace
	case Answer:
		for _, waiter := range cmd.Waiters {
			m.check(m.waiting[waiter] == uid, "waiter %d is answered and does not wait for %s", waiter, uid)
			delete(m.waiting, waiter)
		}
		m.check(s.Phase != Terminating, "waiters answered while terminating")
	case Forget:
		m.check(s.Phase == Finished && p.doing == OpNone, "forgotten in %v while doing %v", s.Phase, p.doing)
	case Requeue:
		p.requeued = true
	default:
		m.check(false, "unknown command %#v", cmd)
	}
}

func (m *sim) obeyRun(uid UID, p *simPod, s State, run Run) {
	m.check(p.alive && p.doing == OpNone && p.payload, "%v begins with alive=%t doing=%v payload=%t", run.Op, p.alive,
		p.doing, p.payload)
	m.check(run.First == !p.applied, "first is %t", run.First)
	switch run.Op {
	case OpSync:
		m.check(!p.last.TerminationRequested(), "sync after termination was requested")
		m.check(!s.Termination.Begun, "sync after termination began")
		if run.First {
			m.checkStart(uid, s)
		}
		m.running[uid] = true
	case OpTerminate, OpTerminateRuntime:
		m.check(s.Termination.Begun && s.Phase == Terminating, "termination runs in %v", s.Phase)
		m.check(run.Grace == nil || *run.Grace == s.Termination.Grace, "grace differs")
	case OpCleanUp:
		m.check(s.Phase == Terminated, "clean up in %v", s.Phase)
	}
	p.doing, p.payload, p.applied = run.Op, false, true
}

// checkBooks compares the machine's view of the driver with the driver's own, and looks for lost wake-ups.
func (m *sim) checkBooks(uid UID, p *simPod, s State) {
	m.check(s.Doing == p.doing, "machine thinks %v, driver does %v", s.Doing, p.doing)
	m.check(s.Pending == p.payload, "machine thinks pending=%t, driver %t", s.Pending, p.payload)
	m.check(s.Marks.Started == p.applied, "machine thinks started=%t, driver %t", s.Marks.Started, p.applied)
	m.check((s.Phase == Finished) == p.ended, "phase %v, worker ended=%t", s.Phase, p.ended)
	if s.Doing == OpSync && s.TerminationRequested() {
		m.check(p.cancelled, "a sync runs on after termination was requested")
	}
	if s.Pending && s.Doing == OpNone && !p.wake {
		holder, held := m.table.names.holder[s.FullName]
		queue := m.table.names.waiting[s.FullName]
		blocked := s.Static && s.Phase == Known &&
			(held && holder != uid || queue[0] != uid || slices.ContainsFunc(queue, func(other UID) bool {
				return other != uid && m.table.states[other].Marks.Started
			}))
		m.check(blocked, "%s has work and nobody wakes its worker: %+v", uid, s)
	}
	m.check(s.Phase != Terminated || s.Doing != OpNone || s.Pending || !p.well,
		"%s has stopped, and nobody cleans up after it", uid)
	left := s.TerminationRequested() && s.Phase != Finished && s.Doing == OpNone && !s.Pending
	m.check(!left || p.requeued, "%s has to be stopped, and nobody tries it again: %+v", uid, s)
	for _, waiter := range s.Waiters {
		m.check(m.waiting[waiter] == uid, "machine keeps waiter %d", waiter)
	}
	m.check(s.Phase == Terminating || len(s.Waiters) == 0, "%d waiters in %v", len(s.Waiters), s.Phase)
	for waiter, of := range m.waiting {
		m.check(of != uid || slices.Contains(s.Waiters, waiter), "waiter %d is lost", waiter)
	}
	m.checkAnswers(uid, s)
}

// checkAnswers holds the answers to the questions against each other.
func (m *sim) checkAnswers(uid UID, s State) {
	ask := func(q Question) bool { return m.table.Ask(q, uid) }
	m.check(ask(CouldHaveRunningContainers) || !m.running[uid],
		"%s has running containers, and the answer is that it cannot", uid)
	implies := func(a, b bool) bool { return !a || b }
	m.check(ask(KnownTerminated) == !ask(CouldHaveRunningContainers), "terminated and running")
	m.check(ask(RuntimeBeRemoved) == ask(KnownTerminated), "runtime")
	m.check(implies(ask(ShouldPodBeFinished), ask(RuntimeBeRemoved)), "finished without removal")
	m.check(implies(ask(RuntimeBeRemoved), ask(ContainersBeTerminating)), "removal while starting")
	m.check(implies(ask(ContainersBeTerminating), ask(TerminationRequested)), "terminating unasked")
	m.check(implies(ask(ContainersBeTerminating), s.Doing != OpSync), "a sync runs while loops believe none will")
	m.check(implies(ask(RuntimeBeRemoved), s.Doing != OpTerminate && s.Doing != OpSync), "removal while %v", s.Doing)
}

// checkStart holds that a static pod starts only when no other of its name has started and not finished.
func (m *sim) checkStart(uid UID, s State) {
	for _, other := range m.table.UIDs() {
		o, _ := m.table.State(other)
		same := other != uid && o.Static && s.Static && o.FullName == s.FullName
		m.check(!same || !o.Marks.Started || o.Phase == Finished, "%s starts while %s runs as %s", uid, other, o.FullName)
	}
}

// turn lets the worker of a pod take one step: look for work, or end its operation.
func (m *sim) turn(uid UID, outcome Outcome, taken WorkTaken, facts PodFacts) {
	p := m.pod(uid)
	switch {
	case p.doing != OpNone:
		if outcome == Completed && p.doing != OpSync {
			outcome = Succeeded
		}
		if stops := p.doing == OpTerminate || p.doing == OpTerminateRuntime; stops && outcome == Succeeded {
			delete(m.running, uid)
		}
		p.doing, p.cancelled, p.well = OpNone, false, outcome >= Succeeded
		m.send(uid, Returned{Outcome: outcome, Pod: facts})
	case p.wake:
		p.wake = false
		taken.Stopped = taken.Stopped && !m.running[uid]
		m.send(uid, taken)
	}
}

// settle lets all workers go on until none has anything to do, every operation with the given outcome.
func (m *sim) settle(outcome Outcome) {
	for range 200 {
		busy := false
		for _, uid := range m.table.UIDs() {
			if p := m.pod(uid); p.wake || p.doing != OpNone {
				busy = true
				m.turn(uid, outcome, WorkTaken{Stopped: true}, PodFacts{})
			}
		}
		if !busy {
			return
		}
	}
	m.check(false, "the workers do not come to rest: %s", m.dump())
}

func (m *sim) dump() string {
	text := ""
	for _, uid := range m.table.UIDs() {
		s, _ := m.table.State(uid)
		text += fmt.Sprintf("\n%s: %+v", uid, s)
	}
	return text
}

func (m *sim) waiter(uid UID) WaiterID {
	m.waiters++
	m.waiting[m.waiters] = uid
	return m.waiters
}
