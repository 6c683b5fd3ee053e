package syncloop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// world is the environment of the handlers: the real pod manager, workers that record updates, and a gate that refuses
// the pods of a list.
type world struct {
	*Handlers
	updates  list[string]
	refused  []types.UID
	stopping []types.UID
	removed  []types.UID
	admitted []string
	waiting  []types.UID
	statuses map[types.UID]v1.PodPhase
}

func (w *world) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	phase, known := w.statuses[uid]
	return v1.PodStatus{Phase: phase}, known
}

func (w *world) RemoveOrphanedStatuses(_ klog.Logger, keep map[types.UID]bool) {
	maps.DeleteFunc(w.statuses, func(uid types.UID, _ v1.PodPhase) bool { return !keep[uid] })
}

func (w *world) IsWaiting(uid types.UID) bool { return slices.Contains(w.waiting, uid) }
func (w *world) UIDs() []types.UID            { return slices.Clone(w.waiting) }
func (w *world) Release(uid types.UID) {
	w.waiting = slices.DeleteFunc(w.waiting, func(u types.UID) bool { return u == uid })
}

func (w *world) UpdatePod(_ context.Context, u podworkers.Update) {
	line := fmt.Sprintf("%v %s", u.UpdateType, u.Pod.UID)
	if u.MirrorPod != nil {
		line += " mirror " + string(u.MirrorPod.UID)
	}
	w.updates.add(line)
}

func (w *world) Retry(uid types.UID) { w.updates.add("retry " + string(uid)) }

func (w *world) IsPodTerminationRequested(uid types.UID) bool {
	return slices.Contains(w.stopping, uid)
}

func (w *world) Admit(_ context.Context, pod *v1.Pod) bool {
	w.admitted = append(w.admitted, fmt.Sprintf("%s with %d pods", pod.UID, len(w.Pods.GetPods())))
	return !slices.Contains(w.refused, pod.UID)
}

// take returns and removes the updates so far.
func (w *world) take() []string { return w.updates.take() }

func newWorld(sourcesReady bool) *world {
	w := &world{}
	pods := kubepod.NewBasicPodManager()
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return sourcesReady })
	w.Handlers = NewHandlers(HandlersConfig{
		Pods: pods, Workers: w, Lifecycle: w, Gate: w, Waiting: w, SourcesReady: ready,
		Certificates: &podcertificate.NoOpManager{}, Statuses: w,
		Resizes:              &Resizes{Allocations: noResizes{}},
		RemoveDeadContainers: func(_ context.Context, uid types.UID) { w.removed = append(w.removed, uid) },
	})
	return w
}

func aPod(uid string, age time.Duration) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(uid), Name: uid, Namespace: "default", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.ApiserverSource},
	}}
}

func aStaticPod(uid string) *v1.Pod {
	pod := aPod(uid, 0)
	pod.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
	return pod
}

