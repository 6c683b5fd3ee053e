package syncloop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// probeStatuses is a status manager that records readiness.
type probeStatuses struct {
	status.Manager
	ready map[types.UID]bool
}

func (p *probeStatuses) SetContainerReadiness(_ klog.Logger, uid types.UID, _ kubecontainer.ContainerID, ready bool) {
	p.ready[uid] = ready
}

// silence is whether the container runtime answers as ready.
type silence struct {
	mu   sync.Mutex
	on   bool
	over time.Time
}

func (s *silence) Store(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on {
		s.over = time.Now()
	}
	s.on = on
}

func (s *silence) last() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on {
		return time.Now()
	}
	return s.over
}

// running is a running loop in a synctest bubble.
type running struct {
	*world
	loop         *Loop
	pods         chan kubetypes.PodUpdate
	events       chan *pleg.PodLifecycleEvent
	probes       chan results.Update
	retryWaiting chan struct{}
	statuses     *probeStatuses
	due          list[types.UID]
	down         atomic.Bool
	silent       silence
	cleaned      atomic.Int32
	// cleanUpTakes is the duration of a round of housekeeping.
	cleanUpTakes atomic.Int64
	// restarted counts the calls of RestartPods.
	restarted atomic.Int32
	died      list[string]
	ended     error
}

func start(t *testing.T, sourcesReady bool) *running {
	return startAs(t, sourcesReady, func(*running) {})
}

// startAs starts a loop of a world that prepare has changed.
func startAs(t *testing.T, sourcesReady bool, prepare func(*running)) *running {
	r := &running{world: newWorld(sourcesReady), pods: make(chan kubetypes.PodUpdate),
		events: make(chan *pleg.PodLifecycleEvent),
		probes: make(chan results.Update), retryWaiting: make(chan struct{}),
		statuses: &probeStatuses{ready: map[types.UID]bool{}}}
	r.loop = New(Config{
		Inputs:          Inputs{Pods: r.pods, Runtime: r.events, Readiness: r.probes, RetryWaiting: r.retryWaiting},
		Handlers:        r.Handlers,
		RuntimeLastDown: r.silent.last,
		RuntimeErrors: func() error {
			if r.down.Load() {
				return errors.New("no runtime")
			}
			return nil
		},
		SourcesReady: r.SourcesReady,
		Status:       r.statuses,
		CleanUp: func(context.Context) error {
			r.cleaned.Add(1)
			time.Sleep(time.Duration(r.cleanUpTakes.Load()))
			return nil
		},
		RestartPods:   func(context.Context) error { r.restarted.Add(1); return nil },
		ContainerDied: func(_ context.Context, uid types.UID, id string) { r.died.add(string(uid) + "/" + id) },
		Due:           r.due.take,
		ShouldSync:    func(pod *v1.Pod) bool { return pod.Name == "overdue" },
	})
	prepare(r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.ended = r.loop.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r *running) add(pods ...*v1.Pod) {
	r.pods <- kubetypes.PodUpdate{Op: kubetypes.ADD, Source: kubetypes.ApiserverSource, Pods: pods}
	synctest.Wait()
	r.take()
}

// TestSlowHousekeepingLeavesTimeForPods: on a busy node a round of housekeeping takes longer than its period. The loop
// spends a fifth of its time with that, and handles updates of pods in the rest.
func TestSlowHousekeepingLeavesTimeForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, updates = 3 * time.Second, 20
		r := start(t, true)
		r.cleanUpTakes.Store(int64(takes))
		begin := time.Now()
		for range updates {
			time.Sleep(time.Second)
			r.pods <- kubetypes.PodUpdate{Op: kubetypes.RECONCILE, Source: kubetypes.ApiserverSource}
		}
		elapsed := time.Since(begin)
		if most := updates*time.Second + 2*takes; elapsed > most {
			t.Errorf("%d updates took %v, want at most %v", updates, elapsed, most)
		}
		time.Sleep(10 * time.Minute)
		rounds := time.Duration(r.cleaned.Load())
		if total := time.Since(begin); rounds*takes > total/5+takes || rounds*takes < total/6 {
			t.Errorf("%d rounds of housekeeping in %v", rounds, total)
		}
	})
}

