package podlifecycle

import (
	"slices"
	"time"
)

// Table has the states of all pods of the node, and the order of static pods of one full name. It is pure like State,
// but not a value, and not for concurrent use: see Store.
type Table struct {
	states map[UID]State
	names  nameOrder
	synced bool
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{states: map[UID]State{}, names: newNameOrder()}
}

// Apply applies event ev to the pod at time now, and returns the pod's new state and the commands to execute. It
// returns the state of a pod that it removes a last time.
func (t *Table) Apply(uid UID, ev Event, now time.Time) (State, []Command) {
	before := t.states[uid]
	if taken, ok := ev.(WorkerReady); ok {
		taken.NameFree = t.nameFree(uid, before)
		ev = taken
	}
	after, cmds := before.Next(ev, now)
	if after.Phase == Unknown {
		return after, cmds
	}
	if before.Phase == Unknown && after.Static {
		t.names.enqueue(after.FullName, uid)
	}
	t.states[uid] = after
	if slices.Contains(cmds, Command(Remove{})) {
		delete(t.states, uid)
	}
	if after.Marks.RuntimeOnly && after.Phase == Finished {
		// It may be a static pod of an earlier run of the agent; the pod that replaced it waits for its end.
		if holder, held := t.names.holder[after.FullName]; held && t.states[holder].Phase == Known {
			cmds = append(cmds, WakeOther{UID: holder})
		}
	}
	if after.Static && after.Phase == Finished {
		if next, ok := t.names.release(after.FullName, uid); ok {
			cmds = append(cmds, WakeOther{UID: next})
		}
	}
	return after, cmds
}

// nameFree is true when no other static pod of the same full name has to end first; the pod holds the name then. Pods
// behind it in the queue count only if they were started all the same: they run from an earlier run of the agent, and
// are being stopped.
func (t *Table) nameFree(uid UID, s State) bool {
	if !s.Static || s.Phase != Known || !s.Pending {
		return true
	}
	for _, other := range t.names.waiting[s.FullName] {
		if other != uid && t.states[other].Marks.Started {
			return false
		}
	}
	return t.names.claim(s.FullName, uid)
}

// MarkSynced records that every pod of the configuration has a state. From now on a pod without one counts as stopped.
func (t *Table) MarkSynced() { t.synced = true }

// State returns a pod's state; false if there is none.
func (t *Table) State(uid UID) (State, bool) {
	s, ok := t.states[uid]
	return s, ok
}

// UIDs returns the UIDs of all pods that have a state, in ascending order.
func (t *Table) UIDs() []UID {
	uids := make([]UID, 0, len(t.states))
	for uid := range t.states {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// Evaluate returns the answer to a query about a pod, with or without a state.
func (t *Table) Evaluate(q Query, uid UID) bool {
	return q.Evaluate(t.states[uid], t.synced)
}

// mirrorTerminating is true while the static pod that holds the name is being stopped.
func (t *Table) mirrorTerminating(fullName string) bool {
	uid, held := t.names.holder[fullName]
	return held && t.states[uid].Phase == Terminating
}
