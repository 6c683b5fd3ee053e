package containerspec_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

const (
	podUID    = types.UID("pod-uid")
	namespace = "apps"
	nodeName  = "node-1"
)

// world has all dependencies, for ours and for stock's.
type world struct {
	root       string
	node       *v1.Node
	nodeIPs    []net.IP
	hostIPs    []net.IP
	services   []*v1.Service
	synced     bool
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	volumes    kubecontainer.VolumeMap
	allocated  kubecontainer.RunContainerOptions
	handlers   []kubecontainer.RuntimeHandler
	classes    map[string]string
	subpaths   *recordingSubpaths
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		root:   t.TempDir(),
		synced: true,
		node: &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName},
			Status: v1.NodeStatus{
				Addresses: []v1.NodeAddress{
					{Type: v1.NodeInternalIP, Address: "192.168.7.1"},
					{Type: v1.NodeInternalIP, Address: "fd07::1"},
				},
				Allocatable: v1.ResourceList{
					v1.ResourceCPU:              resource.MustParse("3500m"),
					v1.ResourceMemory:           resource.MustParse("7Gi"),
					v1.ResourceEphemeralStorage: resource.MustParse("90Gi"),
				},
			},
		},
		hostIPs:    []net.IP{net.ParseIP("192.168.7.1"), net.ParseIP("fd07::1")},
		configMaps: map[string]*v1.ConfigMap{},
		secrets:    map[string]*v1.Secret{},
		volumes:    kubecontainer.VolumeMap{},
		handlers: []kubecontainer.RuntimeHandler{
			{Name: "", SupportsRecursiveReadOnlyMounts: true, SupportsUserNamespaces: true}, {Name: "old"},
		},
		classes:  map[string]string{"legacy": "old", "lost": "nobody-knows"},
		subpaths: &recordingSubpaths{},
	}
	w.makePodDir(t)
	return w
}

func (w *world) layout() paths.Layout { return paths.New(w.root, w.root+"/logs") }

func (w *world) makePodDir(t testing.TB) {
	t.Helper()
	if err := os.MkdirAll(w.layout().Pod(podUID), 0o750); err != nil {
		t.Fatal(err)
	}
}

// config is a complete configuration for this world.
func (w *world) config() containerspec.Config {
	return containerspec.Config{
		Layout:              w.layout(),
		Features:            containerspec.FeaturesFrom(utilfeature.DefaultFeatureGate),
		ClusterDomain:       "cluster.local",
		NodeIPs:             w.nodeIPs,
		Resources:           w,
		DynamicResources:    w,
		Volumes:             w,
		DNS:                 w,
		UserNamespaces:      w,
		HostFiles:           hostutil.NewHostUtil(),
		Subpaths:            w.subpaths,
		RuntimeClasses:      w,
		RuntimeHandlers:     func() []kubecontainer.RuntimeHandler { return w.handlers },
		Services:            w,
		ServicesSynced:      func() bool { return w.synced },
		ConfigMaps:          w,
		Secrets:             w,
		Node:                func(context.Context) (*v1.Node, error) { return w.node, nil },
		HostIPs:             func(context.Context) ([]net.IP, error) { return w.hostIPs, nil },
		RequestPodReinspect: func(types.UID) {},
		PodCPUAndMemoryStats: func(context.Context, *v1.Pod, *kubecontainer.PodStatus) (*statsapi.PodStats, error) {
			return nil, nil
		},
		OnPodSandboxReady: func(context.Context, *v1.Pod) error { return nil },
	}
}

func (w *world) helper(t testing.TB) *containerspec.Helper {
	t.Helper()
	return newHelper(t, w.config())
}

