package syncloop

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// world is everything around the handlers: real pod manager, recorded workers, a gate with a list of whom it refuses.
type world struct {
	*Handlers
	updates  list[string]
	refused  []types.UID
	stopping []types.UID
	removed  []types.UID
	admitted []string
}

func (w *world) UpdatePod(_ context.Context, u podworkers.Update) {
	line := fmt.Sprintf("%v %s", u.UpdateType, u.Pod.UID)
	if u.MirrorPod != nil {
		line += " mirror " + string(u.MirrorPod.UID)
	}
	w.updates.add(line)
}

func (w *world) IsPodTerminationRequested(uid types.UID) bool {
	return slices.Contains(w.stopping, uid)
}

func (w *world) Admit(_ context.Context, active []*v1.Pod, pod *v1.Pod) bool {
	w.admitted = append(w.admitted, fmt.Sprintf("%s beside %d", pod.UID, len(active)))
	return !slices.Contains(w.refused, pod.UID)
}

// take returns and forgets the updates so far.
func (w *world) take() []string { return w.updates.take() }

func newWorld(sourcesReady bool) *world {
	w := &world{}
	pods := kubepod.NewBasicPodManager()
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return sourcesReady })
	w.Handlers = NewHandlers(HandlersConfig{
		Pods: pods, Workers: w, Lifecycle: w, Gate: w, SourcesReady: ready, Certificates: &podcertificate.NoOpManager{},
		Active:               func() []*v1.Pod { return pods.GetPods() },
		Resizes:              &Resizes{Allocations: forgetful{}},
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

func TestAddAdmitsTheOldestFirstAndStartsWhoIsAdmitted(t *testing.T) {
	w := newWorld(true)
	w.refused = []types.UID{"old"}
	w.Add(t.Context(), []*v1.Pod{aPod("young", time.Minute), aPod("old", time.Hour)})
	expect(t, "admission", w.admitted, []string{"old beside 1", "young beside 2"})
	expect(t, "updates", w.take(), []string{"create young"})
}

func TestAddDoesNotAdmitAgainWhatStopsOrHasEnded(t *testing.T) {
	w := newWorld(true)
	w.stopping = []types.UID{"stopping"}
	ended := aPod("ended", 0)
	ended.Status.Phase = v1.PodSucceeded
	w.Add(t.Context(), []*v1.Pod{aPod("stopping", time.Hour), ended})
	expect(t, "admission", w.admitted, nil)
	expect(t, "updates", w.take(), []string{"create stopping", "create ended"})
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
	expect(t, "admission", w.admitted, []string{"static beside 1"})
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

func TestReconcile(t *testing.T) {
	w := newWorld(true)
	gated := aPod("gated", 0)
	gated.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "x"}}
	gated.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	victim := aPod("victim", 0)
	victim.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"}
	w.Add(t.Context(), []*v1.Pod{aPod("plain", 0), aPod("gated", 0), aPod("victim", 0)})
	w.take()
	w.Reconcile(t.Context(), []*v1.Pod{aPod("plain", 0), gated, victim})
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
		t.Error("known and unknown pods are mixed up")
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
