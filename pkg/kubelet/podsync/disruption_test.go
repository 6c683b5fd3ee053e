package podsync

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// realGenerator generates real statuses from the state of the world's runtime, and records those that are published.
type realGenerator struct {
	*world
	exitCode  int
	published []v1.PodStatus
}

func (g *realGenerator) Generate(
	_ context.Context, pod *v1.Pod, reported *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus {
	for _, c := range reported.ContainerStatuses {
		c.ExitCode = g.exitCode
	}
	in := podstatus.Input{Pod: pod, Runtime: reported, Previous: pod.Status, Terminal: terminal}
	if len(g.published) > 0 {
		in.Previous = g.published[len(g.published)-1]
	}
	status, _ := podstatus.Generate(in)
	return status
}

func (g *realGenerator) SetPodStatus(logger klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	g.published = append(g.published, s)
	return g.world.SetPodStatus(logger, pod, s)
}

// finalStatus is the part of the last status that the test compares.
type finalStatus struct {
	Phase  v1.PodPhase
	Reason string
	Target bool
}

// The statuses of a pod that the agent stops, from the first one of the termination to the last one of the clean-up.
func TestFinalStatusOfADisruptedPod(t *testing.T) {
	disruption := func(reason string, keepSucceeded bool) *podkill.Disruption {
		return &podkill.Disruption{
			Phase: v1.PodFailed, Reason: reason, Message: "disrupted", KeepSucceeded: keepSucceeded,
			Conditions: []v1.PodCondition{podkill.DisruptionTarget(testPod(), "disrupted")},
		}
	}
	for name, test := range map[string]struct {
		disruption *podkill.Disruption
		exitCode   int
		want       finalStatus
	}{
		"preempted, exit code 0": {disruption("Preempting", true), 0, finalStatus{v1.PodSucceeded, "", true}},
		"preempted, exit code 143": {
			disruption("Preempting", true), 143, finalStatus{v1.PodFailed, "Preempting", true},
		},
		"preempted, record without the flag": {disruption("Preempting", false), 0, finalStatus{v1.PodSucceeded, "", true}},
		"shutdown, exit code 0":              {disruption("Terminated", true), 0, finalStatus{v1.PodSucceeded, "", true}},
		"shutdown, exit code 1": {
			disruption("Terminated", true), 1, finalStatus{v1.PodFailed, "Terminated", true},
		},
		"evicted, exit code 0":       {disruption("Evicted", false), 0, finalStatus{v1.PodFailed, "Evicted", true}},
		"evicted, exit code 137":     {disruption("Evicted", false), 137, finalStatus{v1.PodFailed, "Evicted", true}},
		"no disruption, exit code 0": {nil, 0, finalStatus{v1.PodSucceeded, "", false}},
		"no disruption, exit code 1": {nil, 1, finalStatus{v1.PodFailed, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := &realGenerator{world: w, exitCode: test.exitCode}
			w.inRuntime = runtimeStatus(container("a", stateRunning))
			pod := testPod()
			pod.Spec.Containers = []v1.Container{{Name: "a"}}
			pod.Status.Phase = v1.PodRunning
			c := w.config()
			c.Generator, c.Statuses = g, g
			s := New(c)
			request := TerminateRequest{Pod: pod, Status: w.inRuntime, Disruption: test.disruption}
			if err := s.Terminate(context.Background(), request); err != nil {
				t.Fatal(err)
			}
			w.volumesLeft = 0
			if err := s.CleanUp(context.Background(), pod, w.inRuntime); err != nil {
				t.Fatal(err)
			}
			for i, published := range g.published[1:] {
				_, target := podutil.GetPodCondition(&published, v1.DisruptionTarget)
				got := finalStatus{published.Phase, published.Reason, target != nil}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("status %d (-want +got):\n%s", i+1, diff)
				}
			}
			if len(g.published) != 3 {
				t.Errorf("%d statuses are published, want 3", len(g.published))
			}
		})
	}
}
