package nodestatus

import (
	"testing"

	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// The parts that doc.go wires in fit, without adapters.
var (
	_ Client           = clientset.Interface(nil)
	_ NodeLister       = corelisters.NodeLister(nil)
	_ NodeResources    = cm.ContainerManager(nil)
	_ ContainerManager = cm.ContainerManager(nil)
	_ MachineSource    = cadvisor.Interface(nil)
	_ MachineSource    = (*Machine)(nil)
	_ Runtime          = kubecontainer.Runtime(nil)
	_ RuntimeState     = (*runtimestate.State)(nil)
	_ RuntimeUp        = (*runtimestate.Updater)(nil)
	_ Images           = images.ImageGCManager(nil)
	_ Volumes          = volumemanager.VolumeManager(nil)
	_ Shutdown         = nodeshutdown.Manager(nil)
	_ StartupTracker   = util.NodeStartupLatencyTracker(nil)
	_ Recorder         = record.EventRecorderLogger(nil)

	_ cm.GetNodeFunc = (*View)(nil).Node
	_                = nodeshutdown.Config{SyncNodeStatusFunc: (*Updater)(nil).SyncNow}
)

func TestCachedNodeFitsPredicates(t *testing.T) {
	if lifecycle.NewPredicateAdmitHandler(NewView(ViewConfig{}).CachedNode, nil, nil) == nil {
		t.Error("no handler")
	}
}
