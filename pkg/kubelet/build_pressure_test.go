package kubelet

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
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

// An agent starts under pressure, and its sync loop adds the pods of the API server one after the other. As long as
// only some are there, none is evicted: that would be one that does no harm. Sources of static pods do not matter.
func TestNoPodIsEvictedBeforeAllAreKnown(t *testing.T) {
	b := assembled(t, fake.NewClientset(), nil)
	b.pods.manager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "first", Name: "first", Namespace: "default"}})
	pods := b.evictionPods()
	for source, want := range map[string]int{kubetypes.FileSource: 0, kubetypes.ApiserverSource: 1} {
		b.sources.ready.api.Store(false)
		b.sources.ready.AddSource(source)
		_, found := pods.byUID("first")
		if got := len(pods.active()); got != want || found != (want > 0) {
			t.Errorf("%d pods may be evicted after those of the source %s were added, found %t; want %d", got, source, found,
				want)
		}
	}
}

// preemptionInProgress has an attempt for every pod.
type preemptionInProgress struct{}

func (preemptionInProgress) InProgress(types.UID) bool        { return true }
func (preemptionInProgress) Begin(context.Context, types.UID) {}
func (preemptionInProgress) Forget(types.UID)                 {}
