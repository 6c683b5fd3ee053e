package nodeshutdown

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Without a login manager the agent runs; it takes the lock when there is one.
func TestLoginManagerComesLater(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.absent = errTest
		w.Start(w.ctx)
		w.sleep(20)
		w.expect()
		w.set(func() { w.absent = nil })
		w.sleep(20)
		// Tried at 0, 1, 3, 7, 15 and 31 seconds.
		w.expect("31 grant 30s", "31 lock 1")
	})
}

// A lost connection leaves the lock in place until there is a new one.
func TestConnectionIsMadeAnew(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.sleep(5)
		w.drop()
		w.sleep(5)
		w.expect("0 grant 30s", "0 lock 1", "6 grant 30s", "6 lock 2", "6 unlock 1")
		w.announce(true)
		w.expect("10 node down=true", "10 unlock 2")
	})
}

// What was announced while there was no connection is not lost.
func TestAnnouncedWithoutConnection(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.drop()
		w.set(func() { w.goingDown, w.refuses = true, ErrGoingDown })
		w.sleep(5)
		w.expect("0 grant 30s", "0 lock 1", "1 grant 30s", "1 node down=true", "1 kill static 20", "2 stopped static",
			"2 unmounted [static]", "2 unlock 1")
		w.drop()
		w.set(func() { w.goingDown, w.refuses = false, nil })
		w.sleep(5)
		w.expect("6 grant 30s", "6 lock 2", "6 node down=false", "6 restart [static]")
	})
}

// A login manager that does not say how things are changes nothing.
func TestStateIsNotKnown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.known = false
		w.Start(w.ctx)
		w.announce(true)
		w.drop()
		w.sleep(5)
		if w.ShutdownStatus() == nil {
			t.Error("not shutting down any more")
		}
	})
}

// A lock that cannot be taken again is tried again on another connection.
func TestNoLockAfterCancel(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(true)
		w.set(func() { w.refuses = errTest })
		w.announce(false)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 unlock 1", "0 node down=false")
		w.sleep(2)
		w.expect("1 grant 30s")
		w.set(func() { w.refuses = nil })
		w.sleep(5)
		w.expect("3 grant 30s", "3 lock 2")
		if w.ShutdownStatus() != nil {
			t.Error("still shutting down")
		}
	})
}

// Where the machine does not wait as long as configured, every group gets its share. Stock holds no lock at all then.
func TestDelayTooSmall(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.granted = 6_500_000_000
		w.add(aPod("low", 0, 30), 100)
		w.add(aPod("high", 1000, 1), 100)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(20)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill low 4", "4 kill high 1", "6 unlock 1")
	})
}

// An agent that is started while the machine goes down lets its pods in, only to stop them, and no others. Stock starts
// everything (kubernetes/kubernetes#122674).
func TestStartedWhileGoingDown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		// That it is too late for a lock says enough.
		w.set(func() { w.known, w.refuses, w.ready = false, ErrGoingDown, false })
		w.Start(w.ctx)
		ran := w.add(aPod("ran", 0, 30), 1)
		w.readmitted[ran.UID] = true
		if !w.admits(ran) || w.admits(aPod("new", 0, 30)) || !w.admits(ofDaemonSet(aPod("daemon", 0, 30))) {
			t.Error("lets the wrong ones in")
		}
		w.sleep(2)
		w.expect("0 grant 30s", "0 node down=true")
		w.set(func() { w.ready = true })
		w.sleep(3)
		w.add(static(aPod("static", 1000, 30)), 1)
		w.add(aPod("deaf", 1000, 2), 60)
		w.sleep(35)
		// Nobody is told twice.
		w.expect("3 kill ran 20", "4 stopped ran", "4 unmounted [ran]", "6 kill deaf 2", "6 kill static 10",
			"7 stopped static")
		w.toldOf("event")
		w.set(func() { w.refuses = nil })
		w.announce(false)
		w.expect("40 lock 1", "40 node down=false", "40 restart [static]")
		if !w.admits(aPod("new", 0, 30)) {
			t.Error("still shutting down")
		}
	})
}

// However announcements, lost connections and refusals follow each other: no lock is closed twice (see play), one is
// held whenever the machine is to stay and somebody gives one, and only one.
func TestAnySequence(t *testing.T) {
	for seed := range 100 {
		play(t, twoGroups, func(w *world) {
			for i := range 4 {
				w.add(static(aPod(types.UID(fmt.Sprint(i)), int32(i*500), int64(i*4))), (seed+i)%7*4)
			}
			w.Start(w.ctx)
			state := uint32(seed)*2654435761 + 1
			for range 12 {
				state = state*1664525 + 1013904223
				switch state >> 29 {
				case 0, 1, 2:
					w.say(true)
				case 3, 4, 5:
					w.say(false)
				case 6:
					w.drop()
				default:
					w.set(func() { w.refuses = []error{nil, errTest}[state>>28&1] })
				}
				w.sleep(int(state >> 16 % 9))
			}
			w.set(func() { w.refuses = nil })
			w.say(false)
			w.sleep(200)
			if held := w.held(); len(held) != 1 || w.ShutdownStatus() != nil {
				t.Errorf("seed %d: locks %v are held, state %v", seed, held, w.ShutdownStatus())
			}
		})
	}
}

// say announces, if somebody listens.
func (w *world) say(down bool) {
	w.set(func() { w.goingDown = down })
	select {
	case is(w, &w.events) <- down:
	default:
	}
	w.sleep(0)
}

// drop loses the connection, if there is one.
func (w *world) drop() {
	events := is(w, &w.events)
	if events != nil {
		w.set(func() { w.events = nil })
		close(events)
	}
}

func (w *world) held() (locks []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, closed := range w.locks {
		if closed == 0 {
			locks = append(locks, i)
		}
	}
	slices.Sort(locks)
	return locks
}
