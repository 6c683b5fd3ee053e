package generator_test

import (
	"context"
	"net"
	"reflect"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	utilnode "k8s.io/kubernetes/pkg/util/node"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus/generator"
)

// stockGenerate is the stock function that generates a pod status. It is a method of a kubelet with only the fields set
// that it reads.
//
//go:linkname stockGenerate k8s.io/kubernetes/pkg/kubelet.(*Kubelet).generateAPIPodStatus
func stockGenerate(
	kl *kubelet.Kubelet, ctx context.Context, pod *v1.Pod, runtime *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus

const nodeName = "node"

// stock runs one scenario through the stock kubelet.
func stock(t testing.TB, s scenario) v1.PodStatus {
	t.Helper()
	kl := &kubelet.Kubelet{}
	managers := newManagers(s)
	set(t, kl, "statusManager", managers.statuses)
	set(t, kl, "probeManager", managers.probes)
	set(t, kl, "containerManager", managers.containers)
	set(t, kl, "containerRuntime", managers.runtime)
	set(t, kl, "nodeIPs", s.nodeIPs)
	set(t, kl, "runtimeClassManager", runtimeclass.NewManager(fake.NewClientset()))
	setRuntimeHandlers(t, kl, s.handlers)
	reasons := kubelet.NewReasonCache()
	reasons.Update(s.pod.UID, s.startResults)
	set(t, kl, "reasonCache", reasons)
	if s.evict != nil {
		kl.PodSyncHandlers = lifecycle.PodSyncHandlers{evictorFunc(s.shouldEvict)}
	}
	if s.node != nil {
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		if err := indexer.Add(s.node); err != nil {
			t.Fatal(err)
		}
		set(t, kl, "kubeClient", fake.NewClientset())
		set(t, kl, "nodeLister", corelisters.NewNodeLister(indexer))
		set(t, kl, "nodeName", types.NodeName(nodeName))
	}
	return stockGenerate(kl, silentContext(), s.pod, s.runtime, s.terminal)
}

// ours runs one scenario through the generator.
func ours(s scenario) v1.PodStatus {
	managers := newManagers(s)
	reasons := podstatus.NewReasonCache()
	reasons.Update(s.pod.UID, s.startResults)
	cfg := generator.Config{
		Statuses:        managers.statuses,
		Resizes:         managers.statuses,
		Reasons:         reasons,
		Probes:          managers.probes,
		Devices:         managers.containers,
		PodCgroups:      func() generator.PodCgroups { return managers.containers.NewPodContainerManager() },
		Images:          managers.runtime,
		RuntimeClasses:  runtimeclass.NewManager(fake.NewClientset()),
		RuntimeHandlers: func() []kubecontainer.RuntimeHandler { return s.handlers },
		NodeIPs:         s.nodeIPs,
		Features:        generator.FeaturesFrom(utilfeature.DefaultFeatureGate),
	}
	if s.evict != nil {
		cfg.Evictors = []generator.Evictor{evictorFunc(s.shouldEvict)}
	}
	if s.node != nil {
		cfg.HostIPs = func(context.Context) ([]net.IP, error) { return utilnode.GetNodeHostIPs(s.node) }
	}
	return generator.New(cfg).Generate(silentContext(), s.pod, s.runtime, s.terminal)
}

func set[T any](t testing.TB, kl *kubelet.Kubelet, name string, value T) {
	t.Helper()
	f := reflect.ValueOf(kl).Elem().FieldByName(name)
	if !f.IsValid() {
		t.Fatalf("the stock kubelet has no field %q any more", name)
	}
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

func setRuntimeHandlers(t testing.TB, kl *kubelet.Kubelet, handlers []kubecontainer.RuntimeHandler) {
	t.Helper()
	f := reflect.ValueOf(kl).Elem().FieldByName("runtimeState")
	state := reflect.New(f.Type().Elem())
	h := state.Elem().FieldByName("rtHandlers")
	reflect.NewAt(h.Type(), unsafe.Pointer(h.UnsafeAddr())).Elem().Set(reflect.ValueOf(handlers))
	reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(state)
}

type evictorFunc func(*v1.Pod) lifecycle.ShouldEvictResponse

func (f evictorFunc) ShouldEvict(pod *v1.Pod) lifecycle.ShouldEvictResponse { return f(pod) }

func node(addresses ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	return n
}

// silentContext returns a context whose logger discards everything, since random pods cause many error messages.
func silentContext() context.Context { return klog.NewContext(context.Background(), klog.Logger{}) }
