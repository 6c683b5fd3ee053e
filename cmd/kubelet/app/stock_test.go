package app

import (
	"context"
	"testing"
	_ "unsafe" // linkname

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/kubernetes/cmd/kubelet/app" // the oracle
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// Stock's own functions, which its package does not export.

//go:linkname stockLoadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func stockLoadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname stockMerge k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func stockMerge(config *kubeletconfig.KubeletConfiguration, dir string) ([]string, error)

//go:linkname stockPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func stockPrecedence(config *kubeletconfig.KubeletConfiguration, args []string) error

// stockSettings does what stock's command does between parsing and validation.
func stockSettings(
	ctx context.Context, args []string,
) (*kubeletconfig.KubeletConfiguration, *options.KubeletFlags, error) {
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, err
	}
	flags.AddFlags(fs)
	options.AddKubeletConfigFlags(fs, config)
	options.AddGlobalFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates); err != nil {
		return nil, nil, err
	}
	if flags.KubeletConfigFile != "" {
		if config, err = stockLoadConfigFile(ctx, flags.KubeletConfigFile); err != nil {
			return nil, nil, err
		}
	}
	if flags.KubeletDropinConfigDirectory != "" {
		if _, err := stockMerge(config, flags.KubeletDropinConfigDirectory); err != nil {
			return nil, nil, err
		}
	}
	if flags.KubeletConfigFile+flags.KubeletDropinConfigDirectory != "" {
		if err := stockPrecedence(config, args); err != nil {
			return nil, nil, err
		}
	}
	return config, flags, utilfeature.DefaultMutableFeatureGate.SetFromMap(config.FeatureGates)
}

// gatesInTests are the feature gates that tests set; all are off by default.
var gatesInTests = map[string]bool{
	"EventedPLEG": false, "PodsAPI": false, "CRIListStreaming": false, "QOSReserved": false,
}

// gatesOfProcess returns a function that resets the feature gates. The end of the test resets them too.
func gatesOfProcess(t testing.TB) (restore func()) {
	t.Helper()
	if _, err := processGates(); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gatesInTests); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(restore)
	return restore
}
