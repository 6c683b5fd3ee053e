package kubelet

import (
	"net"

	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	internalapi "k8s.io/cri-api/pkg/apis"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/kubelet/watchdog"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
)

// Dependencies is everything the agent does not make itself: validated settings and the parts of the world it talks to.
// The command builds it; nothing in it has been started when New is called, except the event broadcaster behind
// Recorder.
type Dependencies struct {
	// Config is the merged, defaulted and validated configuration; it is not modified after New.
	Config *kubeletconfig.KubeletConfiguration
	// Flags are the settings that exist only on the command line.
	Flags *options.KubeletFlags
	// FeatureGates are those of the process, which packages of stock read as a global variable. They do not change after
	// New. The composition reads them; parts get plain values.
	FeatureGates featuregate.FeatureGate
	// Pressure is our own configuration as it was at start; the zero value stands for the defaults, and no file is
	// followed.
	Pressure pressureconfig.Loaded

	Identity      Identity
	Clients       Clients
	Runtime       RuntimeServices
	Machine       Machine
	Volumes       VolumePlugins
	Serving       Serving
	Observability Observability
}

// Identity is who this node is.
type Identity struct {
	// Hostname is the machine's name or --hostname-override.
	Hostname string
	NodeName types.NodeName
	// NodeIPs are the validated --node-ip addresses, at most one per family; empty means: detect.
	NodeIPs []net.IP
}

// Clients are the connections to the API server. All are nil in standalone mode; Standalone says so.
type Clients struct {
	Kube clientset.Interface
	// Heartbeat has no client-side rate limit and a time-out, for node status and lease.
	Heartbeat clientset.Interface
	// Reporter is for the objects of reporter plugins. It sends each request once, see publish.NewClient.
	Reporter dynamic.Interface
	// OnHeartbeatFailure closes dead connections; nil is allowed.
	OnHeartbeatFailure func()
}

// Standalone is true when the agent runs static pods only and has no API server.
func (c Clients) Standalone() bool { return c.Kube == nil }

// RuntimeServices are the CRI connections.
type RuntimeServices struct {
	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
}

// Machine is the node itself: its statistics, cgroups and mounts.
type Machine struct {
	CAdvisor         cadvisor.Interface
	ContainerManager cm.ContainerManager
	Mounter          mount.Interface
	HostUtil         hostutil.HostUtils
	Subpather        subpath.Interface
}

// VolumePlugins are the in-tree volume plugins and the prober for flexvolumes.
type VolumePlugins struct {
	Plugins       []volume.VolumePlugin
	DynamicProber volume.DynamicPluginProber
}

// Serving is what the HTTP servers need.
type Serving struct {
	// Auth authenticates and authorizes every request of the secure server.
	Auth server.AuthInterface
	// TLSOptions is nil when the secure server is off.
	TLSOptions *server.TLSOptions
	Flagz      flagz.Reader
}

// Observability receives what the agent reports.
type Observability struct {
	Recorder       record.EventRecorderLogger
	TracerProvider oteltrace.TracerProvider
	PodStartup     util.PodStartupLatencyTracker
	NodeStartup    util.NodeStartupLatencyTracker
	// HealthChecker is systemd's watchdog; nil when it is not configured.
	HealthChecker watchdog.HealthChecker
}
