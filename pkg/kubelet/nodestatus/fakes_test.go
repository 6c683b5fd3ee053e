package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/clock"
)

const testNode = "10.1.2.3" // as a host name it is the node's address at the same time, without DNS

// apiServer stores at most one Node, increments its resource version, and records all patches. Its lister returns the
// Node that was delivered last.
type apiServer struct {
	*fake.Clientset

	mu       sync.Mutex
	node     *v1.Node
	version  int
	listed   *v1.Node
	lagging  bool
	patches  []string
	reads    int
	failures map[string][]error
	onPatch  func()
}

func newAPIServer(existing *v1.Node) *apiServer {
	s := &apiServer{Clientset: fake.NewClientset(), failures: map[string][]error{}}
	if existing != nil {
		s.store(existing.DeepCopy())
	}
	s.PrependReactor("create", "nodes", s.create)
	s.PrependReactor("get", "nodes", s.get)
	s.PrependReactor("patch", "nodes", s.patch)
	return s
}

func (s *apiServer) store(node *v1.Node) {
	s.version++
	node.ResourceVersion = strconv.Itoa(s.version)
	s.node = node
	if !s.lagging {
		s.listed = node
	}
}

func (s *apiServer) fail(verb string, errs ...error) { s.failures[verb] = errs }

func (s *apiServer) failure(verb string) error {
	if len(s.failures[verb]) == 0 {
		return nil
	}
	err := s.failures[verb][0]
	s.failures[verb] = s.failures[verb][1:]
	return err
}

func (s *apiServer) notFound() error { return apierrors.NewNotFound(v1.Resource("nodes"), testNode) }

func (s *apiServer) create(a clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.failure("create"); err != nil {
		return true, nil, err
	}
	if s.node != nil {
		return true, nil, apierrors.NewAlreadyExists(v1.Resource("nodes"), testNode)
	}
	created := a.(clienttesting.CreateAction).GetObject().(*v1.Node).DeepCopy()
	created.UID = "created"
	s.store(created)
	return true, s.node, nil
}

func (s *apiServer) get(clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if err := s.failure("get"); err != nil {
		return true, nil, err
	}
	if s.node == nil {
		return true, nil, s.notFound()
	}
	return true, s.node, nil
}

func (s *apiServer) patch(a clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	patch := a.(clienttesting.PatchAction)
	if patch.GetSubresource() != "status" {
		return true, nil, errors.New("only the status may be patched")
	}
	if err := s.failure("patch"); err != nil {
		return true, nil, err
	}
	if err := s.precondition(patch.GetPatch()); err != nil {
		return true, nil, err
	}
	s.patches = append(s.patches, string(patch.GetPatch()))
	updated, err := applyPatch(s.node, patch.GetPatch())
	if err != nil {
		return true, nil, err
	}
	s.store(updated)
	if s.onPatch != nil {
		s.onPatch()
	}
	return true, updated, nil
}

// precondition returns the conflict of a patch that is for another Node, or another version of it.
func (s *apiServer) precondition(patch []byte) error {
	var only v1.Node
	if err := json.Unmarshal(patch, &only); err != nil {
		return err
	}
	if only.UID != "" && only.UID != s.node.UID ||
		only.ResourceVersion != "" && only.ResourceVersion != s.node.ResourceVersion {
		return apierrors.NewConflict(v1.Resource("nodes"), testNode, errors.New("another version"))
	}
	return nil
}

func applyPatch(node *v1.Node, patch []byte) (*v1.Node, error) {
	before, err := json.Marshal(node)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
	if err != nil {
		return nil, fmt.Errorf("applying %s: %w", patch, err)
	}
	updated := &v1.Node{}
	return updated, json.Unmarshal(after, updated)
}

// edit is a write by another client.
func (s *apiServer) edit(change func(*v1.Node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.node.DeepCopy()
	change(node)
	s.store(node)
}

// deliver updates the lister.
func (s *apiServer) deliver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = s.node
}

func (s *apiServer) current() *v1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

func (s *apiServer) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.patches)
}

// Get implements NodeLister.
func (s *apiServer) Get(string) (*v1.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed == nil {
		return nil, s.notFound()
	}
	return s.listed, nil
}

