package nodestatus

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	binaryversion "k8s.io/component-base/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Declared are the features this node declares (KEP-5328): found once at start, reported with the status, and matched
// against what pods require at admission and resize.
type Declared struct {
	// Names are sorted and never nil.
	Names []string
	Set   ndf.FeatureSet
	// Version is the agent's own, of which requirements are inferred.
	Version *version.Version
}

// DiscoverFeatures finds the declared features from the feature gates, the binary's version, and what the runtime said
// it can; nil means that it has not answered. It fails if the binary carries no version that can be read.
func DiscoverFeatures(features featuregate.FeatureGate, runtime *kubecontainer.RuntimeFeatures) (Declared, error) {
	own, err := version.Parse(binaryversion.Get().GitVersion)
	if err != nil {
		return Declared{}, fmt.Errorf("the version of this binary: %w", err)
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
		return Declared{}, fmt.Errorf("features of this node: %w", err)
	}
	return Declared{Names: names, Set: set, Version: own}, nil
}

// gates asks feature gates by plain strings.
type gates struct{ featuregate.FeatureGate }

func (g gates) Enabled(name string) bool { return g.FeatureGate.Enabled(featuregate.Feature(name)) }
