package app

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/kernel"
)

// Unsupported is a setting of stock that this agent accepts and ignores.
type Unsupported struct {
	// Setting is the name of a field, a flag or a feature gate.
	Setting string
	// Consequence is what happens instead.
	Consequence string
	used        func(*kubeletconfig.KubeletConfiguration, *options.KubeletFlags, featuregate.FeatureGate) bool
}

// UnsupportedSettings is the complete list; docs/parity.md has the same. It is empty for stock v1.36.3. A new setting
// of a later stock version that is not implemented yet needs an entry here.
var UnsupportedSettings []Unsupported

// UnsupportedWarnings returns one line for each unsupported setting that is in use.
func UnsupportedWarnings(
	config *kubeletconfig.KubeletConfiguration, flags *options.KubeletFlags, gates featuregate.FeatureGate,
) []string {
	var lines []string
	for _, entry := range UnsupportedSettings {
		if entry.used(config, flags, gates) {
			lines = append(lines, entry.Setting+" is not supported yet: "+entry.Consequence)
		}
	}
	return lines
}

// warnings returns warnings about settings that are valid but probably not intended.
func (s *Settings) warnings() []string {
	lines := UnsupportedWarnings(s.Config, s.Flags, s.FeatureGates)
	own, reserved := s.Config.KubeletCgroups, s.Config.KubeReservedCgroup
	if own != "" && reserved != "" && !strings.HasPrefix(own, reserved) {
		lines = append(lines, "unsupported configuration:KubeletCgroups is not within KubeReservedCgroup")
	}
	if s.FeatureGates.Enabled(features.MemoryQoS) {
		lines = append(lines, memoryQoSWarnings()...)
	}
	if s.FeatureGates.Enabled(features.NodeSwap) && !s.Config.FailSwapOn &&
		s.Config.MemorySwap.SwapBehavior == "" {
		lines = append(lines, "failSwapOn is false and memorySwap.swapBehavior is not set: pods get no swap (NoSwap)")
	}
	return lines
}

func memoryQoSWarnings() []string {
	if !util.IsCgroup2UnifiedMode() {
		return []string{"MemoryQoS feature only works with cgroups v2 on Linux, but enabled with cgroups v1"}
	}
	running, err := kernel.GetVersion()
	if err != nil {
		return []string{"MemoryQoS: failed to detect the kernel version: " + err.Error()}
	}
	if minimum := kernel.MemoryQoSMinKernelVersion; running.LessThan(version.MustParseGeneric(minimum)) {
		return []string{
			"MemoryQoS memory.high throttling may cause process livelock on kernel " + running.String() +
				", which is older than " + minimum,
		}
	}
	return nil
}
