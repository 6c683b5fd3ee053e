package generator_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

// TestImageOfNewestContainer shows an intended difference from stock: a container was restarted after the image that it
// mounts as a volume had changed. Stock reports the image of the container before, and modifies the previous status,
// which the status manager shares with all its readers.
func TestImageOfNewestContainer(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ImageVolumeWithDigest, true)
	record := func(n int, state kubecontainer.State, image string) *kubecontainer.Status {
		return &kubecontainer.Status{
			Name: "a", State: state, RestartCount: n, CreatedAt: metav1.Unix(int64(n), 0).Time,
			Mounts: []kubecontainer.Mount{{Name: "image", Image: &runtimeapi.ImageSpec{Image: image}}},
		}
	}
	s := scenario{
		pod: &v1.Pod{Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "a"}},
			Volumes:    []v1.Volume{{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}}},
		}},
		runtime: &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{
			record(1, kubecontainer.ContainerStateRunning, "new"), record(0, kubecontainer.ContainerStateExited, "old"),
		}},
		previous: &v1.PodStatus{
			ContainerStatuses: []v1.ContainerStatus{{Name: "a", VolumeMounts: []v1.VolumeMountStatus{{Name: "image"}}}},
		},
	}
	for _, side := range []struct {
		name     string
		generate func(scenario) v1.PodStatus
		image    string
		writes   bool
	}{
		{"stock", func(s scenario) v1.PodStatus { return stock(t, s) }, "old@sha256:0123", true},
		{"ours", ours, "new@sha256:0123", false},
	} {
		c := s.copy()
		got := side.generate(c).ContainerStatuses[0].VolumeMounts[0].VolumeStatus.Image.ImageRef
		if got != side.image {
			t.Errorf("%s reports %q, want %q", side.name, got, side.image)
		}
		if wrote := !equality.Semantic.DeepEqual(c.previous, s.previous); wrote != side.writes {
			t.Errorf("%s writes into the previous status: %t", side.name, wrote)
		}
	}
}

// TestInitRemovedInPlace shows an intended difference from stock: all containers are restarted in place, the init
// container has been removed already, and the container that triggered the restart still exists, since it is removed
// last. Stock regards the init container as completed and counts one more restart with each status.
func TestInitRemovedInPlace(t *testing.T) {
	trigger := v1.Container{Name: "a", RestartPolicyRules: []v1.ContainerRestartRule{{
		Action:    v1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}}
	for _, side := range []struct {
		name     string
		generate func(scenario) v1.PodStatus
		counts   []int32
		waiting  bool
	}{
		{"stock", func(s scenario) v1.PodStatus { return stock(t, s) }, []int32{1, 2, 3}, false},
		{"ours", ours, []int32{1, 1, 1}, true},
	} {
		s := scenario{
			pod: &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{trigger}}},
			runtime: &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{
				{Name: "a", State: kubecontainer.ContainerStateExited, ExitCode: 42},
			}},
			previous: &v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{
				{Name: "init", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}},
			}},
		}
		for i, want := range side.counts {
			status := side.generate(s.copy())
			s.previous = &status
			init := status.InitContainerStatuses[0]
			if init.RestartCount != want || (init.State.Waiting != nil) != side.waiting {
				t.Errorf("%s, status %d: %d restarts, state %v; want %d, waiting %t", side.name, i, init.RestartCount, init.State,
					want, side.waiting)
			}
		}
	}
}

// TestEvictedPodThatExitsWithZeroIsFailed shows an intended difference from stock, which reports such a pod as
// Succeeded.
func TestEvictedPodThatExitsWithZeroIsFailed(t *testing.T) {
	s := scenario{
		pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "a"}}}},
		runtime: &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{
			{Name: "a", State: kubecontainer.ContainerStateExited, ID: kubecontainer.ContainerID{Type: "x", ID: "y"}},
		}},
		previous: &v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."},
		terminal: true,
	}
	if got := stock(t, s.copy()); got.Phase != v1.PodSucceeded {
		t.Errorf("stock reports %s, which is no difference any more", got.Phase)
	}
	if got := ours(s.copy()); got.Phase != v1.PodFailed || got.Reason != "Evicted" || got.Message != s.previous.Message {
		t.Errorf("ours: %s, %q, %q", got.Phase, got.Reason, got.Message)
	}
}

// TestDisruptedPodThatExitsWithZeroIsSucceeded: as with stock, a pod that is stopped by node shutdown or preemption is
// Succeeded if its container exits with code 0, and is Failed with the reason of the disruption otherwise. The
// condition DisruptionTarget stays.
func TestDisruptedPodThatExitsWithZeroIsSucceeded(t *testing.T) {
	for _, reason := range []string{"Terminated", events.PreemptContainer} {
		for code, want := range map[int]v1.PodStatus{
			0: {Phase: v1.PodSucceeded}, 137: {Phase: v1.PodFailed, Reason: reason, Message: "disrupted"},
		} {
			s := scenario{
				pod: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "a"}}}},
				runtime: &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{{
					Name: "a", State: kubecontainer.ContainerStateExited, ExitCode: code,
					ID: kubecontainer.ContainerID{Type: "x", ID: "y"},
				}}},
				previous: &v1.PodStatus{
					Phase: v1.PodFailed, Reason: reason, Message: "disrupted",
					Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
				},
				terminal: true,
			}
			for name, got := range map[string]v1.PodStatus{"stock": stock(t, s.copy()), "ours": ours(s.copy())} {
				_, target := podutil.GetPodCondition(&got, v1.DisruptionTarget)
				if got.Phase != want.Phase || got.Reason != want.Reason || got.Message != want.Message || target == nil {
					t.Errorf("%s, exit code %d, %s: %s, %q, %q, condition %v", reason, code, name, got.Phase, got.Reason, got.Message,
						target)
				}
			}
		}
	}
}
