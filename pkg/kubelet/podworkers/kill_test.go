package podworkers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// stopOverhead is what stopping takes beside the grace period. It keeps the end of a termination apart from the PLEG's
// full seconds.
const stopOverhead = 100 * time.Millisecond

// terminateSlowly stops a pod as a runtime would whose containers use all of the grace period.
func terminateSlowly(ctx context.Context, request podsync.TerminateRequest) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(*request.GracePeriod)*time.Second + stopOverhead):
		return nil
	}
}

func (n *node) kill(pod *v1.Pod, evict bool, grace *int64) error {
	return n.stopPod(context.Background(), podkill.Request{Pod: pod, Evict: evict, GracePeriodSeconds: grace}).Err
}

// stopPod returns the second answer to a request.
func (n *node) stopPod(ctx context.Context, r podkill.Request) podkill.Ending {
	_, ended := n.KillPod(ctx, r)
	return <-ended
}

func TestKillPodWaitsForTheContainers(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.script.onTerminate = terminateSlowly
		n.advance(2 * time.Second)
		begin := time.Now()
		if err := n.kill(pod, true, new(int64(5))); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 5*time.Second+stopOverhead {
			t.Errorf("took %v", took)
		}
	})
}

// Everything was tried with a pod that is on the last rung of the ladder; or that should be, and of which the ladder
// knows nothing.
func TestEscalationExhausted(t *testing.T) {
	overdue := map[types.UID]escalation.Overdue{}
	bubble(t, func(n *node) {
		pod := newPod("a")
		want := func(when string, want bool) {
			t.Helper()
			if got := n.EscalationExhausted(pod.UID); got != want {
				t.Errorf("%s: %v", when, got)
			}
		}
		want("before anything is known", false)
		n.start(pod)
		want("while it runs", false)
		finish := make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-finish; return nil }
		n.KillPod(context.Background(), podkill.Request{Pod: pod})
		n.advance(30*time.Second + escalation.DefaultLimits().Longest())
		want("at the end of the longest ladder", false)
		n.advance(time.Second)
		want("after it", true)
		overdue[pod.UID] = escalation.Overdue{Rung: escalation.KillCgroup, Seen: time.Now()}
		want("while the ladder is at work, which has begun late", false)
		n.advance(30*time.Second + escalation.DefaultLimits().Longest())
		want("at the time of the last rung, when the grace period has begun again", false)
		n.advance(time.Second)
		want("after it, with a termination that goes on although the containers are dead", true)
		overdue[pod.UID] = escalation.Overdue{Rung: escalation.Report}
		want("on the last rung", true)
		close(finish)
		n.advance(2 * time.Second)
		want("when it has stopped", false)
	}, func(c *Config) { c.Overdue = func() map[types.UID]escalation.Overdue { return overdue } })
}

func TestKillPodTimesOut(t *testing.T) {
	for _, test := range []struct {
		name       string
		spec, kill *int64
		want       time.Duration
	}{
		{"at least 10 s", new(int64(30)), new(int64(0)), 10 * time.Second},
		{"10 s without any grace", nil, nil, 10 * time.Second},
		{"1.5 times the pod's own", new(int64(30)), nil, 45 * time.Second},
		{"1.5 times the requested", new(int64(30)), new(int64(9)), 13500 * time.Millisecond},
		{"negative is the pod's own", new(int64(30)), new(int64(-1)), 45 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(n *node) {
				pod := newPod("a")
				pod.Spec.TerminationGracePeriodSeconds = test.spec
				n.start(pod)
				finish := make(chan struct{})
				n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-finish; return nil }
				n.advance(2 * time.Second)
				begin := time.Now()
				err := n.kill(pod, false, test.kill)
				if took := time.Since(begin); !errors.Is(err, ErrKillTimeout) || err.Error() != "timeout waiting to kill pod" ||
					took != test.want {
					t.Errorf("%v after %v, want a time-out after %v", err, took, test.want)
				}
				want := "Warning ExceededGracePeriod Container runtime did not kill the pod within specified grace period."
				if events := n.events.all(); len(events) != 1 || events[0] != want {
					t.Errorf("events %q", events)
				}
				if waiters := n.state(pod).Waiters; len(waiters) != 0 || len(n.waiters.channels) != 0 {
					t.Errorf("%d waiters are kept", len(waiters))
				}
				close(finish) // the killing goes on
				n.advance(2 * time.Second)
				n.expectPhase(pod, podlifecycle.Finished)
			})
		})
	}
}