// world implements all other dependencies of an Updater.
type world struct {
	mu sync.Mutex

	memory, disk, pid  bool
	runtimeErr         error
	storageErr         error
	shutdownErr        error
	zeroExtended       bool
	capacity           v1.ResourceList
	plugins            v1.ResourceList
	images             []kubecontainer.Image
	inUse              []v1.UniqueVolumeName
	marked             [][]v1.UniqueVolumeName
	cidr               string
	cidrErr            error
	cidrUpdates        []string
	versionHangs       bool
	versionHook        func()
	runtimeUps         int
	onRuntimeUp        func(n int)
	attempts           int
	registered         int
	readies            int
	events             []string
	heartbeatFailures  int
	startupOver        int
	restored           [][]v1.NodeCondition
	onRestore          func([]v1.NodeCondition)
	volumesReconciled  bool
	machineInfoFailure error
	pluginConditions   []PluginCondition
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

func get[T any](w *world, field func(*world) T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return field(w)
}

func (w *world) IsUnderMemoryPressure() bool { return get(w, func(w *world) bool { return w.memory }) }
func (w *world) IsUnderDiskPressure() bool   { return get(w, func(w *world) bool { return w.disk }) }
func (w *world) IsUnderPIDPressure() bool    { return get(w, func(w *world) bool { return w.pid }) }

func (w *world) PluginConditions() []PluginCondition {
	return get(w, func(w *world) []PluginCondition { return w.pluginConditions })
}

func (w *world) RuntimeErrors() error  { return get(w, func(w *world) error { return w.runtimeErr }) }
func (w *world) NetworkErrors() error  { return nil }
func (w *world) StorageErrors() error  { return get(w, func(w *world) error { return w.storageErr }) }
func (w *world) ShutdownStatus() error { return get(w, func(w *world) error { return w.shutdownErr }) }

func (w *world) RuntimeHandlers() []kubecontainer.RuntimeHandler {
	return []kubecontainer.RuntimeHandler{{Name: "runc", SupportsUserNamespaces: true}}
}

func (w *world) RuntimeFeatures() *kubecontainer.RuntimeFeatures {
	return &kubecontainer.RuntimeFeatures{SupplementalGroupsPolicy: true}
}
func (w *world) PodCIDR() string        { return get(w, func(w *world) string { return w.cidr }) }
func (w *world) SetPodCIDR(cidr string) { w.set(func(w *world) { w.cidr = cidr }) }

func (w *world) UpdatePodCIDR(_ context.Context, cidr string) error {
	w.set(func(w *world) { w.cidrUpdates = append(w.cidrUpdates, cidr) })
	return w.cidrErr
}
func (w *world) Type() string { return "containerd" }

func (w *world) Version(ctx context.Context) (kubecontainer.Version, error) {
	if get(w, func(w *world) bool { return w.versionHangs }) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if hook := get(w, func(w *world) func() { return w.versionHook }); hook != nil {
		hook()
	}
	return fakeVersion("2.1.0"), nil
}

type fakeVersion string

func (v fakeVersion) String() string              { return string(v) }
func (v fakeVersion) Compare(string) (int, error) { return 0, nil }

func (w *world) GetCapacity(bool) v1.ResourceList { return w.capacity }

func (w *world) GetDevicePluginResourceCapacity() (v1.ResourceList, v1.ResourceList, []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plugins, w.plugins, nil
}

func (w *world) GetNodeAllocatableReservation() v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
}
func (w *world) Status() cm.Status                         { return cm.Status{} }
func (w *world) ShouldResetExtendedResourceCapacity() bool { return w.zeroExtended }

func (w *world) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{
		MachineID: "m", SystemUUID: "s", BootID: "b", NumCores: 4, MemoryCapacity: 8 << 30, Timestamp: time.Unix(1, 0),
	}, w.machineInfoFailure
}

func (w *world) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{KernelVersion: "6.1", ContainerOsVersion: "Debian 12"}, nil
}
func (w *world) GetImageList() ([]kubecontainer.Image, error) { return w.images, nil }

func (w *world) ReconcilerStatesHasBeenSynced() bool {
	return get(w, func(w *world) bool { return w.volumesReconciled })
}

func (w *world) GetVolumesInUse() []v1.UniqueVolumeName {
	return get(w, func(w *world) []v1.UniqueVolumeName { return w.inUse })
}

func (w *world) MarkVolumesAsReportedInUse(v []v1.UniqueVolumeName) {
	w.set(func(w *world) { w.marked = append(w.marked, v) })
}
func (w *world) RecordAttemptRegisterNode() { w.set(func(w *world) { w.attempts++ }) }
func (w *world) RecordRegisteredNewNode()   { w.set(func(w *world) { w.registered++ }) }
func (w *world) RecordNodeReady()           { w.set(func(w *world) { w.readies++ }) }

func (w *world) Eventf(_ runtime.Object, eventType, reason, format string, args ...any) {
	w.set(func(w *world) { w.events = append(w.events, eventType+" "+reason+" "+fmt.Sprintf(format, args...)) })
}

// Update implements RuntimeUpdater.
func (w *world) Update(context.Context) {
	w.mu.Lock()
	w.runtimeUps++
	n, hook := w.runtimeUps, w.onRuntimeUp
	w.mu.Unlock()
	if hook != nil {
		hook(n)
	}
}

// count returns the number of events with this reason.
func (w *world) count(reason string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		var eventType, r string
		if _, err := fmt.Sscan(e, &eventType, &r); err == nil && r == reason {
			n++
		}
	}
	return n
}

func newWorld() *world {
	return &world{
		volumesReconciled: true,
		capacity:          v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("100Gi")},
	}
}

// newUpdater returns an Updater with the fakes as its dependencies; edit changes its configuration.
func newUpdater(_ testing.TB, s *apiServer, w *world, edit ...func(*Config)) *Updater {
	cfg := Config{
		View: NewView(ViewConfig{Name: testNode, Lister: s, Client: s}), Client: s, Heartbeat: s,
		OnHeartbeatFailure: func() { w.set(func(w *world) { w.heartbeatFailures++ }) },
		Registration:       Registration{Register: true, Hostname: testNode, ControllerAttachDetach: true},
		Reporting: Reporting{
			MaxPods: 110, MaxImages: 50, LocalStorageCapacityIsolation: true,
			Endpoints:       v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: 10250}},
			UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute,
		},
		Machine: w, Resources: w, ContainerManager: w, Runtime: w, State: w, RuntimeUpdater: w, Pressure: w, Images: w,
		Volumes: w, Shutdown: w, Startup: w, Recorder: w, Clock: clock.RealClock{},
		PluginConditions: w.PluginConditions,
		OnStartupOver:    func() { w.set(func(w *world) { w.startupOver++ }) },
		Restore: func(c []v1.NodeCondition) {
			w.set(func(w *world) { w.restored = append(w.restored, c) })
			if w.onRestore != nil {
				w.onRestore(c)
			}
		},
	}
	for _, e := range edit {
		e(&cfg)
	}
	u := New(cfg)
	u.report.random = func() float64 { return 0.5 } // no spreading
	return u
}

func condition(node *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{}
}
