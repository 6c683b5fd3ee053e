package podworkers

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// newTerminations returns a store that does not access the disk.
func newTerminations() *terminations.Store { return terminations.New(terminations.Config{}) }

func withTerminations(store *terminations.Store) func(*Config) {
	return func(c *Config) { c.Terminations = store }
}

// evictionOptions are the options of an eviction.
func evictionOptions(grace int64) *KillOptions {
	return &KillOptions{Evict: true, GracePeriod: &grace, Disruption: &podkill.Disruption{
		Phase: v1.PodFailed, Reason: "Evicted", Message: "low on memory",
		Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
	}}
}

// earlierRecord returns the record of a termination of an earlier run of the agent, with the rest of its grace period.
func earlierRecord(pod *v1.Pod, cause terminations.Cause, left time.Duration) terminations.Record {
	return terminations.Record{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Cause: cause, Disruption: evictionOptions(0).Disruption,
		GracePeriodSeconds: 600, Requested: time.Now().Add(left - 600*time.Second), Deadline: time.Now().Add(left),
	}
}

// Terminations are recorded, or not, with the given options.
func TestRecordedTerminations(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  *v1.Pod
		do   func(n *node, pod *v1.Pod)
		want string
	}{
		{"eviction", newPod("p"), func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodKill, pod, evictionOptions(20)) },
			"eviction 20 0s+20s Evicted"},
		{"kill", newPod("p"), func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodKill, pod, &KillOptions{}) },
			"kill 30 0s+30s"},
		{"eviction before the first sync", newPod("new"),
			func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodKill, pod, evictionOptions(20)) },
			"eviction 20 0s+20s Evicted"},
		{"no grace", newPod("p"), func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodKill, pod, evictionOptions(0)) },
			"eviction 1 0s+1s Evicted"},
		{"gone from its source", newPod("p"), func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodKill, pod) }, ""},
		{"deleted", newPod("p"), func(n *node, pod *v1.Pod) { n.send(kubetypes.SyncPodUpdate, deleted(pod, 40)) }, ""},
		{"static", staticPod("s", "s1"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(20))
		}, ""},
		{"of the runtime only", newPod("other"), func(n *node, pod *v1.Pod) {
			n.UpdatePod(context.Background(), Update{UpdateType: kubetypes.SyncPodKill,
				RunningPod: &kubecontainer.Pod{ID: pod.UID}, Kill: evictionOptions(1)})
		}, ""},
		{"sooner", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(300))
			n.advance(10 * time.Second)
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(5))
		}, "eviction 5 0s+15s Evicted"},
		{"not later", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(5))
			n.advance(time.Second)
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(300))
		}, "eviction 5 0s+5s Evicted"},
		{"shorter on paper, later in time", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(20))
			n.advance(19 * time.Second)
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(10))
		}, "eviction 20 0s+20s Evicted"},
		{"deleted after eviction, sooner", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(300))
			n.send(kubetypes.SyncPodUpdate, deleted(pod, 3))
		}, "eviction 3 0s+3s Evicted"},
		{"hastened after deletion", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
			n.advance(time.Minute)
			n.send(kubetypes.SyncPodKill, deleted(pod, 3600), evictionOptions(1))
		}, "deletion 1 1m0s+1s"},
		{"not hastened after deletion", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodUpdate, deleted(pod, 10))
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(10))
		}, ""},
		{"amended by the second kill", newPod("p"), func(n *node, pod *v1.Pod) {
			n.send(kubetypes.SyncPodKill, pod, &KillOptions{})
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(30))
		}, "kill 30 0s+30s Evicted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newTerminations()
			bubble(t, func(n *node) {
				n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
				if c.pod.Name == "p" || c.pod.Name == "s" {
					n.start(c.pod)
				}
				began := time.Now()
				c.do(n, c.pod)
				if got := describeRecord(store, c.pod.UID, began); got != c.want {
					t.Errorf("recorded %q, want %q", got, c.want)
				}
			}, withTerminations(store))
		})
	}
}

