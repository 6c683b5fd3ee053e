package kubelet

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// A pod that waits for room has nothing on the node. If it were stopped with the others, a cancelled shutdown would
// start it without admission.
func TestShutdownLeavesPodsThatWaitForRoom(t *testing.T) {
	b := assembled(t, nil, nil)
	for _, name := range []types.UID{"runs", "waits"} {
		b.pods.manager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: name, Name: string(name), Namespace: "default"}})
	}
	waiting, _ := b.pods.manager.GetPodByUID("waits")
	b.pressure.waiting.Victims = preemptionInProgress{}
	if !b.pressure.waiting.WaitForVictims(t.Context(), waiting, nil, "full") {
		t.Fatal("it does not wait")
	}
	var stopped []types.UID
	for _, pod := range b.shutdownPods().Active() {
		stopped = append(stopped, pod.UID)
	}
	if !slices.Equal(stopped, []types.UID{"runs"}) {
		t.Errorf("a shutdown stops %v, want only the pod that runs", stopped)
	}
}

// An agent starts under pressure, and its sync loop adds the pods one after the other. As long as only some are there,
// none is evicted: that would be one that does no harm.
func TestNoPodIsEvictedBeforeAllAreKnown(t *testing.T) {
	b := assembled(t, nil, nil)
	ready := false
	b.sources.ready = config.NewSourcesReady(func(sets.Set[string]) bool { return ready })
	b.pods.manager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "first", Name: "first", Namespace: "default"}})
	if pods := b.evictionPods(); len(pods) > 0 {
		t.Errorf("%d pods may be evicted before all are known", len(pods))
	}
	ready = true
	if pods := b.evictionPods(); len(pods) != 1 {
		t.Errorf("%d pods may be evicted when all are known, want one", len(pods))
	}
}

// preemptionInProgress has an attempt for every pod.
type preemptionInProgress struct{}

func (preemptionInProgress) InProgress(types.UID) bool        { return true }
func (preemptionInProgress) Begin(context.Context, types.UID) {}
func (preemptionInProgress) Forget(types.UID)                 {}
