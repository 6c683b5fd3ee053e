package nodestatus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestRunReportsReadyAsSoonAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		w.runtimeErr = errors.New("container runtime is down")
		w.onRuntimeUp = func(n int) {
			if n == 10 {
				w.set(func(w *world) { w.runtimeErr = nil })
			}
		}
		start := time.Now()
		runUpdater(t, newUpdater(t, s, w))
		time.Sleep(1500 * time.Millisecond)
		if c := condition(s.current(), v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Fatalf("after %v: ready %v", time.Since(start), c)
		}
		readies, over := get(w, func(w *world) int { return w.readies }), get(w, func(w *world) int { return w.startupOver })
		if readies == 0 || over != 1 {
			t.Errorf("recorded ready %d times, start-up over %d times", readies, over)
		}
		ups := get(w, func(w *world) int { return w.runtimeUps })
		time.Sleep(5 * time.Second)
		if now := get(w, func(w *world) int { return w.runtimeUps }); now != ups {
			t.Errorf("the fast path continues: %d checks, then %d", ups, now)
		}
	})
}

func TestRunGivesUpFastPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		w.runtimeErr = errors.New("container runtime is down")
		runUpdater(t, newUpdater(t, s, w))
		time.Sleep(maxStartup - time.Second)
		if n := get(w, func(w *world) int { return w.startupOver }); n != 0 {
			t.Error("gave up too early")
		}
		time.Sleep(2 * time.Second)
		if n := get(w, func(w *world) int { return w.startupOver }); n != 1 {
			t.Error("did not give up")
		}
		w.set(func(w *world) { w.runtimeErr = nil })
		time.Sleep(11 * time.Second)
		if c := condition(s.current(), v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("not reported by a heartbeat: %v", c)
		}
	})
}

func TestFastPathFallsBackToHeartbeat(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	w.runtimeErr = errors.New("down")
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	w.runtimeErr = nil
	s.fail("patch", apierrors.NewInternalError(errors.New("oops")))
	if !u.tryReady(t.Context()) {
		t.Error("not over")
	}
	if c := condition(s.current(), v1.NodeReady); c.Status != v1.ConditionTrue {
		t.Errorf("ready %v", c)
	}
}

// After the fast report, the next heartbeat sends no patch.
func TestFastReportIsAReport(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	w.runtimeErr = errors.New("down")
	newUpdater(t, s, w).SyncNow(t.Context())
	w.runtimeErr = nil
	u := newUpdater(t, s, w)
	before := len(s.sent())
	if !u.tryReady(t.Context()) {
		t.Error("not over")
	}
	u.SyncNow(t.Context())
	if n := len(s.sent()) - before; n != 1 {
		t.Errorf("%d patches", n)
	}
}

// Run queries the runtime before the first report; otherwise a restart would publish NotReady.
func TestRunQueriesRuntimeBeforeFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		w.runtimeErr = errors.New("not queried yet")
		w.onRuntimeUp = func(int) { w.set(func(w *world) { w.runtimeErr = nil }) }
		s.onPatch = func() {
			if ready(s.node).Status != v1.ConditionTrue {
				t.Error("published NotReady")
			}
		}
		runUpdater(t, newUpdater(t, s, w))
		time.Sleep(time.Minute)
		if w.count("NodeNotReady") != 0 {
			t.Errorf("events %v", w.events)
		}
	})
}

func TestRunEndsWithContext(t *testing.T) {
	oops := apierrors.NewInternalError(errors.New("oops"))
	synctest.Test(t, func(t *testing.T) { // the bubble fails if a goroutine stays
		for _, after := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
			s, w := newAPIServer(nil), newWorld()
			s.fail("create", oops, oops, oops)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			newUpdater(t, s, w).Run(ctx)
			cancel()
		}
	})
}

func TestStandaloneRunDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		u := newUpdater(t, newAPIServer(nil), w, func(c *Config) {
			c.View, c.Client, c.Heartbeat = NewView(ViewConfig{Name: testNode}), nil, nil
		})
		runUpdater(t, u)
		u.PressureChanged()
		u.SyncNow(t.Context())
		time.Sleep(time.Hour)
		if w.attempts != 0 || len(w.events) != 0 {
			t.Errorf("attempts %d, events %v", w.attempts, w.events)
		}
	})
}

func TestSyncNowRegistersWithOneAttempt(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	s.fail("create", apierrors.NewInternalError(errors.New("oops")))
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	if s.current() != nil || w.attempts != 1 {
		t.Errorf("node %v, attempts %d", s.current(), w.attempts)
	}
	u.SyncNow(t.Context())
	if s.current() == nil || len(s.sent()) != 1 {
		t.Errorf("node %v, patches %v", s.current(), s.sent())
	}
}
