package nodestatus

import (
	"context"
	"reflect"
	"testing"
	"time"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/utils/clock"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// Methods of the stock kubelet, called on a Kubelet that has only the fields which they use.

//go:linkname stockInitialNode k8s.io/kubernetes/pkg/kubelet.(*Kubelet).initialNode
func stockInitialNode(kl *kubelet.Kubelet, ctx context.Context) (*v1.Node, error)

//go:linkname stockTryRegister k8s.io/kubernetes/pkg/kubelet.(*Kubelet).tryRegisterWithAPIServer
func stockTryRegister(kl *kubelet.Kubelet, ctx context.Context, node *v1.Node) bool

//go:linkname stockTryUpdate k8s.io/kubernetes/pkg/kubelet.(*Kubelet).tryUpdateNodeStatus
func stockTryUpdate(kl *kubelet.Kubelet, ctx context.Context, try int) error

//go:linkname stockSetters k8s.io/kubernetes/pkg/kubelet.(*Kubelet).defaultNodeStatusFuncs
func stockSetters(kl *kubelet.Kubelet) []func(context.Context, *v1.Node) error

//go:linkname stockStatusChanged k8s.io/kubernetes/pkg/kubelet.nodeStatusHasChanged
func stockStatusChanged(before, after *v1.NodeStatus) bool

//go:linkname newStockRuntimeState k8s.io/kubernetes/pkg/kubelet.newRuntimeState
func newStockRuntimeState(maxWait time.Duration) unsafe.Pointer

//go:linkname setStockRuntimeSync k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setRuntimeSync
func setStockRuntimeSync(state unsafe.Pointer, t time.Time)

//go:linkname setStockRuntimeState k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setRuntimeState
func setStockRuntimeState(state unsafe.Pointer, err error)

//go:linkname setStockNetworkState k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setNetworkState
func setStockNetworkState(state unsafe.Pointer, err error)

//go:linkname setStockRuntimeHandlers k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setRuntimeHandlers
func setStockRuntimeHandlers(state unsafe.Pointer, handlers []kubecontainer.RuntimeHandler)

//go:linkname setStockRuntimeFeatures k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setRuntimeFeatures
func setStockRuntimeFeatures(state unsafe.Pointer, features *kubecontainer.RuntimeFeatures)

// oracle is a stock kubelet with the dependencies w and the API server s.
type oracle struct {
	kl    *kubelet.Kubelet
	state unsafe.Pointer
	w     *world
}

// newOracle is the equivalent of newUpdater.
func newOracle(_ testing.TB, s *apiServer, w *world, cfg Config) *oracle {
	o := &oracle{kl: &kubelet.Kubelet{}, state: newStockRuntimeState(time.Hour), w: w}
	setStockRuntimeHandlers(o.state, w.RuntimeHandlers())
	setStockRuntimeFeatures(o.state, w.RuntimeFeatures())
	setStockRuntimeSync(o.state, time.Now())
	setStockNetworkState(o.state, nil)
	info, _ := w.MachineInfo()
	r, p := &cfg.Registration, &cfg.Reporting
	for name, value := range map[string]any{
		"nodeName": cfg.View.Name(), "hostname": r.Hostname, "providerID": r.ProviderID, "nodeLabels": r.Labels,
		"registerWithTaints": r.Taints, "enableControllerAttachDetach": r.ControllerAttachDetach,
		"externalCloudProvider": r.ExternalCloudProvider,
		"maxPods":               p.MaxPods, "podsPerCore": p.PodsPerCore, "nodeStatusMaxImages": p.MaxImages,
		"daemonEndpoints": &p.Endpoints, "nodeStatusReportFrequency": p.ReportFrequency, "nodeIPValidator": ValidateNodeIP,
		"kubeClient": s, "heartbeatClient": s, "nodeLister": stockLister{s}, "machineInfo": info, "nodeRef": cfg.View.Ref(),
		"containerManager": stockCM{w: w}, "cadvisor": stockCAdvisor{w: w}, "containerRuntime": stockRuntime{w: w},
		"imageManager": stockImages{w: w}, "evictionManager": stockEviction{w: w}, "shutdownManager": stockShutdown{w: w},
		"volumeManager": stockVolumes{w: w}, "recorder": stockRecorder{w: w}, "clock": cfg.Clock,
		"nodeStartupLatencyTracker": w, "updatePodCIDRMux": nil, "nodeDeclaredFeatures": p.DeclaredFeatures,
	} {
		if value != nil {
			o.set(name, value)
		}
	}
	kubeletConfig := o.field("kubeletConfiguration")
	kubeletConfig.FieldByName("LocalStorageCapacityIsolation").SetBool(p.LocalStorageCapacityIsolation)
	state := o.field("runtimeState")
	state.Set(reflect.NewAt(state.Type().Elem(), o.state))
	o.set("setNodeStatusFuncs", stockSetters(o.kl))
	return o
}

func (o *oracle) field(name string) reflect.Value {
	f := reflect.ValueOf(o.kl).Elem().FieldByName(name)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

func (o *oracle) set(name string, value any) { o.field(name).Set(reflect.ValueOf(value)) }

func (o *oracle) register(ctx context.Context) bool {
	node, err := stockInitialNode(o.kl, ctx)
	return err == nil && stockTryRegister(o.kl, ctx, node)
}

func (o *oracle) heartbeat(ctx context.Context) error {
	setStockRuntimeState(o.state, o.w.runtimeErr)
	return stockTryUpdate(o.kl, ctx, 0)
}

type stockLister struct{ s *apiServer }

func (l stockLister) Get(name string) (*v1.Node, error)        { return l.s.Get(name) }
func (l stockLister) List(labels.Selector) ([]*v1.Node, error) { return nil, nil }

type stockCM struct {
	cm.ContainerManager
	w *world
}

func (c stockCM) Status() cm.Status                          { return c.w.Status() }
func (c stockCM) ShouldResetExtendedResourceCapacity() bool  { return c.w.zeroExtended }
func (c stockCM) GetCapacity(isolation bool) v1.ResourceList { return c.w.GetCapacity(isolation) }
func (c stockCM) GetNodeAllocatableReservation() v1.ResourceList {
	return c.w.GetNodeAllocatableReservation()
}
func (c stockCM) GetDevicePluginResourceCapacity() (v1.ResourceList, v1.ResourceList, []string) {
	return c.w.GetDevicePluginResourceCapacity()
}

type stockCAdvisor struct {
	cadvisor.Interface
	w *world
}

func (c stockCAdvisor) VersionInfo() (*cadvisorapi.VersionInfo, error) { return c.w.VersionInfo() }

type stockRuntime struct {
	kubecontainer.Runtime
	w *world
}

func (r stockRuntime) Type() string { return r.w.Type() }
func (r stockRuntime) Version(ctx context.Context) (kubecontainer.Version, error) {
	return r.w.Version(ctx)
}
func (r stockRuntime) UpdatePodCIDR(ctx context.Context, cidr string) error {
	return r.w.UpdatePodCIDR(ctx, cidr)
}

type stockImages struct {
	images.ImageGCManager
	w *world
}

func (i stockImages) GetImageList() ([]kubecontainer.Image, error) { return i.w.GetImageList() }

type stockEviction struct {
	eviction.Manager
	w *world
}

func (e stockEviction) IsUnderMemoryPressure() bool { return e.w.IsUnderMemoryPressure() }
func (e stockEviction) IsUnderDiskPressure() bool   { return e.w.IsUnderDiskPressure() }
func (e stockEviction) IsUnderPIDPressure() bool    { return e.w.IsUnderPIDPressure() }

type stockShutdown struct {
	nodeshutdown.Manager
	w *world
}

func (s stockShutdown) ShutdownStatus() error { return s.w.ShutdownStatus() }

type stockVolumes struct {
	volumemanager.VolumeManager
	w *world
}

func (v stockVolumes) ReconcilerStatesHasBeenSynced() bool {
	return v.w.ReconcilerStatesHasBeenSynced()
}
func (v stockVolumes) GetVolumesInUse() []v1.UniqueVolumeName { return v.w.GetVolumesInUse() }
func (v stockVolumes) MarkVolumesAsReportedInUse(l []v1.UniqueVolumeName) {
	v.w.MarkVolumesAsReportedInUse(l)
}

type stockRecorder struct {
	record.EventRecorder
	w *world
}

func (r stockRecorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.w.Eventf(object, eventType, reason, format, args...)
}
func (r stockRecorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }

var _ clock.WithTicker = clock.RealClock{}
