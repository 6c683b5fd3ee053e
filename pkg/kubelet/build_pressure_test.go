package kubelet

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// preemptionInProgress has an attempt for every pod.
type preemptionInProgress struct{}

func (preemptionInProgress) InProgress(types.UID) bool        { return true }
func (preemptionInProgress) Begin(context.Context, types.UID) {}
func (preemptionInProgress) Forget(types.UID)                 {}
