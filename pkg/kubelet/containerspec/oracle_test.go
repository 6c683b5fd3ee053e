package containerspec_test

import (
	"context"
	"reflect"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/configmap"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	runtimeclasstest "k8s.io/kubernetes/pkg/kubelet/runtimeclass/testing"
	"k8s.io/kubernetes/pkg/kubelet/secret"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// oracle is the part of the stock kubelet that generates container options, in a given world. Its fields are set
// directly, because its constructor would start a whole node.
type oracle struct {
	kubelet *kubelet.Kubelet
}

func newOracle(t testing.TB, w *world) oracle {
	t.Helper()
	k := &kubelet.Kubelet{}
	set := func(field string, value any) { setField(reflect.ValueOf(k).Elem(), field, reflect.ValueOf(value)) }
	set("rootDirectory", w.root)
	set("nodeName", types.NodeName(nodeName))
	set("nodeIPs", w.nodeIPs)
	set("kubeClient", fake.NewSimpleClientset())
	set("nodeLister", nodeLister(t, w.node))
	set("serviceLister", w)
	set("serviceHasSynced", cache.InformerSynced(func() bool { return w.synced }))
	set("configMapManager", configMapManager{world: w})
	set("secretManager", secretManager{world: w})
	set("volumeManager", volumeManager{world: w})
	set("containerManager", containerManager{world: w})
	set("hostutil", hostutil.NewHostUtil())
	set("subpather", w.subpaths)
	set("dnsConfigurer", dns.NewConfigurer(record.NewFakeRecorder(1), nil, nil, nil, "cluster.local", ""))
	set("runtimeClassManager", runtimeClasses(t, w))

	state := reflect.ValueOf(k).Elem().FieldByName("runtimeState")
	newState := reflect.New(state.Type().Elem())
	setField(newState.Elem(), "rtHandlers", reflect.ValueOf(w.handlers))
	setField(reflect.ValueOf(k).Elem(), "runtimeState", newState)
	return oracle{kubelet: k}
}

func (o oracle) options(
	pod *v1.Pod, podIPs []string, images kubecontainer.ImageVolumes,
) (*kubecontainer.RunContainerOptions, error) {
	opts, _, err := o.kubelet.GenerateRunContainerOptions(context.Background(), pod, &pod.Spec.Containers[0],
		first(podIPs), podIPs, images)
	return opts, err
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// setField sets a field although it is not exported.
func setField(object reflect.Value, name string, value reflect.Value) {
	field := object.FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(value)
}

func nodeLister(t testing.TB, node *v1.Node) corelisters.NodeLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := indexer.Add(node); err != nil {
		t.Fatal(err)
	}
	return corelisters.NewNodeLister(indexer)
}

func runtimeClasses(t testing.TB, w *world) *runtimeclass.Manager {
	t.Helper()
	client := fake.NewSimpleClientset()
	for name, handler := range w.classes {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
		if _, err := client.NodeV1().RuntimeClasses().Create(context.Background(), class,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	manager := runtimeclass.NewManager(client)
	t.Cleanup(runtimeclasstest.StartManagerSync(manager))
	return manager
}

type configMapManager struct {
	configmap.Manager
	world *world
}

func (m configMapManager) GetConfigMap(ns, name string) (*v1.ConfigMap, error) {
	return m.world.GetConfigMap(ns, name)
}

type secretManager struct {
	secret.Manager
	world *world
}

func (m secretManager) GetSecret(ns, name string) (*v1.Secret, error) {
	return m.world.GetSecret(ns, name)
}

type volumeManager struct {
	volumemanager.VolumeManager
	world *world
}

func (m volumeManager) GetMountedVolumesForPod(name volumetypes.UniquePodName) kubecontainer.VolumeMap {
	return m.world.GetMountedVolumesForPod(name)
}

type containerManager struct {
	cm.ContainerManager
	world *world
}

func (m containerManager) GetResources(
	ctx context.Context, pod *v1.Pod, container *v1.Container,
) (*kubecontainer.RunContainerOptions, error) {
	return m.world.GetResources(ctx, pod, container)
}

// hostnameGenerator is the part of the runtime helper that generates host names.
type hostnameGenerator interface {
	GeneratePodHostNameAndDomain(logger klog.Logger, pod *v1.Pod) (string, string, error)
}

var testLogger = klog.Background()