// A pod that has stopped by the time at which its request is over is neither overdue, nor has its stop failed.
func TestStoppedPodIsNotOverdue(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		stopped, expired := make(chan struct{}), make(chan time.Time)
		close(stopped)
		close(expired)
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		wrong := map[string]int{}
		for range 50 { // of the cases that are ready, a select takes any
			if n.awaitStop(context.Background(), pod, 0,
				endSignals{stopped: stopped, timeout: expired}).Outcome != podkill.Stopped {
				wrong["time-out"]++
			}
			if n.awaitStop(cancelled, pod, 0, endSignals{stopped: stopped}).Outcome != podkill.Stopped {
				wrong["context"]++
			}
		}
		if events := n.events.all(); len(wrong) != 0 || len(events) != 0 {
			t.Errorf("wrong endings %v, %d events", wrong, len(events))
		}
	})
}

func TestKillPodEndsWithItsContext(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if end := n.stopPod(ctx, podkill.Request{Pod: pod}); !errors.Is(end.Err, context.DeadlineExceeded) ||
			end.Outcome != podkill.Failed {
			t.Errorf("%v, %v", end.Outcome, end.Err)
		}
		n.expectPhase(pod, podlifecycle.Terminating)
	})
}

// D22: who waits for a pod that has stopped already is answered at once.
func TestKillOfAStoppedPodReturnsAtOnce(t *testing.T) {
	instantly := func(n *node, pod *v1.Pod) {
		n.t.Helper()
		begin := time.Now()
		if err := n.kill(pod, true, nil); err != nil || time.Since(begin) != 0 {
			n.t.Errorf("%v after %v", err, time.Since(begin))
		}
	}
	t.Run("finished", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
			n.advance(3 * time.Second)
			n.expectPhase(pod, podlifecycle.Finished)
			instantly(n, pod)
		})
	})
	t.Run("terminated", func(t *testing.T) {
		bubble(t, func(n *node) {
			n.script.onCleanUp = func(context.Context, *v1.Pod, *kubecontainer.PodStatus) error {
				return errors.New("volumes are still there")
			}
			pod := newPod("a")
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod)
			n.advance(3 * time.Second)
			n.expectPhase(pod, podlifecycle.Terminated)
			instantly(n, pod)
		})
	})
	t.Run("unknown", func(t *testing.T) {
		bubble(t, func(n *node) { instantly(n, newPod("a")) })
	})
	t.Run("static, waiting to start", func(t *testing.T) {
		bubble(t, func(n *node) {
			first, second := staticPod("a", "1"), staticPod("a", "2")
			n.start(first)
			n.start(second)
			instantly(n, second)
			n.expectPhase(second, podlifecycle.Finished)
			n.expectCalls("sync a create")
		})
	})
}

// D4: a shorter grace period reaches a termination that is running. Without a Hastener it is cancelled and called
// again.
func TestShorterGraceRepeatsARunningTermination(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		n.script.onTerminate = terminateSlowly
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
		n.advance(time.Minute)
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 7200)) // longer: nothing
		n.advance(time.Minute)
		begin := time.Now()
		if err := n.kill(pod, true, new(int64(5))); err != nil || time.Since(begin) != 5*time.Second+stopOverhead {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		n.expectCalls("sync a create", "terminate a 3600", "terminate a 5")
	})
}

// fakeHastener stops containers beside a running termination.
type fakeHastener struct {
	calls   []int64
	shorten chan int64
	err     error
}

func (h *fakeHastener) Hasten(_ context.Context, request podsync.TerminateRequest) error {
	h.calls = append(h.calls, *request.GracePeriod)
	if h.err != nil {
		return h.err
	}
	h.shorten <- *request.GracePeriod
	return nil
}

// terminate runs hooks once and heeds a shorter grace period on the way.
func (h *fakeHastener) terminate(ctx context.Context, request podsync.TerminateRequest) error {
	grace := *request.GracePeriod
	for {
		select {
		case grace = <-h.shorten:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(grace)*time.Second + stopOverhead):
			return nil
		}
	}
}

// D4 as it should be: the running termination goes on, with the shorter grace period beside it.
func TestShorterGraceHastensARunningTermination(t *testing.T) {
	h := &fakeHastener{}
	bubble(t, func(n *node) {
		h.shorten = make(chan int64, 1)
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		n.script.onTerminate = h.terminate
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
		n.advance(time.Minute)
		for _, grace := range []int64{600, 900, 5} {
			n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: &grace, Evict: true})
			n.advance(time.Second)
		}
		n.advance(4500 * time.Millisecond)
		n.expectPhase(pod, podlifecycle.Terminated)
		n.expectCalls("sync a create", "terminate a 3600")
		if len(h.calls) != 2 || h.calls[0] != 600 || h.calls[1] != 5 {
			t.Errorf("hastened to %v", h.calls)
		}
		if state := n.state(pod); !state.Termination.Hastened || state.Evicted() {
			t.Errorf("%+v", state.Termination)
		}
	}, func(c *Config) { c.Hastener = h })
}