// TestOneSlowRoundOfHousekeeping: the runtime does not answer once, for the default of runtimeRequestTimeout or two of
// them. The next round comes soon, also if the runtime was down meanwhile.
func TestOneSlowRoundOfHousekeeping(t *testing.T) {
	for _, takes := range []time.Duration{5 * time.Second, 2 * time.Minute, 4 * time.Minute} {
		for _, goesDown := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, true)
				r.cleanUpTakes.Store(int64(takes))
				time.Sleep(housekeepingPeriod + time.Second)
				r.cleanUpTakes.Store(0)
				r.down.Store(goesDown)
				time.Sleep(takes)
				r.down.Store(false)
				before := r.cleaned.Load()
				time.Sleep(housekeepingMaxPause + runtimeDownPauseMax + time.Second)
				if r.cleaned.Load() == before {
					t.Errorf("after a round of %v (runtime down: %v) no other one in %v", takes, goesDown, housekeepingMaxPause)
				}
			})
		}
	}
}

func TestLoop(t *testing.T) {
	for name, test := range map[string]func(*testing.T, *running){
		"events of the runtime": func(t *testing.T, r *running) {
			r.add(aPod("a", 0))
			r.events <- &pleg.PodLifecycleEvent{ID: "a", Type: pleg.ContainerDied, Data: "c1"}
			r.events <- &pleg.PodLifecycleEvent{ID: "a", Type: pleg.ContainerRemoved, Data: "c1"}
			r.events <- &pleg.PodLifecycleEvent{ID: "unknown", Type: pleg.ContainerDied, Data: "c2"}
			synctest.Wait()
			expect(t, "updates", r.take(), []string{"sync a"})
			expect(t, "died", r.died.take(), []string{"a/c1", "unknown/c2"})
		},
		"probe results": func(t *testing.T, r *running) {
			r.add(aPod("a", 0))
			r.probes <- results.Update{PodUID: "a", Result: results.Success}
			synctest.Wait()
			if !r.statuses.ready["a"] {
				t.Error("the readiness was not set")
			}
			expect(t, "updates", r.take(), []string{"sync a"})
		},
		"pods that wait": func(t *testing.T, r *running) {
			r.add(aPod("a", 0))
			r.waiting, r.admitted = []types.UID{"a"}, nil
			r.retryWaiting <- struct{}{}
			synctest.Wait()
			expect(t, "admission at once", r.admitted, []string{"a with 1 pods"})
		},
		"pods that are due": func(t *testing.T, r *running) {
			r.add(aPod("a", 0), aPod("b", 0), aPod("overdue", 0))
			r.due.add("b")
			<-time.After(syncPeriod)
			synctest.Wait()
			updates := r.take()
			slices.Sort(updates)
			expect(t, "updates", updates, []string{"sync b", "sync overdue"})
		},
		// The termination of a removed pod may have failed.
		"a pod that is due and has no source": func(t *testing.T, r *running) {
			pods := []*v1.Pod{aPod("a", 0)}
			r.add(pods...)
			r.pods <- kubetypes.PodUpdate{Op: kubetypes.REMOVE, Source: kubetypes.ApiserverSource, Pods: pods}
			synctest.Wait()
			expect(t, "updates", r.take(), []string{"kill a"})
			r.due.add("a")
			<-time.After(syncPeriod)
			synctest.Wait()
			expect(t, "updates", r.take(), []string{"retry a"})
		},
		"housekeeping": func(t *testing.T, r *running) {
			<-time.After(3 * housekeepingPeriod)
			synctest.Wait()
			if n, restarts := r.cleaned.Load(), r.restarted.Load(); n != 3 || restarts != 0 {
				t.Errorf("cleaned %d times in three periods, and %d times only restarts", n, restarts)
			}
		},
		"nothing happens while the runtime is down": func(t *testing.T, r *running) {
			r.down.Store(true)
			<-time.After(time.Second)
			before := r.cleaned.Load()
			<-time.After(time.Minute)
			if n := r.cleaned.Load(); n > before+1 {
				t.Errorf("cleaned %d times", n-before)
			}
			r.down.Store(false)
			<-time.After(runtimeDownPauseMax + housekeepingPeriod)
			if r.cleaned.Load() <= before {
				t.Error("the loop does not continue when the runtime is up again")
			}
		},
		// A later attempt kills a pod that the runtime does not stop.
		"terminations are repeated while the runtime is down": func(t *testing.T, r *running) {
			r.add(aPod("a", 0), aPod("b", 0))
			r.down.Store(true)
			<-time.After(2 * syncPeriod)
			synctest.Wait()
			r.take()
			for range 3 {
				r.due.add("a")
				<-time.After(runtimeDownPauseMax)
				synctest.Wait()
				expect(t, "updates while the runtime is down", r.take(), []string{"retry a"})
			}
			r.down.Store(false)
			<-time.After(runtimeDownPauseMax + syncPeriod)
			synctest.Wait()
			expect(t, "updates when it is back", r.take(), []string{"sync a"})
		},
		"a closed channel of pods is an error": func(t *testing.T, r *running) {
			close(r.pods)
			synctest.Wait()
			if r.ended == nil {
				t.Error("the loop ended without an error")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, start(t, true)) })
		})
	}
}

func TestHousekeepingWaitsForAllSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, false)
		<-time.After(10 * housekeepingPeriod)
		synctest.Wait()
		if r.cleaned.Load() != 0 {
			t.Error("housekeeping ran before a source had reported")
		}
		if n := r.restarted.Load(); n != 10 {
			t.Errorf("RestartPods was called %d times in ten periods", n)
		}
	})
}

// TestHealthCheckAfterALongIteration: an iteration that took long and has ended is not one that hangs.
func TestHealthCheckAfterALongIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 4 * time.Minute
		r := start(t, true)
		r.cleanUpTakes.Store(int64(takes))
		time.Sleep(housekeepingPeriod + time.Second)
		r.down.Store(true)
		time.Sleep(takes)
		time.Sleep(minHealthWindow - 10*time.Second)
		if err := r.loop.HealthCheck(nil); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		if r.loop.HealthCheck(nil) == nil {
			t.Error("healthy although no input was handled for too long")
		}
	})
}

func TestHealthChecksFailWhenTheLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, true)
		<-time.After(time.Minute)
		if err := errors.Join(r.loop.HealthCheck(nil), r.loop.HangCheck(nil)); err != nil {
			t.Error(err)
		}
		r.cleanUpTakes.Store(int64(2 * minHealthWindow))
		<-time.After(minHealthWindow + 2*housekeepingPeriod)
		if r.loop.HealthCheck(nil) == nil || r.loop.HangCheck(nil) == nil {
			t.Error("healthy although the loop hangs")
		}
	})
}

// The window is twice the resync interval if that is longer.
func TestHealthWindowFollowsTheResyncInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = minHealthWindow
		r := startAs(t, true, func(r *running) { r.loop.ResyncInterval = interval })
		r.cleanUpTakes.Store(int64(time.Hour))
		<-time.After(2*interval - time.Second)
		if err := r.loop.HealthCheck(nil); err != nil {
			t.Errorf("within the window: %v", err)
		}
		<-time.After(2 * housekeepingPeriod)
		if r.loop.HealthCheck(nil) == nil {
			t.Error("healthy after the window")
		}
	})
}

// A check of the agent fails for longer than five minutes, that of PLEG for example: the agent may hang.
func TestHangCheckFailsWhenAPartOfTheAgentHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, true)
		<-time.After(time.Minute)
		r.down.Store(true)
		<-time.After(minHealthWindow + time.Minute)
		if r.loop.HangCheck(nil) == nil {
			t.Error("healthy although no pod is synchronized")
		}
	})
}