func mirrorOf(static *v1.Pod) *v1.Pod {
	pod := static.DeepCopy()
	pod.UID = "mirror-of-" + static.UID
	pod.Annotations[kubetypes.ConfigMirrorAnnotationKey] = "x"
	pod.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.ApiserverSource
	return pod
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestAddAdmitsTheOldestFirst(t *testing.T) {
	w := newWorld(true)
	w.refused = []types.UID{"old"}
	w.Add(t.Context(), []*v1.Pod{aPod("young", time.Minute), aPod("old", time.Hour)})
	expect(t, "admission", w.admitted, []string{"old with 1 pods", "young with 2 pods"})
	expect(t, "updates", w.take(), []string{"create young"})
}

func TestAddDoesNotAdmitTerminatingAndEndedPods(t *testing.T) {
	w := newWorld(true)
	w.stopping = []types.UID{"stopping"}
	ended := aPod("ended", 0)
	ended.Status.Phase = v1.PodSucceeded
	w.Add(t.Context(), []*v1.Pod{aPod("stopping", time.Hour), ended})
	expect(t, "admission", w.admitted, nil)
	expect(t, "updates", w.take(), []string{"create stopping", "create ended"})
}

func TestWaitingPodHasNoWorkerUntilItIsAdmitted(t *testing.T) {
	w := newWorld(true)
	w.refused, w.waiting = []types.UID{"a"}, []types.UID{"a"}
	a := aPod("a", 0)
	a.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x"}}
	a.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	w.Add(t.Context(), []*v1.Pod{a})
	w.Update(t.Context(), []*v1.Pod{a})
	w.Reconcile(t.Context(), []*v1.Pod{a})
	w.Sync(t.Context(), a)
	w.RetryWaiting(t.Context())
	expect(t, "updates while it waits", w.take(), nil)
	expect(t, "admission", w.admitted, []string{"a with 1 pods", "a with 1 pods"})
	w.refused, w.waiting = nil, nil
	w.Sync(t.Context(), a)
	expect(t, "updates after admission", w.take(), []string{"sync a"})
}

func TestRetryWaiting(t *testing.T) {
	w := newWorld(true)
	w.refused = []types.UID{"a", "b", "stopping"}
	w.Add(t.Context(), []*v1.Pod{aPod("b", time.Hour), aPod("a", 0), aPod("stopping", 0)})
	w.waiting, w.stopping, w.admitted = []types.UID{"a", "b", "stopping", "gone"}, []types.UID{"stopping"}, nil
	w.RetryWaiting(t.Context())
	expect(t, "admission, in the order of arrival", w.admitted, []string{"a with 3 pods", "b with 3 pods"})
	if !slices.Equal(w.waiting, []types.UID{"a", "b"}) {
		t.Errorf("%v wait", w.waiting)
	}
}

func TestDeletedWaitingPodIsReleased(t *testing.T) {
	w := newWorld(true)
	w.refused, w.waiting = []types.UID{"deleted", "removed"}, []types.UID{"deleted", "removed"}
	w.Add(t.Context(), []*v1.Pod{aPod("deleted", time.Hour), aPod("removed", 0)})
	deleted := aPod("deleted", time.Hour)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	w.Update(t.Context(), []*v1.Pod{deleted})
	w.Remove(t.Context(), []*v1.Pod{aPod("removed", 0)})
	expect(t, "updates", w.take(), []string{"update deleted", "kill removed"})
	if len(w.waiting) != 0 {
		t.Errorf("%v still wait", w.waiting)
	}
}

func TestMirrorPodsOnlyUpdateTheirStaticPod(t *testing.T) {
	w, static := newWorld(true), aStaticPod("static")
	mirror := mirrorOf(static)
	w.Add(t.Context(), []*v1.Pod{mirror})
	expect(t, "mirror without static pod", w.take(), nil)
	w.Add(t.Context(), []*v1.Pod{static})
	w.Update(t.Context(), []*v1.Pod{mirror})
	w.Sync(t.Context(), mirror)
	w.Remove(t.Context(), []*v1.Pod{mirror})
	expect(t, "updates", w.take(), []string{
		"create static mirror mirror-of-static", "update static mirror mirror-of-static", "update static",
	})
	expect(t, "admission", w.admitted, []string{"static with 1 pods"})
}

func TestRemoveStopsOnlyOnceAllSourcesAreReady(t *testing.T) {
	for ready, want := range map[bool][]string{true: {"kill a"}, false: nil} {
		w := newWorld(ready)
		w.Add(t.Context(), []*v1.Pod{aPod("a", 0)})
		w.take()
		w.Remove(t.Context(), []*v1.Pod{aPod("a", 0)})
		expect(t, fmt.Sprintf("sources ready: %v", ready), w.take(), want)
	}
}

// A removed static pod is stopped before all sources are ready: one of them may be the API server, which may be the pod
// that replaces it.
func TestRemovedStaticPodDoesNotWaitForOtherSources(t *testing.T) {
	static := aPod("static", 0)
	static.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
	w := newWorld(false)
	w.Add(t.Context(), []*v1.Pod{static})
	w.take()
	w.Remove(t.Context(), []*v1.Pod{static})
	expect(t, "updates", w.take(), []string{"kill static"})
}

// The terminal status of a static pod is removed with its manifest, so that a new pod with the UID does not get it. The
// status of a terminating pod is kept.
func TestTerminalStatusOfAStaticPodIsRemovedWithItsManifest(t *testing.T) {
	for phase, want := range map[v1.PodPhase][]types.UID{
		v1.PodFailed:    {"api", "mirror-of-other", "other"},
		v1.PodSucceeded: {"api", "mirror-of-other", "other"},
		v1.PodRunning:   {"api", "mirror-of-other", "other", "static"},
	} {
		w, other := newWorld(false), aStaticPod("other")
		pods := []*v1.Pod{aStaticPod("static"), other, mirrorOf(other), aPod("api", 0)}
		w.Add(t.Context(), pods)
		w.statuses = map[types.UID]v1.PodPhase{"static": phase}
		for _, pod := range pods[1:] {
			w.statuses[pod.UID] = v1.PodFailed
		}
		w.Remove(t.Context(), pods[:1])
		if left := slices.Sorted(maps.Keys(w.statuses)); !slices.Equal(left, want) {
			t.Errorf("%s: statuses of %v, want of %v", phase, left, want)
		}
	}
}

// A rejected static pod gets no worker by an update of its mirror pod or an event of the runtime. One that has ended
// has a worker.
func TestRejectedStaticPodGetsNoWorker(t *testing.T) {
	w, rejected, ended := newWorld(true), aStaticPod("rejected"), aStaticPod("ended")
	w.refused = []types.UID{"rejected"}
	w.Add(t.Context(), []*v1.Pod{rejected, ended})
	w.statuses = map[types.UID]v1.PodPhase{"rejected": v1.PodFailed, "ended": v1.PodFailed}
	w.stopping = []types.UID{"ended"}
	w.take()
	for _, pod := range []*v1.Pod{rejected, ended} {
		w.Add(t.Context(), []*v1.Pod{mirrorOf(pod)})
		w.SyncByUID(t.Context(), pod.UID)
		w.Remove(t.Context(), []*v1.Pod{mirrorOf(pod)})
	}
	expect(t, "updates", w.take(), []string{
		"update ended mirror mirror-of-ended", "sync ended mirror mirror-of-ended", "update ended",
	})
}

func TestReconcile(t *testing.T) {
	w := newWorld(true)
	gated := aPod("gated", 0)
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x"}}
	gated.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	victim := aPod("victim", 0)
	victim.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}
	stopping := aPod("stopping", 0)
	stopping.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", ContainerStatuses: []v1.ContainerStatus{
		{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
		{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
	w.Add(t.Context(), []*v1.Pod{aPod("plain", 0), aPod("gated", 0), aPod("victim", 0), aPod("stopping", 0)})
	w.take()
	w.Reconcile(t.Context(), []*v1.Pod{aPod("plain", 0), gated, victim, stopping})
	expect(t, "updates", w.take(), []string{"sync gated"})
	if !slices.Equal(w.removed, []types.UID{"victim"}) {
		t.Errorf("dead containers removed of %v", w.removed)
	}
}

func TestSyncByUID(t *testing.T) {
	w := newWorld(true)
	w.Add(t.Context(), []*v1.Pod{aPod("a", 0)})
	w.take()
	if !w.SyncByUID(t.Context(), "a") || w.SyncByUID(t.Context(), "b") {
		t.Error("SyncByUID is not true exactly for the pod of a source")
	}
	expect(t, "updates", w.take(), []string{"sync a"})
}

func TestChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		old, now string
		want     string
	}{
		"same":     {"1Gi", "1024Mi", ""},
		"more":     {"1Gi", "2Gi", "increase"},
		"less":     {"1Gi", "1Mi", "decrease"},
		"new":      {"0", "1", "add"},
		"not more": {"1", "0", "remove"},
	} {
		if got := compare(quantity(tc.old), quantity(tc.now)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestPodThatEndsWhileItWaitsIsReleased(t *testing.T) {
	w := newWorld(true)
	w.refused, w.waiting = []types.UID{"a"}, []types.UID{"a"}
	pod := aPod("a", 0)
	w.Pods.AddPod(pod)
	failed := pod.DeepCopy()
	failed.Status.Phase = v1.PodFailed
	w.Reconcile(t.Context(), []*v1.Pod{failed})
	w.RetryWaiting(t.Context())
	if w.IsWaiting("a") {
		t.Error("the pod still waits")
	}
	expect(t, "admission", w.admitted, nil)
	expect(t, "updates", w.take(), []string{"create a"})
}

// Pods that were stopped for a cancelled shutdown start again without admission, unless their source has removed them.
func TestRestartStartsPodsThatASourceHas(t *testing.T) {
	w := newWorld(true)
	static := aStaticPod("static")
	for _, pod := range []*v1.Pod{aPod("wanted", 0), static, mirrorOf(static)} {
		w.Pods.AddPod(pod)
	}
	w.stopping = []types.UID{"static", "removed", "wanted"}
	w.Restart(t.Context(), []*v1.Pod{static, aPod("removed", 0), aPod("wanted", 0)})
	expect(t, "updates", w.take(), []string{"create static mirror mirror-of-static", "create wanted"})
	expect(t, "admission", w.admitted, nil)
}

// A static pod that was stopped for a shutdown may have been moved away and back, and then be rejected or wait for
// admission. A cancelled shutdown restarts only pods that were stopped.
func TestRestartStartsOnlyStoppedPods(t *testing.T) {
	w := newWorld(true)
	rejected, waits := aStaticPod("rejected"), aStaticPod("waits")
	w.refused, w.waiting = []types.UID{"rejected", "waits"}, []types.UID{"waits"}
	w.Add(t.Context(), []*v1.Pod{rejected, waits})
	w.Restart(t.Context(), []*v1.Pod{rejected, waits})
	expect(t, "updates", w.take(), nil)
}