// describeRecord returns a record as text: cause, grace period, when it was requested after the beginning, and how long
// after that the deadline is.
func describeRecord(store *terminations.Store, uid types.UID, began time.Time) string {
	r, ok := store.Get(uid)
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%s %d %v+%v", r.Cause, r.GracePeriodSeconds, r.Requested.Sub(began), r.Deadline.Sub(r.Requested))
	if r.Disruption != nil {
		text += " " + r.Disruption.Reason
	}
	return text
}

// A pod whose termination was begun before a restart is terminated with the same options, and never synced.
func TestTerminationIsResumed(t *testing.T) {
	pod := newPod("p")
	for _, c := range []struct {
		name  string
		cause terminations.Cause
		left  time.Duration
		first func(n *node)
		want  string
		state podlifecycle.Cause
	}{
		{"eviction", terminations.Eviction, 20 * time.Second, func(n *node) { n.create(pod) }, "terminate p 20",
			podlifecycle.CauseEviction},
		{"part of a second", terminations.Eviction, 20*time.Second - 1, func(n *node) { n.create(pod) }, "terminate p 20",
			podlifecycle.CauseEviction},
		{"over time", terminations.Eviction, -time.Hour, func(n *node) { n.create(pod) }, "terminate p 1",
			podlifecycle.CauseEviction},
		{"longer than the pod's own", terminations.Kill, 500 * time.Second, func(n *node) { n.create(pod) },
			"terminate p 500", podlifecycle.CauseKill},
		{"deleted since", terminations.Eviction, 20 * time.Second, func(n *node) { n.create(deleted(pod, 60)) },
			"terminate p 20", podlifecycle.CauseEviction},
		{"deleted since, sooner", terminations.Eviction, 20 * time.Second, func(n *node) { n.create(deleted(pod, 5)) },
			"terminate p 5", podlifecycle.CauseEviction},
		{"hastened deletion", terminations.Deletion, 2 * time.Second, func(n *node) { n.create(deleted(pod, 3600)) },
			"terminate p 2", podlifecycle.CauseDeletion},
		{"first seen by an update", terminations.Eviction, 20 * time.Second,
			func(n *node) { n.send(kubetypes.SyncPodUpdate, pod) }, "terminate p 20", podlifecycle.CauseEviction},
		{"evicted again at once", terminations.Kill, 20 * time.Second,
			func(n *node) { n.send(kubetypes.SyncPodKill, pod, evictionOptions(3)) }, "terminate p 3", podlifecycle.CauseKill},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newTerminations()
			bubble(t, func(n *node) {
				store.Save(earlierRecord(pod, c.cause, c.left))
				var status v1.PodStatus
				n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
					request.Disruption.Apply(&status)
					return nil
				}
				if !n.IsPodTerminationRequested(pod.UID) {
					t.Error("the pod would be admitted")
				}
				c.first(n)
				synctest.Wait()
				n.advance(2 * time.Second)
				n.syncLoop(pod)
				n.expectCalls(c.want, "clean up p")
				state := n.state(pod)
				if state.Phase != podlifecycle.Finished || state.Termination.Cause != c.state {
					t.Errorf("%v, cause %v", state.Phase, state.Termination.Cause)
				}
				if amended := c.cause != terminations.Deletion; amended != (status.Reason == "Evicted" &&
					len(status.Conditions) == 1) {
					t.Errorf("status %+v", status)
				}
			}, withTerminations(store))
		})
	}
}

// A second restart does not prolong the grace period.
func TestResumedTerminationKeepsItsDeadline(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		pod := newPod("p")
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		before := earlierRecord(pod, terminations.Eviction, 90*time.Second)
		store.Save(before)
		n.create(pod)
		n.advance(10 * time.Second)
		n.send(kubetypes.SyncPodUpdate, pod)
		if got, _ := store.Get(pod.UID); !got.Deadline.Equal(before.Deadline) || !got.Requested.Equal(before.Requested) ||
			got.Disruption == nil {
			t.Errorf("was %+v, is %+v", before, got)
		}
	}, withTerminations(store))
}

