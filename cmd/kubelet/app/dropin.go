package app

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	conversion "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// configKind is the kind of drop-in files.
var configKind = v1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration")

// mergeDropIns merges every .conf file below dir into config, in the lexical order of their paths (KEP-3983): later
// files override earlier ones field by field, and replace lists. It returns the skipped files.
func mergeDropIns(
	config *kubeletconfig.KubeletConfiguration, dir string, gates featuregate.MutableVersionedFeatureGate,
) (skipped []string, err error) {
	files, skipped, err := findDropIns(dir)
	if err != nil {
		return nil, err
	}
	merged, err := encodeConfig(config)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if merged, err = mergeDropIn(merged, file, gates); err != nil {
			return nil, fmt.Errorf("drop-in file %s: %w", file, err)
		}
	}
	return skipped, decodeConfig(merged, config)
}

func findDropIns(dir string) (files, skipped []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
		case filepath.Ext(entry.Name()) == ".conf":
			files = append(files, path)
		default:
			skipped = append(skipped, path)
		}
		return nil
	})
	return files, skipped, err
}

// mergeDropIn merges one file into the configuration so far, both as JSON, and decodes the result, so that a value of
// the wrong type is reported with its file.
func mergeDropIn(base []byte, file string, gates featuregate.MutableVersionedFeatureGate) ([]byte, error) {
	patch, err := readDropIn(file)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(base, patch)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	decoded := &v1beta1.KubeletConfiguration{}
	if err := json.Unmarshal(merged, decoded); err != nil {
		return nil, err
	}
	return merged, checkGates(gates, decoded.FeatureGates)
}

func readDropIn(name string) ([]byte, error) {
	file, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, file)
	if err != nil {
		return nil, err
	}
	data, kind, err := loader.LoadIntoJSON()
	switch {
	case runtime.IsMissingKind(err) || runtime.IsMissingVersion(err):
		return nil, fmt.Errorf("%w (apiVersion/kind must be %s, %s)", err, configKind.GroupVersion(), configKind.Kind)
	case err != nil:
		return nil, err
	case kind == nil || kind.Empty():
		return nil, fmt.Errorf("no apiVersion/kind; they must be %s, %s", configKind.GroupVersion(), configKind.Kind)
	case *kind != configKind:
		return nil, fmt.Errorf("unknown apiVersion/kind: %v; they must be %s, %s", kind, configKind.GroupVersion(),
			configKind.Kind)
	}
	return data, nil
}

// encodeConfig and decodeConfig use the versioned type, which is that of files. Decoding applies the defaults again,
// because a drop-in file may reset a field to its zero value.
func encodeConfig(config *kubeletconfig.KubeletConfiguration) ([]byte, error) {
	versioned := &v1beta1.KubeletConfiguration{}
	if err := conversion.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(config, versioned,
		nil); err != nil {
		return nil, err
	}
	return json.Marshal(versioned)
}

func decodeConfig(data []byte, config *kubeletconfig.KubeletConfiguration) error {
	versioned := &v1beta1.KubeletConfiguration{}
	if err := json.Unmarshal(data, versioned); err != nil {
		return err
	}
	conversion.SetDefaults_KubeletConfiguration(versioned)
	return conversion.Convert_v1beta1_KubeletConfiguration_To_config_KubeletConfiguration(versioned, config, nil)
}