func newHelper(t testing.TB, cfg containerspec.Config) *containerspec.Helper {
	t.Helper()
	h, err := containerspec.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (w *world) List(labels.Selector) ([]*v1.Service, error) { return w.services, nil }

func (w *world) GetConfigMap(ns, name string) (*v1.ConfigMap, error) {
	return find(w.configMaps, "configmaps", ns, name)
}

func (w *world) GetSecret(ns, name string) (*v1.Secret, error) {
	return find(w.secrets, "secrets", ns, name)
}

func find[T any](objects map[string]*T, kind, ns, name string) (*T, error) {
	if name == "forbidden" {
		return nil, fmt.Errorf("%s %q is forbidden", kind, name)
	}
	if object, ok := objects[ns+"/"+name]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
}

func (w *world) LookupRuntimeHandler(name *string) (string, error) {
	if name == nil || *name == "" {
		return "", nil
	}
	if handler, ok := w.classes[*name]; ok {
		return handler, nil
	}
	return "", fmt.Errorf("no runtime class %q", *name)
}

func (w *world) GetResources(context.Context, *v1.Pod, *v1.Container) (*kubecontainer.RunContainerOptions, error) {
	opts := w.allocated
	opts.Envs = append([]kubecontainer.EnvVar(nil), w.allocated.Envs...)
	return &opts, nil
}

func (w *world) NewPodContainerManager() cm.PodContainerManager { return podCgroups{} }

func (w *world) PrepareDynamicResources(context.Context, *v1.Pod) error   { return nil }
func (w *world) UnprepareDynamicResources(context.Context, *v1.Pod) error { return nil }

func (w *world) GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap {
	return w.volumes
}

func (w *world) GetExtraSupplementalGroupsForPod(*v1.Pod) []int64 { return []int64{4711} }

func (w *world) GetPodDNS(context.Context, *v1.Pod) (*runtimeapi.DNSConfig, error) {
	return &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}}, nil
}

func (w *world) GetOrCreateUserNamespaceMappings(klog.Logger, *v1.Pod, string) (*runtimeapi.UserNamespace, error) {
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
}

type podCgroups struct{ cm.PodContainerManager }

func (podCgroups) GetPodContainerName(pod *v1.Pod) (cm.CgroupName, string) {
	return cm.CgroupName{"kubepods", string(pod.UID)}, "/kubepods/" + string(pod.UID)
}

// recordingSubpaths creates directories, mounts nothing, and records its calls.
type recordingSubpaths struct{ calls []string }

func (r *recordingSubpaths) SafeMakeDir(subdir, base string, perm os.FileMode) error {
	r.calls = append(r.calls, fmt.Sprintf("make %s in %s with %v", subdir, base, perm))
	if strings.Contains(subdir, "cannot-make") {
		return errors.New("a secret of the host's file system")
	}
	return os.MkdirAll(base+"/"+subdir, perm)
}

func (r *recordingSubpaths) PrepareSafeSubpath(s subpath.Subpath) (string, func(), error) {
	r.calls = append(r.calls, fmt.Sprintf("prepare %+v", s))
	cleanUp := func() { r.calls = append(r.calls, fmt.Sprintf("clean up %d", s.VolumeMountIndex)) }
	if strings.Contains(s.Path, "cannot-bind") {
		return "", cleanUp, errors.New("a secret of the host's file system")
	}
	return s.Path + "-bound", cleanUp, nil
}

func (r *recordingSubpaths) CleanSubPaths(string, string) error { return nil }

// mounter is a volume mounted at a path.
type mounter struct {
	volume.Mounter
	path       string
	attributes volume.Attributes
}

func (m mounter) GetPath() string                  { return m.path }
func (m mounter) GetAttributes() volume.Attributes { return m.attributes }

// blockMapper is a block volume whose link is dir/name.
type blockMapper struct {
	volume.BlockVolumeMapper
	dir, name string
}

func (m blockMapper) GetPodDeviceMapPath() (string, string) { return m.dir, m.name }

// basicPod returns a pod with one container and no options.
func basicPod() *v1.Pod {
	links := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: namespace, UID: podUID,
			Labels:      map[string]string{"app": "web"},
			Annotations: map[string]string{"team": "blue", "kubernetes.io/config.source": "api"},
		},
		Spec: v1.PodSpec{
			NodeName: nodeName, ServiceAccountName: "runner",
			EnableServiceLinks: &links,
			Containers:         []v1.Container{{Name: "main", TerminationMessagePath: "/dev/termination-log"}},
		},
	}
}

func clusterService(ns, name, ip string, port int32) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: port, Protocol: v1.ProtocolTCP}}},
	}
}