// A pod with a terminal phase at the API server is only cleaned up; its status is not reported again.
func TestTerminalPodIsOnlyCleanedUpAfterRestart(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		pod := completed(newPod("p"))
		store.Save(earlierRecord(pod, terminations.Eviction, time.Minute))
		n.create(pod)
		n.advance(2 * time.Second)
		n.expectCalls("clean up p")
		n.SyncKnownPods([]*v1.Pod{pod})
		if _, ok := store.Get(pod.UID); ok {
			t.Error("the record was not deleted")
		}
	}, withTerminations(store))
}

// Running containers of a pod with a terminal phase at the API server are stopped with the recorded options; the phase
// does not change.
func TestTerminalPodWithRunningContainersIsResumed(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		pod := completed(newPod("p"))
		n.cache.Set(pod.UID, running(pod), nil, time.Now())
		store.Save(earlierRecord(pod, terminations.Eviction, 7*time.Second))
		n.script.onTerminate = func(_ context.Context, request podsync.TerminateRequest) error {
			if request.Disruption != nil {
				t.Error("the final phase is amended")
			}
			n.SyncKnownPods([]*v1.Pod{pod})
			if _, ok := store.Get(pod.UID); !ok {
				t.Error("the record was deleted while containers run")
			}
			return nil
		}
		n.create(pod)
		synctest.Wait()
		n.expectCalls("terminate p 7")
	}, withTerminations(store))
}

// Another kubelet ran in the meantime and synced the pod: the record is stale.
func TestStaleTerminationIsNotResumed(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		pod := newPod("p")
		record := earlierRecord(pod, terminations.Eviction, -time.Hour)
		status := running(pod)
		status.ContainerStatuses[0].StartedAt = record.Requested.Add(startMargin + time.Second)
		n.cache.Set(pod.UID, status, nil, time.Now())
		store.Save(record)
		if n.IsPodTerminationRequested(pod.UID) {
			t.Error("the pod is not admitted")
		}
		n.start(pod)
		n.expectCalls("sync p create")
	}, withTerminations(store))
}

// Pods without a record, and static pods, are started.
func TestPodsWithoutARecordAreStarted(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		store.Save(earlierRecord(newPod("p"), terminations.Eviction, time.Minute))
		static := staticPod("s", "s1")
		store.Save(earlierRecord(static, terminations.Kill, time.Minute))
		n.start(newPod("q"))
		n.start(static)
		n.expectCalls("sync q create", "sync s create")
	}, withTerminations(store))
}

// A record is deleted when the phase at the API server is terminal or the pod is not there any more, and not before.
func TestRecordsAreDeleted(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		hold := make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-hold; return nil }
		shown, gone, unseen := newPod("shown"), newPod("gone"), newPod("unseen")
		for _, pod := range []*v1.Pod{shown, gone} {
			n.start(pod)
			n.send(kubetypes.SyncPodKill, pod, evictionOptions(20))
		}
		store.Save(earlierRecord(unseen, terminations.Eviction, time.Minute))
		has := func(want ...string) {
			t.Helper()
			var got []string
			store.DeleteFunc(func(r terminations.Record) bool { got = append(got, r.Name); return false })
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("records of %q, want %q", got, want)
			}
		}
		n.SyncKnownPods([]*v1.Pod{shown, gone, unseen})
		has("gone", "shown", "unseen")
		n.SyncKnownPods([]*v1.Pod{completed(shown), unseen})
		has("shown", "unseen")
		close(hold)
		n.advance(2 * time.Second)
		n.SyncKnownPods([]*v1.Pod{shown, unseen})
		has("shown", "unseen")
		n.SyncKnownPods([]*v1.Pod{completed(shown)})
		has()
	}, withTerminations(store))
}

