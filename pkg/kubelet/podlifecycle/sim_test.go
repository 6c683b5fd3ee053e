package podlifecycle

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// sim is a simple driver of the machine: it simulates the commands, and checks the guarantees and the agreement with
// the oracle.
type sim struct {
	t     *rapid.T
	table *Table
	now   time.Time
	pods  map[UID]*simPod
	// running are the pods that have running containers; they outlive a restart of the agent.
	running map[UID]bool
	// waiting are waiters that were not notified and have not left.
	waiting map[WaiterID]UID
	waiters WaiterID
	// oracle is nil when only guarantees are to be checked.
	oracle *oracle
	// fault, if not nil, replaces the results of the machine; failed checks are then panics of type violation.
	fault func(step) (State, []Command)
	// sent counts events by their names (nameOf).
	sent map[string]int
}

// violation is the message of a failed check.
type violation string

// step is one event and its results.
type step struct {
	before State
	event  Event
	now    time.Time
	after  State
	cmds   []Command
}

// simPod is the driver's own view of a pod.
type simPod struct {
	alive, wake      bool
	operation        Operation
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

// restart starts a new agent: everything is lost but the running pods.
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
		panic(violation(fmt.Sprintf(format, args...)))
	default:
		m.t.Fatalf("guarantee violated: "+format, args...)
	}
}

func (m *sim) pod(uid UID) *simPod {
	if m.pods[uid] == nil {
		m.pods[uid] = &simPod{}
	}
	return m.pods[uid]
}

// send applies an event, executes the commands, and checks all guarantees.
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
		m.execute(uid, p, after, cmd)
	}
	if _, known := m.table.State(uid); !known {
		m.check(p.ended || !p.alive, "%s was removed while its worker runs", uid)
		delete(m.pods, uid)
		return after
	}
	p.last = after
	m.checkConsistency(uid, p, after)
	return after
}

// nameOf returns the type of an event, and the phase or operation in which it arrives.
func nameOf(before State, ev Event) string {
	switch ev := ev.(type) {
	case Updated:
		return fmt.Sprintf("update %d in %v", ev.Type, before.Phase)
	case RuntimePodFound:
		return fmt.Sprintf("runtime pod in %v", before.Phase)
	case Returned:
		return fmt.Sprintf("outcome %d of %v", ev.Outcome, before.Operation)
	case Reconciled:
		return fmt.Sprintf("desired %t in %v", ev.Desired, before.Phase)
	}
	return fmt.Sprintf("%T in %v", ev, before.Phase)
}

// apply applies an event to the machine, with the fault if there is one.
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

func (m *sim) execute(uid UID, p *simPod, s State, cmd Command) {
	switch cmd := cmd.(type) {
	case StartWorker:
		m.check(!p.alive && !p.ended, "worker started twice")
		p.alive = true
	case StopWorker:
		m.check(p.alive && p.operation == OpNone, "worker stopped while it does %v", p.operation)
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
		m.executeRun(uid, p, s, cmd)
	case CancelSync:
		m.check(p.operation == OpSync, "cancel of %v", p.operation)
		p.cancelled = true
	case Hasten:
		m.check(p.operation == OpTerminate, "hasten of %v", p.operation)
		m.check(p.hastened == 0 || cmd.Grace < p.hastened, "hastened from %d to %d", p.hastened, cmd.Grace)
		p.hastened = cmd.Grace
	case NotifyWaiters:
		for _, waiter := range cmd.Waiters {
			m.check(m.waiting[waiter] == uid, "waiter %d is notified and does not wait for %s", waiter, uid)
			delete(m.waiting, waiter)
		}
		m.check(s.Phase != Terminating, "waiters notified while terminating")
	case Remove:
		m.check(s.Phase == Finished && p.operation == OpNone, "removed in %v with operation %v", s.Phase, p.operation)
	case Requeue:
		p.requeued = true
	default:
		m.check(false, "unknown command %#v", cmd)
	}
}

func (m *sim) executeRun(uid UID, p *simPod, s State, run Run) {
	m.check(p.alive && p.operation == OpNone && p.payload, "%v begins with alive=%t doing=%v payload=%t", run.Op, p.alive,
		p.operation, p.payload)
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
	p.operation, p.payload, p.applied = run.Op, false, true
}

