package kubelet

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

// A pod that waits for room has nothing on the node. If it were stopped with the others, a cancelled shutdown would
// start it without admission.
func TestShutdownLeavesPodsThatWaitForRoom(t *testing.T) {
	b := assembled(t, nil, nil)
	for _, name := range []types.UID{"runs", "waits"} {
		b.pods.manager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: name, Name: string(name), Namespace: "default"}})
	}
	waiting, _ := b.pods.manager.GetPodByUID("waits")
	b.pressure.room.Victims = alwaysMaking{}
	if !b.pressure.room.HoldForVictims(t.Context(), waiting, nil, "full") {
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

// alwaysMaking has room made for every pod.
type alwaysMaking struct{}

func (alwaysMaking) Making(types.UID) bool            { return true }
func (alwaysMaking) Begin(context.Context, types.UID) {}
func (alwaysMaking) Forget(types.UID)                 {}

// Which settings of the configuration count depends on the gates, as in stock; without any the node is not shut down in order.
func TestShutdownPeriods(t *testing.T) {
	legacy := func(c *kubeletconfig.KubeletConfiguration) {
		c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration = 30*time.Second, 10*time.Second
	}
	byPriority := func(c *kubeletconfig.KubeletConfiguration) {
		c.ShutdownGracePeriodByPodPriority = []kubeletconfig.ShutdownGracePeriodByPodPriority{{Priority: 7, ShutdownGracePeriodSeconds: 9}}
	}
	both := func(c *kubeletconfig.KubeletConfiguration) { legacy(c); byPriority(c) }
	old, own := plan.Legacy(30*time.Second, 10*time.Second), []plan.Period{{Priority: 7, Seconds: 9}}
	for _, tc := range []struct {
		name             string
		change           func(*kubeletconfig.KubeletConfiguration)
		graceful, byPods bool
		want             []plan.Period
	}{
		{"nothing", nil, true, true, nil},
		{"legacy", legacy, true, true, old},
		{"by priority", byPriority, true, true, own},
		{"by priority, without its gate", both, true, false, old},
		{"switched off", both, false, false, nil},
	} {
		set(t, features.GracefulNodeShutdownBasedOnPodPriority, tc.byPods)
		set(t, features.GracefulNodeShutdown, tc.graceful)
		if got := assembled(t, nil, tc.change).shutdownPeriods(); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
