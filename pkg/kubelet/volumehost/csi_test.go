package volumehost

import (
	"testing"

	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/nfs"
)

// The CSI plugin calls the host during its initialization. In standalone mode it must not set a storage error.
func TestCSIPluginWithoutAPIServer(t *testing.T) {
	var storage []error
	h := newHost(t, func(c *Config) {
		c.Client = nil
		c.StorageError = func(err error) { storage = append(storage, err) }
	})
	if _, err := h.InitPlugins(append(csi.ProbeVolumePlugins(), nfs.ProbeVolumePlugins(volume.VolumeConfig{})...),
		nil); err != nil {
		t.Fatal(err)
	}
	if len(storage) != 0 {
		t.Errorf("storage errors %v: the node would never be Ready", storage)
	}
}
