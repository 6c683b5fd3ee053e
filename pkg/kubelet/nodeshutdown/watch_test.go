package nodeshutdown

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// If logind is not available at the start, the manager takes the lock when it is.
func TestLogindIsAvailableLater(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.connectErr = errTest
		w.Start(w.ctx)
		w.sleep(20)
		w.expect()
		w.set(func() { w.connectErr = nil })
		w.sleep(20)
		// The attempts are after 0, 1, 3, 7, 15 and 31 seconds.
		w.expect("31 delay 30s", "31 lock 1")
	})
}

// After the loss of the connection the lock is held until there is a new one.
func TestReconnect(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.sleep(5)
		w.loseConnection()
		w.sleep(5)
		w.expect("0 delay 30s", "0 lock 1", "6 delay 30s", "6 lock 2", "6 unlock 1")
		w.announce(true)
		w.expect("10 node down=true", "10 unlock 2")
	})
}

// A shutdown or cancellation without a connection takes effect after the reconnection.
func TestAnnouncedWithoutConnection(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.loseConnection()
		w.set(func() { w.shuttingDown, w.inhibitErr = true, ErrShutdownInProgress })
		w.sleep(5)
		w.expect("0 delay 30s", "0 lock 1", "1 delay 30s", "1 node down=true", "1 kill static 20", "2 stopped static",
			"2 unmounted [static]", "2 unlock 1")
		w.loseConnection()
		w.set(func() { w.shuttingDown, w.inhibitErr = false, nil })
		w.sleep(5)
		w.expect("6 delay 30s", "6 lock 2", "6 node down=false", "6 restart [static]")
	})
}

// If logind does not report its state after a reconnection, the state of the manager does not change.
func TestUnknownState(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.known = false
		w.Start(w.ctx)
		w.announce(true)
		w.loseConnection()
		w.sleep(5)
		if w.ShutdownStatus() == nil {
			t.Error("the shutdown is cancelled")
		}
	})
}

// If no lock can be taken after a cancellation, the manager retries with a new connection.
func TestNoLockAfterCancellation(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(true)
		w.set(func() { w.inhibitErr = errTest })
		w.announce(false)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1", "0 node down=false")
		w.sleep(2)
		w.expect("1 delay 30s")
		w.set(func() { w.inhibitErr = nil })
		w.sleep(5)
		w.expect("3 delay 30s", "3 lock 2")
		if w.ShutdownStatus() != nil {
			t.Error("still shutting down")
		}
	})
}

// If logind waits for a shorter time than configured, all periods are shortened. Stock takes no lock then.
func TestDelayTooShort(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.maxDelay = 6_500_000_000
		w.add(aPod("low", 0, 30), 100)
		w.add(aPod("high", 1000, 1), 100)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(20)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill low 4", "4 kill high 1", "6 unlock 1")
	})
}

// An agent that is started during the shutdown admits the pods that ran before, so that it can stop them, and no others
// except those that restart with the node. Stock starts all pods (kubernetes/kubernetes#122674).
func TestStartedDuringShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		// The rejected lock shows that the shutdown is in progress.
		w.set(func() { w.known, w.inhibitErr, w.ready = false, ErrShutdownInProgress, false })
		w.Start(w.ctx)
		ran := w.add(aPod("ran", 0, 30), 1)
		w.readmitted[ran.UID] = true
		if !w.admits(ran) || w.admits(aPod("new", 0, 30)) || !w.admits(ofDaemonSet(aPod("daemon", 0, 30))) {
			t.Error("admits the wrong pods")
		}
		w.sleep(2)
		w.expect("0 delay 30s", "0 node down=true")
		w.set(func() { w.ready = true })
		w.sleep(3)
		w.add(static(aPod("static", 1000, 30)), 1)
		w.add(aPod("overdue", 1000, 2), 60)
		w.sleep(35)
		// Each pod is killed once.
		w.expect("3 kill ran 20", "4 stopped ran", "4 unmounted [ran]", "6 kill overdue 2", "6 kill static 10",
			"7 stopped static")
		w.expectEvents("event")
		w.set(func() { w.inhibitErr = nil })
		w.events <- Announcement{ByLogind: true}
		w.expect("40 lock 1", "40 node down=false", "40 restart [static]")
		if !w.admits(aPod("new", 0, 30)) {
			t.Error("still shutting down")
		}
	})
}

// For any sequence of announcements, cancellations, lost connections and rejected locks: no lock is closed twice (see
// play), and after a cancellation exactly one is held, if logind grants it.
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
					w.send(true)
				case 3, 4, 5:
					w.send(false)
				case 6:
					w.loseConnection()
				default:
					w.set(func() { w.inhibitErr = []error{nil, errTest}[state>>28&1] })
				}
				w.sleep(int(state >> 16 % 9))
			}
			w.set(func() { w.inhibitErr = nil })
			w.send(false)
			w.sleep(200)
			if held := w.held(); len(held) != 1 || w.ShutdownStatus() != nil {
				t.Errorf("seed %d: locks %v are held, state %v", seed, held, w.ShutdownStatus())
			}
		})
	}
}

