package volumehost

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/local"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

type fakeNodes struct {
	node *v1.Node
	err  error
}

func (f fakeNodes) Name() types.NodeName                     { return "n" }
func (f fakeNodes) Lookup(context.Context) (*v1.Node, error) { return f.node, f.err }
func (f fakeNodes) Node(context.Context) (*v1.Node, error) {
	return &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}}}, nil
}

// fakeObjects returns its arguments.
type fakeObjects struct{ deleted []types.UID }

func (fakeObjects) GetSecret(namespace, name string) (*v1.Secret, error) {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"k": []byte("s")},
	}, nil
}

func (fakeObjects) GetConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, nil
}

func (fakeObjects) GetServiceAccountToken(
	_, name string, tr *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	tr.Status.Token = name
	return tr, nil
}
func (f *fakeObjects) DeleteServiceAccountToken(uid types.UID) { f.deleted = append(f.deleted, uid) }

func (fakeObjects) GetTrustAnchorsByName(name string, _ bool) ([]byte, error) {
	return []byte(name), nil
}

func (fakeObjects) GetTrustAnchorsBySigner(signer string, _ *metav1.LabelSelector, _ bool) ([]byte, error) {
	return []byte(signer), nil
}

func (fakeObjects) GetPodCertificateCredentialBundle(
	_ context.Context, namespace, podName, podUID, volumeName string, index int,
) ([]byte, []byte, error) {
	return []byte(strings.Join([]string{namespace, podName, podUID, volumeName}, "/")), []byte{byte(index)}, nil
}

func newHost(t *testing.T, edit ...func(*Config)) *Host {
	t.Helper()
	objects := &fakeObjects{}
	cfg := Config{
		Layout: paths.New(t.TempDir(), t.TempDir()), Client: fake.NewClientset(), Nodes: fakeNodes{node: &v1.Node{}},
		Recorder: record.NewFakeRecorder(1), StorageError: func(error) {},
		Mounts: Mounts{
			Mounter: mount.NewFakeMounter(nil), HostUtil: hostutil.NewFakeHostUtil(nil), Subpather: &subpath.FakeSubpath{},
		},
		Objects: Objects{
			Secrets: objects, ConfigMaps: objects, Tokens: objects, TrustBundles: objects, PodCertificates: objects,
		},
		Stopped: t.Context().Done(),
	}
	for _, e := range edit {
		e(&cfg)
	}
	return New(cfg)
}

func plugins() []volume.VolumePlugin {
	return slices.Concat(emptydir.ProbeVolumePlugins(), secret.ProbeVolumePlugins(), configmap.ProbeVolumePlugins(),
		downwardapi.ProbeVolumePlugins(), projected.ProbeVolumePlugins(), local.ProbeVolumePlugins(),
		hostpath.ProbeVolumePlugins(volume.VolumeConfig{}))
}

func TestDirectoriesAreStocks(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Layout = paths.New("/var/lib/kubelet", "/var/log/pods") })
	got := []string{
		h.GetPluginDir("p"), h.GetVolumeDevicePluginDir("p"), h.GetPodsDir(), h.GetPodVolumeDir("u", "p", "v"),
		h.GetPodPluginDir("u", "p"), h.GetPodVolumeDeviceDir("u", "p"),
	}
	want := []string{
		"/var/lib/kubelet/plugins/p", "/var/lib/kubelet/plugins/p/volumeDevices", "/var/lib/kubelet/pods",
		"/var/lib/kubelet/pods/u/volumes/p/v", "/var/lib/kubelet/pods/u/plugins/p", "/var/lib/kubelet/pods/u/volumeDevices/p",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInitPluginsAndMountThroughWrapper(t *testing.T) {
	h := newHost(t)
	mgr, err := h.InitPlugins(plugins(), nil)
	if err != nil {
		t.Fatal(err)
	}
	outer := v1.Volume{Name: "creds", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"}}
	mounter, err := h.NewWrapperMounter("creds", volume.Spec{Volume: &outer}, pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := h.cfg.Layout.PodVolume("u", "kubernetes.io~empty-dir", "wrapped_creds"); mounter.GetPath() != want {
		t.Errorf("path %s, want %s", mounter.GetPath(), want)
	}
	unmounter, err := h.NewWrapperUnmounter("creds", volume.Spec{Volume: &outer}, "u")
	if err != nil || unmounter.GetPath() != mounter.GetPath() {
		t.Errorf("unmounter %v, error %v", unmounter, err)
	}
	if outer.Name != "creds" {
		t.Errorf("renamed the caller's volume to %q", outer.Name)
	}
	// A real plugin on top of it: a secret.
	spec := volume.NewSpecFromVolume(&v1.Volume{
		Name: "s", VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: "x", DefaultMode: ptr.To[int32](0o644)},
		},
	})
	plugin, err := mgr.FindPluginBySpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	m, err := plugin.NewMounter(spec, pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.SetUp(volume.MounterArgs{}); err != nil {
		t.Errorf("mounting a secret: %v", err)
	}
}

func TestWrapperWithoutPlugin(t *testing.T) {
	h := newHost(t)
	if _, err := h.InitPlugins(nil, nil); err != nil {
		t.Fatal(err)
	}
	spec := volume.Spec{Volume: &v1.Volume{Name: "x", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}}
	if _, err := h.NewWrapperMounter("x", spec, &v1.Pod{}); err == nil ||
		!strings.HasPrefix(err.Error(), "can't use volume plugins for wrapped_x") {
		t.Errorf("error %v", err)
	}
	if _, err := h.NewWrapperUnmounter("x", spec, "u"); err == nil {
		t.Error("no error")
	}
}

func TestInitPluginsNamesFailures(t *testing.T) {
	h := newHost(t)
	twice := append(emptydir.ProbeVolumePlugins(), emptydir.ProbeVolumePlugins()...)
	if _, err := h.InitPlugins(twice, nil); err == nil || !strings.Contains(err.Error(), "kubernetes.io/empty-dir") {
		t.Errorf("error %v", err)
	}
}

func TestNodeMethods(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a"}}}
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: "v", DevicePath: "/dev/x"}}
	h := newHost(t, func(c *Config) { c.Nodes = fakeNodes{node: node} })
	if got, err := h.GetNodeLabels(); err != nil || got["zone"] != "a" {
		t.Errorf("labels %v, error %v", got, err)
	}
	if got, err := h.GetAttachedVolumesFromNodeStatus(); err != nil || got["v"] != "/dev/x" || len(got) != 1 {
		t.Errorf("attached %v, error %v", got, err)
	}
	if got, err := h.GetNodeAllocatable(); err != nil || got.Memory().String() != "1Gi" {
		t.Errorf("allocatable %v, error %v", got, err)
	}
	if h.GetNodeName() != "n" {
		t.Errorf("name %q", h.GetNodeName())
	}
	h = newHost(t, func(c *Config) { c.Nodes = fakeNodes{err: errors.New("not registered")} })
	if _, err := h.GetNodeLabels(); err == nil {
		t.Error("labels: no error")
	}
	if _, err := h.GetAttachedVolumesFromNodeStatus(); err == nil {
		t.Error("attached: no error")
	}
	if _, err := h.GetNodeAllocatable(); err != nil {
		t.Errorf("allocatable needs no API server: %v", err)
	}
}

