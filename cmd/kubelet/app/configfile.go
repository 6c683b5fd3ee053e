package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"sigs.k8s.io/yaml"
)

// defaultEvictionHard are the thresholds of a --config file that sets none. They are not part of the API's defaults,
// because they differ between operating systems; without --config there are none at all, which is stock's behaviour.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// loadConfigFile reads, defaults and converts the --config file. Relative paths in it start at its directory.
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error) {
	file, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if err := checkGatesOfFile(file); err != nil {
		return nil, err
	}
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, file)
	if err != nil {
		return nil, err
	}
	config, err := loader.Load(ctx)
	if err != nil {
		return nil, err
	}
	completeEvictionHard(config)
	return config, nil
}

// completeEvictionHard fills in thresholds for a file that sets none, or only some and asks for the rest.
func completeEvictionHard(config *kubeletconfig.KubeletConfiguration) {
	if config.EvictionHard != nil && !config.MergeDefaultEvictionSettings {
		return
	}
	merged := defaultEvictionHard()
	for signal, value := range config.EvictionHard {
		merged[signal] = value
	}
	config.EvictionHard = merged
}

// checkGatesOfFile looks for feature gates that do not exist before the file is decoded: stock's defaulting panics on
// them. Whatever else is wrong with the file is left to the decoder.
func checkGatesOfFile(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var gates struct {
		FeatureGates map[string]bool `json:"featureGates"`
	}
	if yaml.Unmarshal(data, &gates) != nil {
		return nil
	}
	return checkGates(gates.FeatureGates)
}

// checkGates tries gates out on a copy of those of the process.
func checkGates(gates map[string]bool) error {
	if err := utilfeature.DefaultMutableFeatureGate.DeepCopy().SetFromMap(gates); err != nil {
		return gateError(err)
	}
	return nil
}

func gateError(err error) error { return fmt.Errorf("featureGates (--feature-gates): %w", err) }
