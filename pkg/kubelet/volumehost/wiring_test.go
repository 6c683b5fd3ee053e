package volumehost

import (
	"testing"

	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/clustertrustbundle"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	"k8s.io/kubernetes/pkg/kubelet/secret"
	"k8s.io/kubernetes/pkg/kubelet/token"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/nfs"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
)

// The parts that doc.go wires in fit, without adapters.
var (
	_ Nodes                = (*nodestatus.View)(nil)
	_ Secrets              = secret.Manager(nil)
	_ ConfigMaps           = configmap.Manager(nil)
	_ Tokens               = (*token.Manager)(nil)
	_ TrustBundles         = clustertrustbundle.Manager(nil)
	_ PodCertificates      = podcertificate.Manager(nil)
	_ record.EventRecorder = record.EventRecorderLogger(nil)
)

// TestCSIPluginWithoutAPIServer: the plugin asks the host for everything at once.
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