func TestObjects(t *testing.T) {
	h := newHost(t)
	if s, err := h.GetSecretFunc()("ns", "s"); err != nil || s.Namespace != "ns" || s.Name != "s" {
		t.Errorf("secret %v, error %v", s, err)
	}
	if c, err := h.GetConfigMapFunc()("ns", "c"); err != nil || c.Name != "c" {
		t.Errorf("config map %v, error %v", c, err)
	}
	if tr, err := h.GetServiceAccountTokenFunc()("ns", "sa", &authenticationv1.TokenRequest{}); err != nil ||
		tr.Status.Token != "sa" {
		t.Errorf("token %v, error %v", tr, err)
	}
	h.DeleteServiceAccountTokenFunc()("u")
	if got := h.cfg.Objects.Tokens.(*fakeObjects).deleted; len(got) != 1 {
		t.Errorf("deleted %v", got)
	}
	if b, err := h.GetTrustAnchorsByName("b", true); err != nil || string(b) != "b" {
		t.Errorf("bundle %s, error %v", b, err)
	}
	if b, err := h.GetTrustAnchorsBySigner("s", nil, true); err != nil || string(b) != "s" {
		t.Errorf("bundle %s, error %v", b, err)
	}
	key, chain, err := h.GetPodCertificateCredentialBundle(t.Context(), "ns", "pod", "uid", "vol", 7)
	if err != nil || string(key) != "ns/pod/uid/vol" || chain[0] != 7 {
		t.Errorf("key %s, chain %v, error %v", key, chain, err)
	}
}

func TestStandalone(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Client, c.Objects.Secrets, c.Objects.ConfigMaps = nil, nil, nil })
	if h.GetKubeClient() != nil || h.GetInformerFactory() != nil || h.CSIDriverLister() != nil ||
		h.CSIDriversSynced() != nil {
		t.Error("not nil")
	}
	if _, err := h.GetSecretFunc()("ns", "s"); !errors.Is(err, errStandalone) {
		t.Errorf("secret: error %v", err)
	}
	if _, err := h.GetConfigMapFunc()("ns", "c"); !errors.Is(err, errStandalone) {
		t.Errorf("config map: error %v", err)
	}
	if err := h.WaitForCacheSync(); err == nil {
		t.Error("no error without CSIDriver objects")
	}
	if _, err := h.InitPlugins(plugins(), nil); err != nil {
		t.Error(err)
	}
}

func TestWaitForCacheSync(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := newHost(t)
	mgr, err := h.InitPlugins(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	mgr.Run(ctx.Done())
	if err := h.WaitForCacheSync(); err != nil {
		t.Error(err)
	}
	cancel()
	stopped := make(chan struct{})
	close(stopped)
	h = newHost(t, func(c *Config) { c.Stopped = stopped })
	if err := h.WaitForCacheSync(); err == nil {
		t.Error("no error although the agent stops")
	}
}

func TestTools(t *testing.T) {
	var got error
	h := newHost(t, func(c *Config) { c.StorageError = func(err error) { got = err } })
	if h.GetMounter() == nil || h.GetHostUtil() == nil || h.GetSubpather() == nil || h.GetEventRecorder() == nil ||
		h.GetKubeClient() == nil {
		t.Error("a tool is missing")
	}
	h.SetKubeletError(errStandalone)
	if !errors.Is(got, errStandalone) {
		t.Errorf("storage error %v", got)
	}
}