// D26: a pod that is terminating already is hastened, not evicted; its status is not amended, and those who gave up
// leave nothing behind.
func TestEvictionsOfATerminatingPodLeaveNoWaiters(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		amended := false
		n.script.onTerminate = func(ctx context.Context, request podsync.TerminateRequest) error {
			amended = amended || request.Disruption != nil
			return untilCancelled(ctx)
		}
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 30))
		synctest.Wait()
		for range 1000 {
			err := n.stopPod(context.Background(), podkill.Request{
				Pod: pod, Evict: true, GracePeriodSeconds: new(int64(0)), Disruption: &podkill.Disruption{Reason: "Evicted"},
			}).Err
			if !errors.Is(err, ErrKillTimeout) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		state := n.state(pod)
		if len(state.Waiters) != 0 || len(n.waiters.channels) != 0 || n.workers[pod.UID].disruption != nil || amended {
			t.Errorf("%d waiters, %d channels, amended %t", len(state.Waiters), len(n.waiters.channels), amended)
		}
		if state.Evicted() || !state.Termination.Hastened || n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("%+v", state.Termination)
		}
		n.expectCalls("sync a create", "terminate a 30", "terminate a 1")
	})
}

func TestFirstDisruptionIsReported(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.advance(2 * time.Second)
		var reasons []string
		n.script.onTerminate = func(ctx context.Context, request podsync.TerminateRequest) error {
			reasons = append(reasons, request.Disruption.Reason)
			return terminateSlowly(ctx, request)
		}
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, Disruption: &podkill.Disruption{Reason: "first"}})
		n.advance(time.Second)
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{
			Evict: true, Disruption: &podkill.Disruption{Reason: "second"}, GracePeriod: new(int64(2)),
		})
		n.advance(5 * time.Second)
		if len(reasons) != 2 || reasons[0] != "first" || reasons[1] != "first" {
			t.Errorf("reasons %q", reasons)
		}
		if !n.state(pod).Evicted() || !n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Error("not evicted")
		}
	})
}

// D46: how a container ended is read from it when all have stopped; until then the sync loop must not remove it.
func TestContentOfAnEvictedPodIsKeptUntilItsEnd(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		n.script.onTerminate = terminateSlowly
		n.advance(2 * time.Second)
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, GracePeriod: new(int64(5))})
		n.advance(4 * time.Second)
		if n.phase(pod) != podlifecycle.Terminating || n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("content may go in phase %v", n.phase(pod))
		}
		n.advance(4 * time.Second)
		if n.phase(pod) == podlifecycle.Terminating || !n.cfg.Store.ShouldPodContentBeRemoved(pod.UID) {
			t.Errorf("content must stay in phase %v", n.phase(pod))
		}
	})
}

// D27: requests merge. A later, milder one takes nothing back, also while the worker has not looked at the first yet.
func TestKillRequestsMerge(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		pod := newPod("a")
		n.start(pod)
		first, second := make(chan struct{}), make(chan struct{})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{Evict: true, GracePeriod: new(int64(4)), Completed: first})
		n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(20)), Completed: second})
		n.send(kubetypes.SyncPodUpdate, pod)
		close(release)
		n.advance(3 * time.Second)
		n.expectCalls("sync a create", "terminate a 4", "clean up a")
		<-first
		<-second
		if !n.state(pod).Evicted() {
			t.Error("the eviction is lost")
		}
	})
}

// D28: a kill does not depend on a working PLEG: not when the worker is idle, nor when its sync waits for a status.
func TestKillDoesNotWaitForAStuckPLEG(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.breakPLEG()
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) > defaultStatusWait {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	})
	t.Run("status is new enough", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.advance(2 * time.Second)
			n.breakPLEG()
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) != 0 {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
	})
	t.Run("sync waits for a status", func(t *testing.T) {
		bubble(t, func(n *node) {
			pod := newPod("a")
			n.start(pod)
			n.breakPLEG()
			n.send(kubetypes.SyncPodUpdate, pod)
			n.advance(time.Minute)
			begin := time.Now()
			if err := n.kill(pod, true, nil); err != nil || time.Since(begin) > defaultStatusWait {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			n.expectCalls("sync a create", "terminate a 30")
		})
	})
}

