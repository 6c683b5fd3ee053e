package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// runUpdater runs u in the bubble until the test ends.
func runUpdater(t *testing.T, u *Updater) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runWithReported(ctx, u)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// runWithReported runs u, and RunReported if it has something to write for reporter plugins.
func runWithReported(ctx context.Context, u *Updater) {
	var running sync.WaitGroup
	if u.cfg.Reported.Content != nil {
		running.Go(func() { u.RunReported(ctx) })
	}
	u.Run(ctx)
	running.Wait()
}

func TestPressureIsPublishedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		runUpdater(t, u)
		synctest.Wait()
		time.Sleep(time.Second) // somewhere between two heartbeats
		before := len(s.sent())

		w.set(func(w *world) { w.memory = true })
		u.PressureChanged()
		synctest.Wait()

		patches := s.sent()[before:]
		if len(patches) != 1 || condition(s.current(), v1.NodeMemoryPressure).Status != v1.ConditionTrue {
			t.Fatalf("patches %v", patches)
		}
		onlyPressure(t, patches[0])
		time.Sleep(15 * time.Second) // the next heartbeat finds nothing new
		if n := len(s.sent()) - before; n != 1 {
			t.Errorf("%d patches", n)
		}
		if n := w.count("NodeHasInsufficientMemory"); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

// onlyPressure fails if a patch sets anything but the three pressure conditions and the given ones.
func onlyPressure(t *testing.T, patch string, others ...v1.NodeConditionType) {
	t.Helper()
	var p struct {
		Metadata any `json:"metadata"`
		Status   map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(patch), &p); err != nil {
		t.Fatal(err)
	}
	for field := range p.Status {
		if field != "conditions" && field != "$setElementOrder/conditions" {
			t.Errorf("patch sets status.%s: %s", field, patch)
		}
	}
	var conditions []v1.NodeCondition
	if err := json.Unmarshal(p.Status["conditions"], &conditions); err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		if c.Type != v1.NodeMemoryPressure && c.Type != v1.NodeDiskPressure && c.Type != v1.NodePIDPressure &&
			!slices.Contains(others, c.Type) {
			t.Errorf("patch sets condition %s: %s", c.Type, patch)
		}
	}
}

// Under memory pressure the runtime may answer late or not at all.
func TestPressureDoesNotWaitForHangingRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		runUpdater(t, u)
		time.Sleep(time.Second)

		release := make(chan struct{})
		defer close(release)
		w.set(func(w *world) { w.versionHook = func() { <-release } })
		time.Sleep(15 * time.Second) // a heartbeat hangs now
		w.set(func(w *world) { w.disk = true })
		u.PressureChanged()
		synctest.Wait()
		if c := condition(s.current(), v1.NodeDiskPressure); c.Status != v1.ConditionTrue {
			t.Errorf("disk pressure %v", c)
		}
	})
}

// A heartbeat that began before the publication of pressure does not revert it.
func TestHeartbeatDoesNotRevertPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		u.SyncNow(t.Context())
		s.lagging = true

		release := make(chan struct{})
		w.set(func(w *world) { w.versionHook = func() { <-release } })
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.SyncNow(t.Context())
		}()
		synctest.Wait()
		w.set(func(w *world) { w.memory = true })
		if err := u.retry(t.Context(), u.tryPublishPressure); err != nil {
			t.Fatal(err)
		}
		published := condition(s.current(), v1.NodeMemoryPressure)
		time.Sleep(time.Second)
		close(release)
		<-done
		got := condition(s.current(), v1.NodeMemoryPressure)
		if diff := cmp.Diff(published.LastTransitionTime.Time, got.LastTransitionTime.Time); diff != "" ||
			got.Status != v1.ConditionTrue {
			t.Errorf("published %v, then %v", published, got)
		}
		if n := w.count("NodeHasInsufficientMemory"); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

func TestPressureIsRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w, func(c *Config) { c.Reporting.UpdateFrequency = time.Hour })
		runUpdater(t, u)
		time.Sleep(time.Minute)
		before := len(s.sent())
		for i := range 1000 { // ten seconds of flapping
			w.set(func(w *world) { w.memory = i%2 == 0 })
			u.PressureChanged()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(s.sent()) - before; n > 11 {
			t.Errorf("%d patches in ten seconds", n)
		}
		time.Sleep(2 * time.Second)
		if c := condition(s.current(), v1.NodeMemoryPressure); c.Status != v1.ConditionFalse {
			t.Errorf("the last state is not the one published: %v", c)
		}
	})
}

func TestPressureIsRetried(t *testing.T) {
	oops := apierrors.NewInternalError(errors.New("oops"))
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	w.pid = true
	s.fail("patch", oops, oops)
	if err := u.retry(t.Context(), u.tryPublishPressure); err != nil {
		t.Fatal(err)
	}
	if c := condition(s.current(), v1.NodePIDPressure); c.Status != v1.ConditionTrue {
		t.Errorf("PID pressure %v", c)
	}
	if w.heartbeatFailures != 1 {
		t.Errorf("connections closed %d times", w.heartbeatFailures)
	}
}

// TestRestoreComesBeforeAnyStatus restarts the agent under pressure: the taint must not be removed.
func TestRestoreComesBeforeAnyStatus(t *testing.T) {
	for _, path := range []string{"heartbeat", "pressure", "startup", "start"} {
		t.Run(path, func(t *testing.T) {
			s, w := newAPIServer(nil), newWorld()
			w.memory = true
			newUpdater(t, s, w).SyncNow(t.Context())
			before := condition(s.current(), v1.NodeMemoryPressure)
			s.edit(func(n *v1.Node) { ready(n).Status = v1.ConditionFalse })

			w = newWorld()
			w.onRestore = func(c []v1.NodeCondition) {
				node := &v1.Node{Status: v1.NodeStatus{Conditions: c}}
				w.memory = condition(node, v1.NodeMemoryPressure).Status == v1.ConditionTrue
			}
			u := newUpdater(t, s, w)
			switch path {
			case "heartbeat":
				u.SyncNow(t.Context())
			case "pressure":
				if err := u.tryPublishPressure(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			case "startup":
				u.tryReady(t.Context())
			case "start":
				if !u.RestoreAtStart(t.Context(), time.Second) {
					t.Error("not restored")
				}
			}
			after := condition(s.current(), v1.NodeMemoryPressure)
			if after.Status != v1.ConditionTrue || !after.LastTransitionTime.Equal(&before.LastTransitionTime) {
				t.Errorf("memory pressure was %v, is %v", before, after)
			}
			u.SyncNow(t.Context())
			if len(w.restored) != 1 {
				t.Errorf("restored %d times", len(w.restored))
			}
		})
	}
}

// Restore is not called with the conditions of a Node that this run has created.
func TestNothingToRestoreFromOwnNode(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	if !u.RestoreAtStart(t.Context(), time.Second) {
		t.Error("something is left to restore")
	}
	u.SyncNow(t.Context())
	u = newUpdater(t, newAPIServer(nil), w)
	u.SyncNow(t.Context())
	u.SyncNow(t.Context())
	if len(w.restored) != 0 {
		t.Errorf("restored %v", w.restored)
	}
}

func TestRestoreByHeartbeatAfterTheTimeoutAtStart(t *testing.T) {
	oops := apierrors.NewInternalError(errors.New("oops"))
	for _, outage := range []int{3, 100} {
		synctest.Test(t, func(t *testing.T) {
			s, w := newAPIServer(nil), newWorld()
			newUpdater(t, s, w).SyncNow(t.Context())
			for range outage {
				s.failures["get"] = append(s.failures["get"], oops)
			}
			u := newUpdater(t, s, w)
			start := time.Now()
			if done := u.RestoreAtStart(t.Context(), 2*time.Second); done != (outage == 3) || time.Since(start) > 2*time.Second {
				t.Errorf("outage of %d: done %v after %v", outage, done, time.Since(start))
			}
			s.failures["get"] = nil
			u.SyncNow(t.Context())
			if len(w.restored) != 1 {
				t.Errorf("outage of %d: restored %d times", outage, len(w.restored))
			}
		})
	}
}
