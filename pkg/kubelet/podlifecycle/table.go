package podlifecycle

import (
	"slices"
	"time"
)

// Table keeps the states of all pods of the node, and what concerns more than one of them. It is pure like State, but
// not a value, and not for use by several goroutines: see Store.
type Table struct {
	states map[UID]State
	names  nameOrder
	synced bool
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{states: map[UID]State{}, names: newNameOrder()}
}

// Apply lets ev happen to the pod and returns its state and what has to be done. The state of a pod that is to be
// forgotten is returned a last time.
func (t *Table) Apply(uid UID, ev Event, now time.Time) (State, []Command) {
	before := t.states[uid]
	if taken, ok := ev.(WorkTaken); ok {
		taken.NameFree = t.nameFree(uid, before)
		ev = taken
	}
	after, cmds := before.Next(ev, now)
	if after.Phase == Unknown {
		return after, cmds
	}
	if before.Phase == Unknown && after.Static {
		t.names.join(after.FullName, uid)
	}
	t.states[uid] = after
	if slices.Contains(cmds, Command(Forget{})) {
		delete(t.states, uid)
	}
	if after.Marks.RuntimeOnly && after.Phase == Finished {
		// It may be a static pod of an earlier run of the agent, for whose end its successor waits.
		if holder, held := t.names.holder[after.FullName]; held && t.states[holder].Phase == Known {
			cmds = append(cmds, WakeOther{UID: holder})
		}
	}
	if after.Static && after.Phase == Finished {
		if next, ok := t.names.leave(after.FullName, uid); ok {
			cmds = append(cmds, WakeOther{UID: next})
		}
	}
	return after, cmds
}

// nameFree is true when no other static pod stands before this one. A static pod that is about to start takes its name
// with it. Those that wait behind it count only if they run all the same, from an earlier run of the agent, and are
// being stopped.
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

// MarkSynced notes that every pod of the configuration has been given to the table: from now on a pod that is not in it
// runs nothing.
func (t *Table) MarkSynced() { t.synced = true }

// State returns a pod's state; false if the pod is not known.
func (t *Table) State(uid UID) (State, bool) {
	s, ok := t.states[uid]
	return s, ok
}

// UIDs returns the known pods in ascending order.
func (t *Table) UIDs() []UID {
	uids := make([]UID, 0, len(t.states))
	for uid := range t.states {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return uids
}

// Ask answers a question about a pod, known or not.
func (t *Table) Ask(q Question, uid UID) bool {
	return q.Answer(t.states[uid], t.synced)
}

// mirrorTerminating is true while the static pod that holds the name is being stopped.
func (t *Table) mirrorTerminating(fullName string) bool {
	uid, held := t.names.holder[fullName]
	return held && t.states[uid].Phase == Terminating
}