// checkConsistency compares the state with the driver's own view of the pod, and looks for missing wake-ups.
func (m *sim) checkConsistency(uid UID, p *simPod, s State) {
	m.check(s.Operation == p.operation, "the machine has %v, driver does %v", s.Operation, p.operation)
	m.check(s.Pending == p.payload, "the machine has pending=%t, driver %t", s.Pending, p.payload)
	m.check(s.Marks.Started == p.applied, "the machine has started=%t, driver %t", s.Marks.Started, p.applied)
	m.check((s.Phase == Finished) == p.ended, "phase %v, worker ended=%t", s.Phase, p.ended)
	if s.Operation == OpSync && s.TerminationRequested() {
		m.check(p.cancelled, "a sync runs on after termination was requested")
	}
	if s.Pending && s.Operation == OpNone && !p.wake {
		holder, held := m.table.names.holder[s.FullName]
		queue := m.table.names.waiting[s.FullName]
		blocked := s.Static && s.Phase == Known &&
			(held && holder != uid || queue[0] != uid || slices.ContainsFunc(queue, func(other UID) bool {
				return other != uid && m.table.states[other].Marks.Started
			}))
		m.check(blocked, "%s has a pending update and its worker is not woken: %+v", uid, s)
	}
	m.check(s.Phase != Terminated || s.Operation != OpNone || s.Pending || !p.well,
		"%s has stopped, and its clean-up does not begin", uid)
	left := s.TerminationRequested() && s.Phase != Finished && s.Operation == OpNone && !s.Pending
	m.check(!left || p.requeued, "%s has to be stopped, and is not retried: %+v", uid, s)
	for _, waiter := range s.Waiters {
		m.check(m.waiting[waiter] == uid, "machine keeps waiter %d", waiter)
	}
	m.check(s.Phase == Terminating || len(s.Waiters) == 0, "%d waiters in %v", len(s.Waiters), s.Phase)
	for waiter, of := range m.waiting {
		m.check(of != uid || slices.Contains(s.Waiters, waiter), "waiter %d is lost", waiter)
	}
	m.checkAnswers(uid, s)
}

// checkAnswers checks that the answers to the queries are consistent.
func (m *sim) checkAnswers(uid UID, s State) {
	ask := func(q Query) bool { return m.table.Evaluate(q, uid) }
	m.check(ask(CouldHaveRunningContainers) || !m.running[uid],
		"%s has running containers, and the answer is that it cannot", uid)
	implies := func(a, b bool) bool { return !a || b }
	m.check(ask(KnownTerminated) == !ask(CouldHaveRunningContainers), "terminated and running")
	m.check(ask(RuntimeBeRemoved) == ask(KnownTerminated), "runtime")
	m.check(implies(ask(ShouldPodBeFinished), ask(RuntimeBeRemoved)), "finished without removal")
	m.check(implies(ask(RuntimeBeRemoved), ask(ContainersBeTerminating)), "removal while starting")
	m.check(implies(ask(ContainersBeTerminating), ask(TerminationRequested)), "terminating without a request")
	m.check(implies(ask(ContainersBeTerminating), s.Operation != OpSync), "a sync runs, and no container may be started")
	m.check(implies(ask(RuntimeBeRemoved), s.Operation != OpTerminate && s.Operation != OpSync), "removal while %v",
		s.Operation)
}

// checkStart checks that no other static pod of the same name is started and not finished.
func (m *sim) checkStart(uid UID, s State) {
	for _, other := range m.table.UIDs() {
		o, _ := m.table.State(other)
		same := other != uid && o.Static && s.Static && o.FullName == s.FullName
		m.check(!same || !o.Marks.Started || o.Phase == Finished, "%s starts while %s runs as %s", uid, other, o.FullName)
	}
}

// stepWorker makes the worker of a pod begin an operation, or end it with the given outcome.
func (m *sim) stepWorker(uid UID, outcome Outcome, taken WorkerReady, facts PodFacts) {
	p := m.pod(uid)
	switch {
	case p.operation != OpNone:
		if outcome == Completed && p.operation != OpSync {
			outcome = Succeeded
		}
		if stops := p.operation == OpTerminate || p.operation == OpTerminateRuntime; stops && outcome == Succeeded {
			delete(m.running, uid)
		}
		p.operation, p.cancelled, p.well = OpNone, false, outcome >= Succeeded
		m.send(uid, Returned{Outcome: outcome, Pod: facts})
	case p.wake:
		p.wake = false
		taken.Stopped = taken.Stopped && !m.running[uid]
		m.send(uid, taken)
	}
}

// settle runs all workers until they are idle; every operation ends with the given outcome.
func (m *sim) settle(outcome Outcome) {
	for range 200 {
		busy := false
		for _, uid := range m.table.UIDs() {
			if p := m.pod(uid); p.wake || p.operation != OpNone {
				busy = true
				m.stepWorker(uid, outcome, WorkerReady{Stopped: true}, PodFacts{})
			}
		}
		if !busy {
			return
		}
	}
	m.check(false, "the workers do not become idle: %s", m.dump())
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