// A pod that is created again with the UID of an evicted one is started.
func TestNewInstanceOfAnEvictedUIDIsStarted(t *testing.T) {
	store := newTerminations()
	bubble(t, func(n *node) {
		pod := newPod("p")
		n.start(pod)
		n.send(kubetypes.SyncPodKill, pod, evictionOptions(20))
		n.create(pod)
		n.advance(2 * time.Second)
		n.expectPhase(pod, podlifecycle.Finished)
		if known := n.SyncKnownPods([]*v1.Pod{pod}); len(known) != 0 {
			t.Fatalf("known %v", known)
		}
		n.script.reset()
		n.start(pod)
		n.expectCalls("sync p create")
	}, withTerminations(store))
}

// A request hastens a termination when it makes its grace period shorter, not when it repeats it.
func TestOnlyAShorterGracePeriodHastens(t *testing.T) {
	bubble(t, func(n *node) {
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		pod := newPod("p")
		n.start(pod)
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 3600))
		n.send(kubetypes.SyncPodUpdate, deleted(pod, 1800))
		var got []podkill.Answer
		for _, grace := range []int64{1800, 60, 60, 90, 1, 1} {
			answer, _ := n.KillPod(context.Background(),
				podkill.Request{Pod: deleted(pod, 1800), Evict: true, GracePeriodSeconds: &grace})
			got = append(got, answer)
			synctest.Wait()
		}
		want := []podkill.Answer{podkill.Unchanged, podkill.Hastened, podkill.Unchanged, podkill.Unchanged, podkill.Hastened,
			podkill.Unchanged}
		if !slices.Equal(got, want) {
			t.Errorf("answers %v, want %v", got, want)
		}
		if events := n.events.all(); len(events) != 0 {
			t.Errorf("events %q: the sender of the requests writes them", events)
		}
	})
}

// A stale record is deleted: it is not resumed when the pod's containers end by themselves, and does not prevent the
// record of a new termination.
func TestStaleRecordIsDeleted(t *testing.T) {
	pod, store := newPod("p"), newTerminations()
	bubble(t, func(n *node) {
		store.Save(earlierRecord(pod, terminations.Eviction, -time.Hour))
		again := running(pod)
		again.ContainerStatuses[0].StartedAt = time.Now().Add(-time.Minute)
		n.cache.Set(pod.UID, again, nil, time.Now())
		n.start(pod)
		n.expectPhase(pod, podlifecycle.Syncing)
		n.cache.Set(pod.UID, &kubecontainer.PodStatus{ID: pod.UID}, nil, time.Now())
		if n.IsPodTerminationRequested(pod.UID) {
			t.Error("the termination of a syncing pod counts as requested")
		}
		n.script.onTerminate = func(ctx context.Context, _ podsync.TerminateRequest) error { return untilCancelled(ctx) }
		began := time.Now()
		n.send(kubetypes.SyncPodKill, pod, evictionOptions(20))
		if got, want := describeRecord(store, pod.UID, began), "eviction 20 0s+20s Evicted"; got != want {
			t.Errorf("recorded %q, want %q", got, want)
		}
	}, withTerminations(store))
}

// DeleteStaleTerminations uses the runtime's list, because the status cache may be empty when the first updates arrive.
func TestStaleRecordsWithAnEmptyStatusCache(t *testing.T) {
	overtaken, stopping := newPod("overtaken"), newPod("stopping")
	store := newTerminations()
	bubble(t, func(n *node) {
		var running []*kubecontainer.Pod
		for _, pod := range []*v1.Pod{overtaken, stopping} {
			record := earlierRecord(pod, terminations.Eviction, -time.Hour)
			store.Save(record)
			made := record.Requested.Add(startMargin + time.Second)
			if pod == stopping {
				made = record.Requested.Add(-time.Second)
			}
			running = append(running, &kubecontainer.Pod{ID: pod.UID, Containers: []*kubecontainer.Container{
				{State: kubecontainer.ContainerStateRunning, CreatedAt: made.UnixNano()},
			}})
		}
		n.DeleteStaleTerminations(running)
		n.start(overtaken)
		n.start(stopping)
		n.expectPhase(overtaken, podlifecycle.Syncing)
		if got := n.state(stopping).Termination.Cause; got != podlifecycle.CauseEviction {
			t.Errorf("the other pod is terminating for %v", got)
		}
	}, withTerminations(store))
}
