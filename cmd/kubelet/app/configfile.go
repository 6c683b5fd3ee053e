package app

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/component-base/featuregate"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
	"sigs.k8s.io/yaml"
)

// defaultEvictionHard returns the thresholds of a --config file that sets none. They are not part of the API's
// defaults, because they differ between operating systems. As in stock there are none without --config.
func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	}
}

// loadConfigFile reads, defaults and converts the --config file. Relative paths in it are relative to its directory.
func loadConfigFile(
	ctx context.Context, name string, gates featuregate.MutableVersionedFeatureGate,
) (*kubeletconfig.KubeletConfiguration, error) {
	file, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	if err := checkFileGates(file, gates); err != nil {
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
	mergeEvictionHard(config)
	return config, nil
}

// mergeEvictionHard sets default thresholds if the file sets none, or if it requests to merge them.
func mergeEvictionHard(config *kubeletconfig.KubeletConfiguration) {
	if config.EvictionHard != nil && !config.MergeDefaultEvictionSettings {
		return
	}
	merged := defaultEvictionHard()
	for signal, value := range config.EvictionHard {
		merged[signal] = value
	}
	config.EvictionHard = merged
}

// checkFileGates checks the feature gates of the file before it is decoded, because stock's defaulting panics on
// unknown ones. The decoder reports other errors of the file.
func checkFileGates(file string, gates featuregate.MutableVersionedFeatureGate) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var values struct {
		FeatureGates map[string]bool `json:"featureGates"`
	}
	if yaml.Unmarshal(data, &values) != nil {
		return nil
	}
	return checkGates(gates, values.FeatureGates)
}