// The runtime answers as ready when the agent starts, but its list of pods comes late, so that PLEG is not healthy yet:
// no input has been handled, and the agent lives, as stock's does.
func TestHangCheckWaitsForTheFirstIteration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startAs(t, true, func(r *running) {
			r.down.Store(true)
			r.silent.Store(true)
		})
		<-time.After(time.Minute)
		r.silent.Store(false)
		<-time.After(2 * minHealthWindow)
		if err := errors.Join(r.loop.HealthCheck(nil), r.loop.HangCheck(nil)); err != nil {
			t.Error(err)
		}
	})
}

// The loop hangs for good beside a runtime that is down, or comes and goes. That is found after half an hour.
func TestHangBesideARuntimeThatIsDown(t *testing.T) {
	for name, down := range map[string]time.Duration{"down": time.Hour, "comes and goes": 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, true)
			<-time.After(time.Minute)
			r.cleanUpTakes.Store(int64(3 * time.Hour))
			found := time.Duration(0)
			for begin := time.Now(); found == 0 && time.Since(begin) < time.Hour; <-time.After(10 * time.Second) {
				r.silent.Store(time.Since(begin)%(4*time.Minute) < down)
				if r.loop.HangCheck(nil) != nil {
					found = time.Since(begin)
				}
			}
			if found < longestWait || found > longestWait+time.Minute {
				t.Errorf("%s: found after %v, want %v", name, found, longestWait)
			}
		})
	}
}

// Housekeeping waits longer for a runtime that hangs than the loop may take: runtimeRequestTimeout is ten minutes. When
// the runtime answers again the loop has the same time once more.
func TestLoopThatWaitsForARuntimeThatIsDownDoesNotHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, true)
		<-time.After(time.Minute)
		r.cleanUpTakes.Store(int64(time.Hour))
		<-time.After(time.Minute)
		r.silent.Store(true)
		<-time.After(2 * minHealthWindow)
		if err := r.loop.HangCheck(nil); err != nil {
			t.Errorf("while the runtime is down: %v", err)
		}
		r.silent.Store(false)
		<-time.After(minHealthWindow - time.Minute)
		if err := r.loop.HangCheck(nil); err != nil {
			t.Errorf("four minutes after the runtime was down: %v", err)
		}
		<-time.After(2 * time.Minute)
		if r.loop.HangCheck(nil) == nil {
			t.Error("healthy although the loop hangs while the runtime is ready")
		}
	})
}

// As before, but systemd's watchdog asks every five minutes only (WatchdogSec=10min), the last time ten seconds after
// the runtime answers again.
func TestHangCheckThatIsCalledSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, true)
		<-time.After(time.Minute)
		r.cleanUpTakes.Store(int64(time.Hour))
		<-time.After(time.Second)
		r.silent.Store(true)
		for range 2 {
			<-time.After(minHealthWindow + time.Second)
			if err := r.loop.HangCheck(nil); err != nil {
				t.Errorf("while the runtime is down: %v", err)
			}
		}
		<-time.After(minHealthWindow - 10*time.Second)
		r.silent.Store(false)
		<-time.After(11 * time.Second)
		if err := r.loop.HangCheck(nil); err != nil {
			t.Errorf("ten seconds after the runtime was down: %v", err)
		}
	})
}

// The container runtime is down for longer than five minutes. The loop goes on and retries terminations: systemd's
// watchdog must not end the agent, which could not start again without the runtime.
func TestLoopDoesNotHangWhileTheRuntimeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, true)
		r.add(aPod("a", 0))
		<-time.After(time.Minute)
		r.down.Store(true)
		r.silent.Store(true)
		<-time.After(minHealthWindow + time.Minute)
		r.take()
		r.due.add("a")
		<-time.After(2 * runtimeDownPauseMax)
		synctest.Wait()
		if len(r.take()) == 0 {
			t.Error("the loop does not run")
		}
		if err := r.loop.HangCheck(nil); err != nil {
			t.Errorf("the watchdog is told that the loop hangs: %v", err)
		}
		if r.loop.HealthCheck(nil) == nil {
			t.Error("healthy although no pod is synchronized")
		}
	})
}
