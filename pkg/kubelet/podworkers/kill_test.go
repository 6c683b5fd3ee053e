package podworkers

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// stopOverhead is the time that a stop takes in addition to the grace period, so that a termination does not end at the
// same time as a relist of the PLEG.
const stopOverhead = 100 * time.Millisecond

// terminateSlowly stops a pod whose containers use all of the grace period.
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

// stopPod waits for the ending of a request.
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

// The escalation of a pod is exhausted after its last step, or when it should have ended and has not begun or
// continued.
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
		want("before the pod has a worker", false)
		n.start(pod)
		want("while it runs", false)
		finish := make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-finish; return nil }
		n.KillPod(context.Background(), podkill.Request{Pod: pod})
		n.advance(30*time.Second + escalation.DefaultLimits().Longest())
		want("at the latest end of the escalation", false)
		n.advance(time.Second)
		want("after it", true)
		overdue[pod.UID] = escalation.Overdue{Step: escalation.KillCgroup, Seen: time.Now()}
		want("during an escalation that has begun late", false)
		n.advance(30*time.Second + escalation.DefaultLimits().Longest())
		want("at the latest time of the last step, when the grace period has begun again", false)
		n.advance(time.Second)
		want("after it, while the termination continues", true)
		overdue[pod.UID] = escalation.Overdue{Step: escalation.Report}
		want("after the last step", true)
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
				close(finish) // the termination continues
				n.advance(2 * time.Second)
				n.expectPhase(pod, podlifecycle.Finished)
			})
		})
	}
}

// A request whose pod has stopped ends with Stopped, even if its time is over or its context has ended as well.
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
		for range 50 { // select chooses any of the ready cases
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

// The end of a grace period is known for every termination, and moves only to an earlier time.
func TestTerminationDeadline(t *testing.T) {
	bubble(t, func(n *node) {
		pod, goOn := newPod("a"), make(chan struct{})
		defer close(goOn)
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-goOn; return nil }
		expect := func(want time.Time) {
			t.Helper()
			if got := n.TerminationDeadline(pod.UID); !got.Equal(want) {
				t.Errorf("deadline %v, want %v", got, want)
			}
		}
		expect(time.Time{})
		n.start(pod)
		expect(time.Time{})
		began := time.Now()
		for _, grace := range []int64{30, 60, 5} {
			n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: &grace, Evict: true})
			expect(began.Add(time.Duration(min(grace, 30)) * time.Second))
		}
	})
}
