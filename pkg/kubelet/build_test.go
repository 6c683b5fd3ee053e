package kubelet

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	_ "unsafe" // linkname
	"weak"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	oteltrace "go.opentelemetry.io/otel/trace/noop"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	critest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/clustertrustbundle"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// reportedVersion is set in a binary at link time.
//
//go:linkname reportedVersion k8s.io/component-base/version.dynamicGitVersion
var reportedVersion atomic.Value

// machineOfTests is a machine with some memory. New reads nothing else of it.
type machineOfTests struct{ cadvisor.Interface }

func (machineOfTests) VersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{}, nil
}

func (machineOfTests) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: 2, MemoryCapacity: 1 << 30, Timestamp: time.Unix(1, 0)}, nil
}

// dependenciesFor returns dependencies of an agent that does not affect this machine. Without client it is standalone.
func dependenciesFor(t *testing.T, client clientset.Interface) Dependencies {
	t.Helper()
	reportedVersion.Store("v1.36.3")
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	config.PodLogsDir = filepath.Join(root, "logs")
	config.CgroupsPerQOS, config.EnforceNodeAllocatable = false, nil
	flags := options.NewKubeletFlags()
	flags.RootDirectory = filepath.Join(root, "kubelet")
	return Dependencies{
		Config: config, Flags: flags, FeatureGates: utilfeature.DefaultFeatureGate,
		Identity: Identity{Hostname: "here", NodeName: "here"},
		Clients: Clients{
			Kube: client, Heartbeat: client, Reporter: dynamicfake.NewSimpleDynamicClient(kruntime.NewScheme()),
		},
		Runtime: RuntimeServices{Runtime: critest.NewFakeRuntimeService(), Images: critest.NewFakeImageService()},
		Machine: Machine{
			CAdvisor: machineOfTests{}, ContainerManager: cm.NewStubContainerManager(),
			Mounter: mount.NewFakeMounter(nil), HostUtil: hostutil.NewFakeHostUtil(nil), Subpather: &subpath.FakeSubpath{},
		},
		Observability: Observability{
			Recorder: record.NewFakeRecorder(100), TracerProvider: oteltrace.NewTracerProvider(),
			PodStartup: util.NewPodStartupLatencyTracker(), NodeStartup: util.NewNodeStartupLatencyTracker(),
		},
	}
}

// busyAPI is the client of an API server that does not respond.
func busyAPI(t *testing.T) clientset.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	client, err := clientset.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// assembled returns an agent that is built and not run.
func assembled(t *testing.T, client clientset.Interface, change func(*kubeletconfig.KubeletConfiguration)) *build {
	t.Helper()
	deps := dependenciesFor(t, client)
	if change != nil {
		change(deps.Config)
	}
	b, err := assemble(t.Context(), deps)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func set(t *testing.T, gate featuregate.Feature, on bool) {
	t.Helper()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, gate, on)
}

func names(b *build) []string {
	var all []string
	for _, c := range b.components() {
		all = append(all, c.name)
	}
	return all
}

// In standalone mode no component reports to the API server or waits for it.
func TestStandaloneComponents(t *testing.T) {
	alone, connected := assembled(t, nil, nil), assembled(t, busyAPI(t), nil)
	reports := []string{
		"node conditions", "node status", "node taints", "node lease", "mirror pods at start", "runtime classes",
	}
	for _, name := range reports {
		if slices.Contains(names(alone), name) {
			t.Errorf("standalone runs %q", name)
		}
		if !slices.Contains(names(connected), name) {
			t.Errorf("with an API server %q does not run", name)
		}
	}
	for _, name := range names(connected) {
		if !slices.Contains(reports, name) && !slices.Contains(names(alone), name) {
			t.Errorf("standalone does not run %q", name)
		}
	}
	if alone.objects.secrets != nil || alone.objects.runtimeClasses != nil || connected.objects.secrets == nil {
		t.Error("objects of an API server in standalone mode, or none with one")
	}
}

// Components that request the stop of pods stop before the pod workers; dependencies of the pod workers stop after
// them. Components stop in the reverse of their order.
func TestOrderOfComponents(t *testing.T) {
	all := names(assembled(t, busyAPI(t), nil))
	workers := slices.Index(all, "pod workers")
	for name, after := range map[string]bool{
		"eviction": true, "node shutdown": true, "preemption": true, "sync loop": true, "servers": true,
		"informers": false, "terminations": false, "volume manager": false, "cAdvisor": false, "container manager": false,
		"plugin registry": false, "status manager": false, "node status": false,
	} {
		if at := slices.Index(all, name); at < 0 || (at > workers) != after {
			t.Errorf("%q is at %d and pod workers at %d in %q", name, at, workers, all)
		}
	}
}

