package podlifecycle

import (
	"fmt"
	"reflect"
	"slices"
)

// compare compares state, commands and answers of the machine with those of the oracle.
func (m *sim) compare(uid UID, ev Event, got State, cmds []Command) {
	if m.oracle == nil {
		return
	}
	want, orders := m.oracle.apply(uid, ev, m.now)
	if len(got.Waiters) == 0 && len(want.Waiters) == 0 {
		got.Waiters, want.Waiters = nil, nil
	}
	m.check(reflect.DeepEqual(got, want), "%s, %#v: the machine says\n%s\nthe oracle\n%s", uid, ev, describe(got),
		describe(want))
	said := words(cmds)
	slices.Sort(said)
	slices.Sort(orders)
	m.check(slices.Equal(said, orders), "%s, %#v: the machine commands %q, the oracle %q\n%s", uid, ev, said, orders,
		describe(got))
	for _, other := range simUIDs {
		for q := range queryCount {
			machine, oracle := m.table.Evaluate(q, other), m.oracle.ask(q, other)
			m.check(machine == oracle, "query %d about %s: the machine says %t, the oracle %t", q, other, machine, oracle)
		}
	}
	for _, name := range []string{"a_ns", "b_ns", "p2_ns"} {
		machine, oracle := m.table.mirrorTerminating(name), m.oracle.mirrorTerminating(name)
		m.check(machine == oracle, "mirror pod of %s: the machine says %t, the oracle %t", name, machine, oracle)
	}
}

// words formats commands as the oracle does. It omits WakeOther, which depends on other pods; checkConsistency looks
// for missing wake-ups.
func words(cmds []Command) []string {
	var said []string
	for _, cmd := range cmds {
		switch cmd := cmd.(type) {
		case WakeOther:
		case NotifyWaiters:
			for _, waiter := range cmd.Waiters {
				said = append(said, fmt.Sprintf("NotifyWaiters %d", waiter))
			}
		case Run:
			if cmd.Op == OpSync || cmd.Op == OpCleanUp {
				cmd.Grace = nil
			}
			said = append(said, runWords(cmd))
		default:
			said = append(said, describeCommand(cmd))
		}
	}
	return said
}

func runWords(run Run) string {
	text := "Run "
	if run.First {
		text += "first "
	}
	text += run.Op.String()
	if run.Grace != nil {
		text += fmt.Sprintf(" grace=%d", *run.Grace)
	}
	return text
}
