package parity

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	cadvisorv2 "github.com/google/cadvisor/info/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/server"
)

var errFake = errors.New("the fake node cannot do this")

// allowAll authorizes every request.
type allowAll struct{ stockserver.AuthInterface }

func (allowAll) AuthenticateRequest(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: "anybody"}}, true, nil
}

func (allowAll) GetRequestAttributes(context.Context, user.Info, *http.Request) []authorizer.Attributes {
	return []authorizer.Attributes{authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "anybody"}}}
}

func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// fakeDebugSources are those of a node without pods.
func fakeDebugSources() server.DebugSources {
	return server.DebugSources{
		PodWorkers: func() debugv1alpha1.PodWorkerList { return debugv1alpha1.PodWorkerList{} },
		Pressure: fakeDecisions{decisionlog.New(decisionlog.Config{
			Node: "n", Clock: clock.RealClock{}, LimitBytes: 1 << 20,
		})},
	}
}

// fakeDecisions have a record of each decision, and end clients that watch at once.
type fakeDecisions struct{ *decisionlog.Log }

func (fakeDecisions) Decision(uint64) (d debugv1alpha1.PressureDecision, ok bool, err error) {
	return d, true, nil
}

func (f fakeDecisions) Watch() (*decisionlog.Watcher, error) {
	w, err := f.Log.Watch()
	if err == nil {
		f.Unwatch(w)
	}
	return w, err
}

type fakeFlags struct{}

func (fakeFlags) GetFlagz() map[string]string { return nil }

// fakeAnalyzer returns the summary of an empty node.
type fakeAnalyzer struct{ serverstats.ResourceAnalyzer }

func (fakeAnalyzer) Get(context.Context, bool) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}

func (fakeAnalyzer) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}

// fakeHost has every pod that is requested, and no operation on it succeeds.
type fakeHost struct{ stockserver.HostInterface }

func (fakeHost) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "x"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "x"}}},
	}, true
}

func (fakeHost) GetPods() []*v1.Pod                                { return nil }
func (fakeHost) GetRunningPods(context.Context) ([]*v1.Pod, error) { return nil, nil }
func (fakeHost) ServeLogs(w http.ResponseWriter, _ *http.Request)  { w.WriteHeader(http.StatusOK) }
func (fakeHost) SyncLoopHealthCheck(*http.Request) error           { return nil }
func (fakeHost) GetPodByCgroupfs(string) (*v1.Pod, bool)           { return nil, false }
func (fakeHost) GetCachedMachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{}, nil
}
func (fakeHost) GetVersionInfo() (*cadvisorapi.VersionInfo, error) {
	return &cadvisorapi.VersionInfo{}, nil
}

func (fakeHost) GetRequestedContainersInfo(
	string, cadvisorv2.RequestOptions,
) (map[string]*cadvisorapi.ContainerInfo, error) {
	return nil, nil
}

func (fakeHost) ListMetricDescriptors(context.Context) ([]*runtimeapi.MetricDescriptor, error) {
	return nil, nil
}

func (fakeHost) ListPodSandboxMetrics(context.Context) ([]*runtimeapi.PodSandboxMetrics, error) {
	return nil, nil
}

func (fakeHost) GetKubeletContainerLogs(
	context.Context, string, string, *v1.PodLogOptions, io.Writer, io.Writer,
) error {
	return errFake
}

func (fakeHost) RunInContainer(context.Context, string, types.UID, string, []string) ([]byte, error) {
	return nil, errFake
}

func (fakeHost) CheckpointContainer(
	context.Context, types.UID, string, string, *runtimeapi.CheckpointContainerRequest,
) error {
	return errFake
}

func (fakeHost) GetExec(
	context.Context, string, types.UID, string, []string, remotecommandserver.Options,
) (*url.URL, error) {
	return nil, errFake
}

func (fakeHost) GetAttach(context.Context, string, types.UID, string, remotecommandserver.Options) (*url.URL, error) {
	return nil, errFake
}

func (fakeHost) GetPortForward(context.Context, string, string, types.UID, portforward.V4Options) (*url.URL, error) {
	return nil, errFake
}