// Components that need the runtime start when it is up, in stock's order: cAdvisor before the container manager, and
// both before eviction.
func TestComponentsThatNeedTheRuntime(t *testing.T) {
	var late []string
	for _, c := range assembled(t, nil, nil).components() {
		if c.afterRuntime {
			late = append(late, c.name)
		}
	}
	want := []string{
		"pods at start", "cAdvisor", "root file system stats", "container manager", "container logs", "plugin registry",
		"reporter plugins", "eviction", "eviction plugins", "node shutdown",
	}
	if !slices.Equal(late, want) {
		t.Errorf("after the runtime %q, want %q", late, want)
	}
}

// Nothing has a reference to the build struct after New has returned.
func TestNothingHoldsTheBuildAfterNew(t *testing.T) {
	for _, on := range []bool{false, true} {
		for _, gate := range []featuregate.Feature{
			features.ClusterTrustBundle, features.ClusterTrustBundleProjection, features.EventedPLEG,
			features.NodeDeclaredFeatures, features.PodCertificateRequest, features.PodsAPI,
		} {
			set(t, gate, on)
		}
		for name, client := range map[string]clientset.Interface{"standalone": nil, "with an API server": busyAPI(t)} {
			agent, held := built(t, client)
			runtime.GC()
			if held.Value() != nil {
				t.Errorf("gates %t, %s: something holds the build", on, name)
			}
			runtime.KeepAlive(agent)
		}
	}
}

// All fields of forward are set when New returns.
func TestForwardIsComplete(t *testing.T) {
	parts := reflect.ValueOf(*assembled(t, nil, nil).forward)
	for i := range parts.NumField() {
		if parts.Field(i).IsZero() {
			t.Errorf("%s is not set", parts.Type().Field(i).Name)
		}
	}
}

// built is an agent, and a weak reference to the build struct.
func built(t *testing.T, client clientset.Interface) (*Kubelet, weak.Pointer[build]) {
	t.Helper()
	b := assembled(t, client, nil)
	return b.kubelet(), weak.Make(b)
}

// Parts that depend on a feature gate exist only if it is on.
func TestGatedParts(t *testing.T) {
	tests := []struct {
		gate    featuregate.Feature
		present func(*build) bool
	}{
		{features.EventedPLEG, func(b *build) bool { return b.runtime.eventedPleg != nil }},
		{features.ClusterTrustBundleProjection, func(b *build) bool {
			_, none := b.objects.trustBundles.(*clustertrustbundle.NoopManager)
			return !none
		}},
		{features.PodCertificateRequest, func(b *build) bool {
			_, none := b.objects.podCertificates.(*podcertificate.NoOpManager)
			return !none
		}},
		{features.NodeDeclaredFeatures, func(b *build) bool { return b.admission.declared.Names != nil }},
	}
	set(t, features.ClusterTrustBundle, true) // the projection needs it
	for _, tc := range tests {
		for _, on := range []bool{false, true} {
			set(t, tc.gate, on)
			if got := tc.present(assembled(t, busyAPI(t), nil)); got != on {
				t.Errorf("%s=%v: there %v", tc.gate, on, got)
			}
		}
	}
}

// Fields of the configuration that disable a component.
func TestSwitchedOffComponents(t *testing.T) {
	off := assembled(t, nil, func(c *kubeletconfig.KubeletConfiguration) { c.MakeIPTablesUtilChains = false })
	if slices.Contains(names(off), "iptables chains") {
		t.Error("iptables chains are made although they are off")
	}
	if on := assembled(t, nil, nil); !slices.Contains(names(on), "iptables chains") {
		t.Error("iptables chains are not made")
	}
	if down := assembled(t, nil, nil).pressure.shutdown; down.ShutdownStatus() != nil {
		t.Error("shutting down without a period for it")
	}
}

// Statistics, garbage collection and the runtime manager use the services that report responses of the runtime.
func TestRuntimeReportsAnswersToEviction(t *testing.T) {
	b, err := assemble(t.Context(), dependenciesFor(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for what, request := range map[string]func(context.Context) error{
		"images": func(ctx context.Context) error { _, err := b.runtime.manager.ListImages(ctx); return err },
		"pods":   func(ctx context.Context) error { _, err := b.runtime.manager.GetPods(ctx, true); return err },
		"disks":  func(ctx context.Context) error { _, _, err := b.stats.provider.ImageFsStats(ctx); return err },
	} {
		answers := 0
		err := request(eviction.WithAnswers(t.Context(), func() { answers++ }))
		if answers == 0 {
			t.Errorf("%s: no answer was reported; %v", what, err)
		}
	}
}

// Header names are canonicalized.
func TestStaticPodHeader(t *testing.T) {
	got := staticPodHeader(map[string][]string{"metadata-flavor": {"a", "b"}, "User-Agent": {"mine"}})
	if want := (http.Header{"Metadata-Flavor": {"a", "b"}, "User-Agent": {"mine"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("header %v, want %v", got, want)
	}
}