// send sends an announcement or a cancellation, if the manager is connected.
func (w *world) send(shuttingDown bool) {
	w.set(func() { w.shuttingDown = shuttingDown })
	select {
	case get(w, &w.events) <- Announcement{ShuttingDown: shuttingDown}:
	default:
	}
	w.sleep(0)
}

// loseConnection closes the connection, if there is one.
func (w *world) loseConnection() {
	events := get(w, &w.events)
	if events != nil {
		w.set(func() { w.events = nil })
		close(events)
	}
}

// held returns the locks that are not closed.
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

// Logind is restarted after it has announced a shutdown. It does not know of that any more and announces no
// cancellation; the agent finds out.
func TestLogindForgetsTheShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.set(func() { w.shuttingDown = true })
		w.announce(true)
		w.sleep(25)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1")
		w.set(func() { w.shuttingDown = false })
		w.sleep(int(statePeriod.Seconds()))
		w.expect("30 lock 2", "30 node down=false")
		w.expectEvents("event", "cancellation")
		if w.ShutdownStatus() != nil {
			t.Error("still shutting down")
		}
	})
}

// Upstream's tests of the node send the signal themselves: logind does not know of the shutdown, which goes on.
func TestShutdownThatOthersAnnounce(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(300)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1")
		w.announce(false)
		w.expect("300 lock 2", "300 node down=false")
	})
}

// Logind does not answer when the agent starts: Start returns nevertheless, and the lock is taken later.
func TestStartWhileLogindHangs(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.set(func() { w.hangs = true })
		w.Start(w.ctx)
		if waited := time.Since(w.begin); waited != startPatience {
			t.Errorf("Start has waited %v", waited)
		}
		w.sleep(10)
		w.set(func() { w.hangs = false })
		w.sleep(60)
		w.expect("23 delay 30s", "23 lock 1") // The attempt from 11 s on ends after 21 s.
	})
}

// Logind hangs when the agent is stopped.
func TestStopWhileLogindHangs(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.set(func() { w.hangs = true })
		w.Start(w.ctx)
		w.sleep(1)
		w.stopAgent()
		w.Wait()
		if took := time.Since(w.begin); took > startPatience+2*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// Logind hangs when the shutdown is cancelled: the pods that restart are started at once, and the lock follows.
func TestCancellationWhileLogindHangs(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(5)
		w.set(func() { w.hangs = true })
		w.announce(false)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill static 20", "1 stopped static",
			"1 unmounted [static]", "1 unlock 1", "5 node down=false", "5 restart [static]")
		w.set(func() { w.hangs = false })
		w.sleep(30)
		w.expect("16 delay 30s", "16 lock 2")
	})
}

// Logind announces a shutdown, does not answer, and is restarted: it is known all the same that it was logind.
func TestLogindForgetsAShutdownThatItHasNotConfirmed(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.set(func() { w.shuttingDown, w.hangs = true, true })
		w.events <- Announcement{ShuttingDown: true, ByLogind: true}
		w.sleep(5)
		w.set(func() { w.shuttingDown, w.hangs = false, false })
		w.sleep(60)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "2 unlock 1", "12 lock 2", "12 node down=false")
	})
}

// Others have announced a shutdown, and the bus is restarted: the shutdown goes on.
func TestReconnectionDuringAShutdownThatOthersAnnounce(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(true)
		w.loseConnection()
		w.sleep(60)
		if w.ShutdownStatus() == nil {
			t.Error("the shutdown is cancelled")
		}
	})
}

// A shutdown is announced right after the cancellation of another one: no lock is granted any more, and pods are
// stopped at once.
func TestAnnouncedRightAfterACancellation(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 8)
		w.cfg.SyncNode = func(context.Context) {} // It would see one of both states.
		w.Start(w.ctx)
		w.set(func() { w.shuttingDown = true })
		w.announce(true)
		w.sleep(5)
		w.set(func() { w.inhibitErr = ErrShutdownInProgress })
		w.events <- Announcement{ByLogind: true}
		w.events <- Announcement{ShuttingDown: true, ByLogind: true}
		w.sleep(2)
		w.expect("0 delay 30s", "0 lock 1", "0 kill static 20", "5 kill static 20", "5 restart [static]")
		if w.ShutdownStatus() == nil {
			t.Error("the node is not shutting down")
		}
	})
}

// Logind says that the machine does not shut down a moment before its signal says so.
func TestCancellationIsSeenBeforeItsSignal(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.set(func() { w.shuttingDown = true })
		w.announce(true)
		w.sleep(9)
		w.set(func() { w.shuttingDown = false })
		w.sleep(1)
		w.announce(false)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1", "10 lock 2", "10 node down=false")
		w.expectEvents("event", "cancellation")
	})
}

