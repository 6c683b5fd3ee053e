package nodestatus

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	binaryversion "k8s.io/component-base/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

// DeclaredFeatures are the features that this node declares (KEP-5328). They are determined once at start, reported in
// the status, and compared with the requirements of pods at admission and resize.
type DeclaredFeatures struct {
	// Names are sorted and never nil.
	Names []string
	Set   ndf.FeatureSet
	// Version is that of the agent, with which the requirements of pods are inferred.
	Version *version.Version
}

// DiscoverFeatures determines the declared features from the feature gates, the version of the binary, and the features
// of the runtime, which are nil if the runtime has not answered. It fails if the version of the binary cannot be
// parsed.
func DiscoverFeatures(
	features featuregate.FeatureGate, runtime *kubecontainer.RuntimeFeatures,
) (DeclaredFeatures, error) {
	own, err := version.Parse(binaryversion.Get().GitVersion)
	if err != nil {
		return DeclaredFeatures{}, fmt.Errorf("the version of this binary: %w", err)
	}
	node := ndf.NodeConfiguration{FeatureGates: gates{features}, Version: own}
	if runtime != nil {
		node.RuntimeFeatures.UserNamespacesHostNetwork = runtime.UserNamespacesHostNetwork
	}
	names := ndf.DefaultFramework.DiscoverNodeFeatures(&node)
	if names == nil {
		names = []string{}
	}
	set, err := ndf.DefaultFramework.MapSorted(names)
	if err != nil {
		return DeclaredFeatures{}, fmt.Errorf("features of this node: %w", err)
	}
	return DeclaredFeatures{Names: names, Set: set, Version: own}, nil
}

// CheckUpdate sends a warning event if the update of a running pod requires features that the node does not have. It
// may be called concurrently.
func (d DeclaredFeatures) CheckUpdate(ctx context.Context, recorder record.EventRecorderLogger, old, pod *v1.Pod) {
	if old == nil {
		return
	}
	logger := klog.FromContext(ctx)
	required, err := ndf.DefaultFramework.InferForPodUpdate(
		&ndf.PodInfo{Spec: &old.Spec, Status: &old.Status}, &ndf.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, d.Version)
	if err != nil {
		logger.Error(err, "Failed to infer the node features that the updated pod requires", "pod", klog.KObj(pod))
		return
	}
	if required.IsEmpty() {
		return
	}
	match, err := ndf.DefaultFramework.MatchNodeFeatureSet(required, d.Set)
	if err != nil {
		logger.Error(err, "Failed to match the updated pod with the features of the node", "pod", klog.KObj(pod))
		return
	}
	if !match.IsMatch {
		recorder.WithLogger(logger).Eventf(pod, v1.EventTypeWarning, events.FailedNodeDeclaredFeaturesCheck,
			"Pod requires node features that are not available: %s", strings.Join(match.UnsatisfiedRequirements, ", "))
	}
}

// gates reads feature gates by names of type string.
type gates struct{ featuregate.FeatureGate }

func (g gates) Enabled(name string) bool { return g.FeatureGate.Enabled(featuregate.Feature(name)) }
