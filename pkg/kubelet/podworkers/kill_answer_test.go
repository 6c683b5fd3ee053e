package podworkers

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// D22: a request to stop a pod that has stopped ends at once.
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
				return errors.New("volumes are mounted")
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

// The answer of KillPod is the effect of the request on the lifecycle, the ending is how the request ended.
func TestAnswersAndEndings(t *testing.T) {
	for name, test := range map[string]struct {
		before func(n *node, pod *v1.Pod) *v1.Pod
		answer podkill.Answer
		ending podkill.Outcome
	}{
		"running pod": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return pod },
			answer: podkill.Begun, ending: podkill.Stopped,
		},
		"pod without a worker": {
			before: func(_ *node, pod *v1.Pod) *v1.Pod { return pod },
			answer: podkill.Begun, ending: podkill.Stopped,
		},
		"terminating pod, longer grace period": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(20))})
				return pod
			},
			answer: podkill.Hastened, ending: podkill.Stopped,
		},
		"terminating pod, equal grace period": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(5))})
				return pod
			},
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"deleted pod, the worker has no update yet, longer grace period": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return deleted(pod, 30) },
			answer: podkill.Hastened, ending: podkill.Stopped,
		},
		"deleted pod, the worker has no update yet, shorter grace period": {
			before: func(n *node, pod *v1.Pod) *v1.Pod { n.start(pod); return deleted(pod, 2) },
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"termination of an earlier run of the agent": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.cfg.Terminations.Save(earlierRecord(pod, terminations.Eviction, 3*time.Second))
				return pod
			},
			answer: podkill.Unchanged, ending: podkill.Stopped,
		},
		"finished pod": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.start(pod)
				n.send(kubetypes.SyncPodKill, pod, &KillOptions{GracePeriod: new(int64(1))})
				n.advance(5 * time.Second)
				n.expectPhase(pod, podlifecycle.Finished)
				return pod
			},
			answer: podkill.AlreadyStopped, ending: podkill.Stopped,
		},
		"containers do not stop": {
			before: func(n *node, pod *v1.Pod) *v1.Pod {
				n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
				n.start(pod)
				return pod
			},
			answer: podkill.Begun, ending: podkill.Overdue,
		},
		"the agent stops during the termination": {
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
					t.Errorf("the answer is %v after %v, want %v at once", answer, time.Since(begin), test.answer)
				}
				ending := <-ended
				if ending.Outcome != test.ending || (ending.Err == nil) != (test.ending == podkill.Stopped) {
					t.Errorf("the ending is %v (%v), want %v", ending.Outcome, ending.Err, test.ending)
				}
			}, withTerminations(newTerminations()))
		})
	}
}

// A request whose context has ended is refused and does not affect the pod.
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