// The agent is started during a shutdown, and the first attempt to reach logind fails: what restarts with the node is
// admitted nevertheless.
func TestStartedDuringAShutdownWithoutLogind(t *testing.T) {
	for name, fails := range map[string]func(w *world, fails bool){
		"hangs":     func(w *world, fails bool) { w.hangs = fails },
		"is absent": func(w *world, fails bool) { w.connectErr = map[bool]error{true: errTest}[fails] },
	} {
		play(t, twoGroups, func(w *world) {
			w.set(func() { w.shuttingDown, w.inhibitErr = true, ErrShutdownInProgress; fails(w, true) })
			w.Start(w.ctx)
			w.set(func() { fails(w, false) })
			w.sleep(30)
			if w.ShutdownStatus() == nil || !w.admits(ofDaemonSet(aPod("daemon", 0, 30))) {
				t.Errorf("logind %s: the pod of a DaemonSet is rejected, or the shutdown unknown", name)
			}
		})
	}
}

// Logind cannot say for how long it waits: that is tried again, and the periods are shortened once it is known.
func TestUnknownDelay(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.delayErr = ErrDelayUnknown
		w.add(aPod("low", 0, 30), 100)
		w.Start(w.ctx)
		w.set(func() { w.delayErr, w.maxDelay = nil, 5*time.Second })
		w.sleep(10)
		w.announce(true)
		w.expect("0 delay 30s", "1 delay 30s", "1 lock 1", "10 node down=true", "10 kill low 3")
	})
}

// The machine begins to shut down between the agent's first lock and its first read of the state. The lock is released
// when the pods have stopped, as for any other shutdown.
func TestShutdownThatBeginsWhileTheAgentConnects(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("low", 0, 30), 1)
		w.set(func() { w.shuttingDown = true })
		w.Start(w.ctx)
		w.sleep(5)
		if held := w.held(); len(held) != 0 {
			t.Errorf("locks %v are still held after the last pod has stopped", held)
		}
	})
}

// Logind waits for no delay lock, and that cannot be changed: a shutdown is seen nevertheless, and new pods are
// rejected. The others are left to systemd, which gives them some time.
func TestLogindThatDoesNotWait(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.maxDelay = 0
		w.add(aPod("low", 0, 30), 100)
		w.Start(w.ctx)
		w.announce(true)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1")
		if w.admits(aPod("new", 0, 30)) {
			t.Error("admits a pod")
		}
	})
}

// Another program sends the signal of a cancellation while logind shuts the machine down: the periods go on, also if
// logind does not answer in that moment.
func TestCancellationByAnotherProgram(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		play(t, twoGroups, func(w *world) {
			w.add(static(aPod("static", 1000, 30)), 8)
			w.add(aPod("low", 0, 30), 100)
			w.Start(w.ctx)
			w.set(func() { w.shuttingDown, w.inhibitErr = true, ErrShutdownInProgress })
			w.events <- Announcement{ShuttingDown: true, ByLogind: true}
			w.sleep(15)
			w.set(func() { w.hangs = hangs })
			w.announce(false)
			w.sleep(3)
			w.set(func() { w.hangs = false })
			w.sleep(14)
			w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill low 20", "20 kill static 10",
				"28 stopped static", "28 unmounted [static]", "28 unlock 1")
			w.expectEvents("event")
		})
	}
}

// A shutdown was cancelled. The next one is announced by another program: logind, which knows nothing of it, does not
// cancel it.
func TestShutdownThatOthersAnnounceAfterACancelledOne(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.events <- Announcement{ShuttingDown: true, ByLogind: true}
		w.events <- Announcement{ByLogind: true}
		w.sleep(1)
		w.announce(true)
		w.sleep(60)
		if w.ShutdownStatus() == nil {
			t.Error("the shutdown is cancelled")
		}
	})
}

// announcedAtLock is a logind that announces a shutdown after it has granted a lock, and cannot say so at first.
type announcedAtLock struct{ *world }

func (l announcedAtLock) Inhibit(ctx context.Context) (io.Closer, error) {
	lock, err := l.world.Inhibit(ctx)
	l.set(func() { l.shuttingDown, l.known = true, false })
	return lock, err
}

// A shutdown begins between the lock and the subscription, and the first question about it is not answered.
func TestShutdownWhileTheStateIsUnknown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("low", 0, 30), 1)
		w.cfg.Connect = func(context.Context) (Logind, error) { return announcedAtLock{w}, nil }
		w.Start(w.ctx)
		w.sleep(1)
		w.set(func() { w.known = true })
		w.sleep(15)
		w.expect("0 delay 30s", "0 lock 1", "10 node down=true", "10 kill low 20", "11 stopped low", "11 unmounted [low]",
			"11 unlock 1")
	})
}
