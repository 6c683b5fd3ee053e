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

// generated makes real statuses of what the world's runtime reports, and keeps those that are published.
type generated struct {
	*world
	exitCode  int
	published []v1.PodStatus
}

func (g *generated) Generate(
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

func (g *generated) SetPodStatus(logger klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	g.published = append(g.published, s)
	return g.world.SetPodStatus(logger, pod, s)
}

// ending is what a status says at the end of a pod.
type ending struct {
	Phase  v1.PodPhase
	Reason string
	Target bool
}

// How a pod ends that the agent stops: from the first status of its termination to the last one of its clean-up.
func TestEndOfADisruptedPod(t *testing.T) {
	disruption := func(reason string, keepSucceeded bool) *podkill.Disruption {
		return &podkill.Disruption{
			Phase: v1.PodFailed, Reason: reason, Message: "disrupted", KeepSucceeded: keepSucceeded,
			Conditions: []v1.PodCondition{podkill.DisruptionTarget(testPod(), "disrupted")},
		}
	}
	for name, test := range map[string]struct {
		disruption *podkill.Disruption
		exitCode   int
		want       ending
	}{
		"preempted, ended well":     {disruption("Preempting", true), 0, ending{v1.PodSucceeded, "", true}},
		"preempted, ended badly":    {disruption("Preempting", true), 143, ending{v1.PodFailed, "Preempting", true}},
		"preempted, an old record":  {disruption("Preempting", false), 0, ending{v1.PodSucceeded, "", true}},
		"shutdown, ended well":      {disruption("Terminated", true), 0, ending{v1.PodSucceeded, "", true}},
		"shutdown, ended badly":     {disruption("Terminated", true), 1, ending{v1.PodFailed, "Terminated", true}},
		"evicted, ended well":       {disruption("Evicted", false), 0, ending{v1.PodFailed, "Evicted", true}},
		"evicted, ended badly":      {disruption("Evicted", false), 137, ending{v1.PodFailed, "Evicted", true}},
		"another stop, ended well":  {nil, 0, ending{v1.PodSucceeded, "", false}},
		"another stop, ended badly": {nil, 1, ending{v1.PodFailed, "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			g := &generated{world: w, exitCode: test.exitCode}
			w.inRuntime = runtimeStatus(container("a", up))
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
				got := ending{published.Phase, published.Reason, target != nil}
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