// A termination sees what a sync that was cancelled has started: the status is newer than the end of the sync.
func TestTerminationGetsAStatusNewerThanTheLastSync(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.script.onSync = func(ctx context.Context, _ podsync.SyncRequest) (podsync.SyncResult, error) {
			err := untilCancelled(ctx)
			time.AfterFunc(time.Second, func() { n.cache.Set(pod.UID, running(pod), nil, time.Now()) })
			return podsync.SyncResult{}, err
		}
		seen := 0
		n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
			seen = len(request.Status.ContainerStatuses)
			return nil
		}
		n.breakPLEG()
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod)
		n.advance(2 * time.Second)
		n.expectCalls("sync a create", "terminate a 30")
		if seen != 1 {
			t.Error("the termination does not know the container")
		}
	})
}

func TestStopEndsAllWorkers(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		pod, other := newPod("a"), newPod("b")
		n.start(pod)
		n.start(other)
		killed := make(chan error)
		go func() { killed <- n.kill(pod, false, nil) }()
		n.advance(3 * time.Second)
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-killed; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		n.script.reset()
		n.create(newPod("c"))
		n.advance(time.Minute)
		n.expectCalls()
		if known := n.SyncKnownPods(nil); len(known) != 2 {
			t.Errorf("the pods are not known any more: %v", known)
		}
	})
}

func TestStopReturnsWhenItsContextEnds(t *testing.T) {
	bubble(t, func(n *node) {
		release := make(chan struct{})
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			<-release
			return podsync.SyncResult{}, nil
		}
		n.start(newPod("a"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(release)
	})
}

// The first answer says at once what the lifecycle made of a request, the second one how it ended.
func TestAnswersAndEndings(t *testing.T) {
	for name, test := range map[string]struct {
		before func(n *node, pod *v1.Pod) *v1.Pod
		answer podkill.Answer
		ending podkill.Outcome
	}{
		"a pod that runs": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return pod },
			answer: podkill.Begun, ending: podkill.Stopped,
		},
		"a pod that no worker has seen": {
			before: func(_ *node, pod *v1.Pod) *v1.Pod { return pod },
			answer: podkill.Begun, ending: podkill.Stopped,
		},
		"a pod that is being stopped, more slowly": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(20))})
				return pod
			},
			answer: podkill.Hastened, ending: podkill.Stopped,
		},
		"a pod that is being stopped, as fast": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(5))})
				return pod
			},
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"a pod whose deletion its worker has not seen, with more time": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return deleted(pod, 30) },
			answer: podkill.Hastened, ending: podkill.Stopped,
		},
		"a pod whose deletion its worker has not seen, with less time": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return deleted(pod, 2) },
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"a pod that an earlier run of the agent began to stop": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.cfg.Terminations.Save(earlierRecord(pod, terminations.Eviction, 3*time.Second))
				return pod
			},
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"a pod that has finished": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(1))})
				n.advance(5 * time.Second)
				n.expectPhase(pod, podlifecycle.Finished)
				return pod
			},
			answer: podkill.AlreadyStopped, ending: podkill.Stopped,
		},
		"a pod whose containers do not end": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
				n.start(pod)
				return pod
			},
			answer: podkill.Begun, ending: podkill.Overdue,
		},
		"the agent stops meanwhile": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error {
					n.stop()
					return untilCancelled(ctx)
				}
				return pod
			},
			answer: podkill.Begun, ending: podkill.Failed,
		},
		"the agent has stopped": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); n.stop(); return pod },
			answer: podkill.Refused, ending: podkill.Failed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(n *node) {
				n.script.onTerminate = terminateSlowly
				pod := test.before(n, newPod("a"))
				begin := time.Now()
				answer, ended := n.KillPod(context.Background(),
					podkill.Request{Pod: pod, Evict: true, GracePeriodSeconds: new(int64(5))})
				if answer != test.answer || !time.Now().Equal(begin) {
					t.Errorf("the first answer is %v after %v, want %v at once", answer, time.Since(begin), test.answer)
				}
				ending := <-ended
				if ending.Outcome != test.ending || (ending.Err == nil) != (test.ending == podkill.Stopped) {
					t.Errorf("the second answer is %v (%v), want %v", ending.Outcome, ending.Err, test.ending)
				}
			}, withTerminations(newTerminations()))
		})
	}
}

// A request whose context has ended is refused, and the pod runs on.
func TestRequestWithAnEndedContextIsRefused(t *testing.T) {
	bubble(t, func(n *node) {
		pod := newPod("a")
		n.start(pod)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		answer, ended := n.KillPod(ctx, podkill.Request{Pod: pod, Evict: true})
		if ending := <-ended; answer != podkill.Refused || ending.Outcome != podkill.Failed ||
			!errors.Is(ending.Err, context.Canceled) {
			t.Errorf("%v, %v (%v)", answer, ending.Outcome, ending.Err)
		}
		n.expectPhase(pod, podlifecycle.Syncing)
	})
}
