package app

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/features"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

// checkResourceManagers checks the policies of the CPU, memory and topology managers.
func checkResourceManagers(s *Settings) error {
	var errs []error
	oneOf := func(name, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("%s %q must be one of: %q", name, value, allowed))
		}
	}
	oneOf("cpuManagerPolicy (--cpu-manager-policy)", s.Config.CPUManagerPolicy, "none", "static")
	oneOf("memoryManagerPolicy (--memory-manager-policy)", s.Config.MemoryManagerPolicy, "None", "Static")
	if s.Config.TopologyManagerPolicyOptions != nil &&
		!s.FeatureGates.Enabled(features.TopologyManagerPolicyOptions) {
		errs = append(errs,
			fmt.Errorf("topologyManagerPolicyOptions (--topology-manager-policy-options) %v needs the feature gate %s",
				s.Config.TopologyManagerPolicyOptions, features.TopologyManagerPolicyOptions))
	}
	return errors.Join(errs...)
}

// checkContainerLogs checks the size at which container logs are rotated.
func checkContainerLogs(s *Settings) error {
	const name = "containerLogMaxSize (--container-log-max-size)"
	size, err := resource.ParseQuantity(s.Config.ContainerLogMaxSize)
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, s.Config.ContainerLogMaxSize, err)
	}
	if _, whole := size.AsInt64(); !whole {
		return fmt.Errorf("%s %q is not a whole number of bytes", name, s.Config.ContainerLogMaxSize)
	}
	return nil
}

// checkCredentialProviders checks that both paths exist; otherwise stock's image manager would end the process.
func checkCredentialProviders(s *Settings) error {
	config, dir := s.Flags.ImageCredentialProviderConfigPath, s.Flags.ImageCredentialProviderBinDir
	if config == "" && dir == "" {
		return nil
	}
	var errs []error
	for _, given := range []struct{ flag, path string }{
		{"--image-credential-provider-config", config}, {"--image-credential-provider-bin-dir", dir},
	} {
		if given.path == "" {
			errs = append(errs,
				fmt.Errorf("%s is not set, but the image credential providers need both it and its counterpart", given.flag))
			continue
		}
		if _, err := os.Stat(given.path); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", given.flag, given.path, err))
		}
	}
	return errors.Join(errs...)
}

// checkKubeconfig checks that one of the two files exists. Their content is checked when the client is created.
func checkKubeconfig(s *Settings) error {
	if s.standalone() {
		return nil
	}
	_, err := os.Stat(s.Flags.KubeConfig)
	switch {
	case err == nil:
		return nil
	case s.Flags.BootstrapKubeconfig == "":
		return fmt.Errorf("--kubeconfig %q: %w (and there is no --bootstrap-kubeconfig to create it)", s.Flags.KubeConfig,
			err)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("--kubeconfig %q: %w", s.Flags.KubeConfig, err)
	}
	if _, err := os.Stat(s.Flags.BootstrapKubeconfig); err != nil {
		return fmt.Errorf("--bootstrap-kubeconfig %q: %w", s.Flags.BootstrapKubeconfig, err)
	}
	return nil
}

// checkSwap rejects swap for pods on cgroup v1, where the kernel cannot limit it.
func checkSwap(s *Settings) error {
	limited := s.Config.MemorySwap.SwapBehavior == string(kubetypes.LimitedSwap)
	if limited && s.FeatureGates.Enabled(features.NodeSwap) && !util.IsCgroup2UnifiedMode() {
		return fmt.Errorf("memorySwap.swapBehavior %q needs cgroup v2, and this node has cgroup v1",
			s.Config.MemorySwap.SwapBehavior)
	}
	return nil
}
