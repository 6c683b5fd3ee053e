package preemption

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// A victim whose containers all end well is Succeeded, as upstream's specs of critical pods demand; a container that
// does not makes it Failed. Both keep the condition.
func TestVictimThatExitsWithZeroIsSucceeded(t *testing.T) {
	victim := newPod("victim", 0, "100m")
	victim.Status.Phase = v1.PodRunning
	var request podkill.Request
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: []*v1.Pod{victim}}
		kill := func(_ context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
			request = r
			return podkill.Begun, podkill.Ended(podkill.Ending{Outcome: podkill.Stopped})
		}
		h := newHandler(n, kill, record.NewFakeRecorder(10))
		critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
		if _, err := failAdmission(t, h, n, critical, missingCPU(100)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
	for code, want := range map[int]v1.PodPhase{0: v1.PodSucceeded, 143: v1.PodFailed} {
		terminating := victim.Status
		request.Disruption.Apply(&terminating)
		if terminating.Phase != v1.PodFailed || terminating.Reason != "Preempting" {
			t.Errorf("while its containers are being stopped it is %s for reason %q", terminating.Phase, terminating.Reason)
		}
		runtime := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{
			{Name: "c", State: kubecontainer.ContainerStateExited, ExitCode: code},
		}}
		got, _ := podstatus.Generate(podstatus.Input{Pod: victim, Runtime: runtime, Previous: terminating, Terminal: true})
		if _, target := podutil.GetPodCondition(&got, v1.DisruptionTarget); got.Phase != want || target == nil {
			t.Errorf("exit code %d: %s, conditions %v", code, got.Phase, got.Conditions)
		}
	}
}
