package generator_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"pgregory.net/rapid"
)

// gateSets are combinations of the feature gates that change a pod status.
var gateSets = map[string]map[featuregate.Feature]bool{
	"defaults": {},
	"all on": {
		features.ContainerStopSignals:                  true,
		features.ImageVolumeWithDigest:                 true,
		features.ChangeContainerStatusOnKubeletRestart: true,
	},
	"all off": {
		features.ContainerRestartRules:                   false,
		features.RestartAllContainersOnContainerExits:    false,
		features.InPlacePodLevelResourcesVerticalScaling: false,
		features.PodLevelResources:                       false,
		features.PodReadyToStartContainersCondition:      false,
		features.ResourceHealthStatus:                    false,
	},
	"no restart of all containers": {features.RestartAllContainersOnContainerExits: false},
	"no pod level resources": {
		features.InPlacePodLevelResourcesVerticalScaling: false,
		features.PodLevelResources:                       false,
	},
}

// TestSameAsStock compares each status with the one that the stock kubelet generates from the same input.
func TestSameAsStock(t *testing.T) {
	for name, gates := range gateSets {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, gates)
			rapid.Check(t, func(rt *rapid.T) {
				s := drawer{rt}.scenario()
				s.dropRemovedInitContainers()
				want := stock(t, s.copy())
				got := ours(s.copy())
				if s.failedByAgent() {
					// An intended difference, see TestEvictedPodThatExitsWithZeroIsFailed. The phase at the API server has priority.
					if s.pod.Status.Phase != v1.PodSucceeded && (got.Phase != v1.PodFailed || got.Reason == "") {
						rt.Fatalf("the agent failed the pod, and its status is %s for reason %q", got.Phase, got.Reason)
					}
					return
				}
				if !equality.Semantic.DeepEqual(want, got) {
					rt.Fatalf("the status differs from stock's (-stock +ours):\n%s", cmp.Diff(want, got))
				}
			})
		})
	}
}

// failedByAgent is true when the agent has reported that the pod failed, with a reason that also applies to a pod whose
// containers exit with code 0.
func (s scenario) failedByAgent() bool {
	previous := s.previousStatus()
	return previous.Phase == v1.PodFailed &&
		!slices.Contains([]string{"", "Terminated", events.PreemptContainer}, previous.Reason)
}

func (s scenario) previousStatus() *v1.PodStatus {
	if s.previous == nil {
		return &s.pod.Status
	}
	return s.previous
}

// TestInputIsNotModified checks that Generate does not write to objects that it shares with other readers.
func TestInputIsNotModified(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, gateSets["all on"])
	rapid.Check(t, func(rt *rapid.T) {
		s := drawer{rt}.scenario()
		before := s.copy()
		ours(s)
		if !equality.Semantic.DeepEqual(before.pod, s.pod) || !equality.Semantic.DeepEqual(before.previous, s.previous) ||
			!equality.Semantic.DeepEqual(before.resizeConditions, s.resizeConditions) {
			rt.Fatal("the input was changed")
		}
	})
}

// copy separates the two sides of a comparison, since stock modifies the previous status.
func (s scenario) copy() scenario {
	c := s
	c.pod = s.pod.DeepCopy()
	if s.previous != nil {
		c.previous = s.previous.DeepCopy()
	}
	runtime := *s.runtime
	runtime.ContainerStatuses = append([]*kubecontainer.Status(nil), s.runtime.ContainerStatuses...)
	c.runtime = &runtime
	c.resizeConditions = nil
	for _, r := range s.resizeConditions {
		c.resizeConditions = append(c.resizeConditions, new(v1.PodCondition))
		*c.resizeConditions[len(c.resizeConditions)-1] = *r
	}
	return c
}

// dropRemovedInitContainers removes the cause of an intended difference, see TestInitRemovedInPlace.
func (s *scenario) dropRemovedInitContainers() {
	previous := s.previous
	if previous == nil {
		previous = &s.pod.Status
	}
	if !kubecontainer.ShouldAllContainersRestart(s.pod, s.runtime, previous) {
		return
	}
	s.pod.Spec.InitContainers = slices.DeleteFunc(s.pod.Spec.InitContainers, func(c v1.Container) bool {
		return s.runtime.FindContainerStatusByName(c.Name) == nil
	})
}

// TestStatusConverges generates successive statuses while the runtime does not change. The status must become constant;
// otherwise every synchronization would update the API server, and restart counts would grow. Start errors are left
// out: if one stays recorded for an init container that the runtime has removed, the status alternates, as in stock,
// until a successful start clears the error.
func TestStatusConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawer{rt}.scenario()
		s.startResults = kubecontainer.PodSyncResult{}
		var before v1.PodStatus
		for range 4 {
			status := ours(s.copy())
			if s.previous != nil {
				before = *s.previous
			}
			s.previous = &status
		}
		if !equality.Semantic.DeepEqual(before, *s.previous) {
			rt.Fatalf("the status does not converge:\n%s", cmp.Diff(before, *s.previous))
		}
	})
}
