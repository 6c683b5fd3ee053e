package app

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	conversion "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

// dropInKind is the only kind a drop-in file may have.
var dropInKind = v1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration")

// mergeDropIns merges every .conf file below dir into config, in the lexical order of their paths (KEP-3983): later
// files overrule earlier ones field by field, lists are replaced and not added to. It returns the files it skipped.
func mergeDropIns(config *kubeletconfig.KubeletConfiguration, dir string) (skipped []string, err error) {
	files, skipped, err := findDropIns(dir)
	if err != nil {
		return nil, err
	}
	merged, err := encodeConfig(config)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if merged, err = mergeDropIn(merged, file); err != nil {
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

// mergeDropIn lays one file over the configuration so far, both as JSON, and tries the result, so that a value of the
// wrong type is reported together with the file that has it.
func mergeDropIn(base []byte, file string) ([]byte, error) {
	patch, err := readDropIn(file)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(base, patch)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	trial := &v1beta1.KubeletConfiguration{}
	if err := json.Unmarshal(merged, trial); err != nil {
		return nil, err
	}
	return merged, checkGates(trial.FeatureGates)
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
		return nil, fmt.Errorf("%w (apiVersion/kind must be %s, %s)", err, dropInKind.GroupVersion(), dropInKind.Kind)
	case err != nil:
		return nil, err
	case kind == nil || kind.Empty():
		return nil, fmt.Errorf("no apiVersion/kind; they must be %s, %s", dropInKind.GroupVersion(), dropInKind.Kind)
	case *kind != dropInKind:
		return nil, fmt.Errorf("unknown apiVersion/kind: %v; they must be %s, %s", kind, dropInKind.GroupVersion(),
			dropInKind.Kind)
	}
	return data, nil
}

// encodeConfig and decodeConfig go through the versioned form, since that is what files are written in. Decoding
// defaults again, because a drop-in file may set a field back to its zero value.
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
