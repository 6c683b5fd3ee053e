package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"
	"k8s.io/kubernetes/pkg/kubelet/logs"
	"k8s.io/kubernetes/pkg/kubelet/network/dns"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/kubernetes/pkg/kubelet/util"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

const (
	// A failed image pull is retried after imageBackOff, which doubles up to imageBackOffMax.
	imageBackOff, imageBackOffMax = 10 * time.Second, 300 * time.Second
	// runtimePodsAge is the maximum age of the cached list of pods in the runtime.
	runtimePodsAge = 3 * time.Second
	// plegEvents is the capacity of the PLEG's channel of events; when it is full, the PLEG drops events.
	plegEvents = 1000
)

// The generic PLEG lists the pods of the runtime every second, and is unhealthy when it has not done so for three
// minutes. With the gate EventedPLEG it lists them less often. The values are stock's.
var (
	genericRelist = pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	eventedRelist = pleg.RelistDuration{RelistPeriod: 300 * time.Second, RelistThreshold: 10 * time.Minute}
)

// eventedPlegRetries is the number of connection attempts to the runtime's event stream after which the generic PLEG
// lists every second again.
const eventedPlegRetries = 5

// runtimeParts start and observe containers.
type runtimeParts struct {
	dns          *dns.Configurer
	helper       *containerspec.Helper
	logs         logs.ContainerLogManager
	manager      kuberuntime.KubeGenericRuntime
	cache        kubecontainer.RuntimeCache
	imageGCHooks []images.PostImageGCHook
	pulls        *reclaim.PullTracker
	events       chan *pleg.PodLifecycleEvent
	pleg         pleg.PodLifecycleEventGenerator
	eventedPleg  pleg.PodLifecycleEventGenerator
}

func (b *build) makeRuntime(ctx context.Context) (err error) {
	r := &b.runtime
	b.Runtime = RuntimeServices{
		Runtime: runtimestate.ReportRuntimeAnswers(b.Runtime.Runtime, eviction.RuntimeAnswered),
		Images:  runtimestate.ReportImageAnswers(b.Runtime.Images, eviction.RuntimeAnswered),
	}
	r.dns = b.dnsConfigurer(ctx)
	if mounter := b.Flags.ExperimentalMounterPath; mounter != "" {
		// A mounter in a chroot resolves names of services with the cluster's DNS.
		r.dns.SetupDNSinContainerizedMounter(klog.FromContext(ctx), mounter)
	}
	if r.helper, err = containerspec.New(b.containerSpec()); err != nil {
		return err
	}
	r.logs, err = logs.NewContainerLogManager(b.Runtime.Runtime, kubecontainer.RealOS{}, b.Config.ContainerLogMaxSize,
		int(b.Config.ContainerLogMaxFiles), int(b.Config.ContainerLogMaxWorkers), b.Config.ContainerLogMonitorInterval)
	if err != nil {
		return err
	}
	if err := b.makeRuntimeManager(ctx); err != nil {
		return err
	}
	b.pods.allocations.SetContainerRuntime(r.manager)
	if r.cache, err = kubecontainer.NewRuntimeCache(r.manager, runtimePodsAge); err != nil {
		return err
	}
	err = b.makePLEG(ctx)
	b.forward.pleg = r.pleg
	return err
}

func (b *build) dnsConfigurer(ctx context.Context) *dns.Configurer {
	var servers []net.IP
	for _, entry := range b.Config.ClusterDNS {
		if ip := netutils.ParseIPSloppy(entry); ip != nil {
			servers = append(servers, ip)
			continue
		}
		klog.FromContext(ctx).Info("Ignoring entry of clusterDNS that is not an IP address", "entry", entry)
	}
	return dns.NewConfigurer(b.Observability.Recorder, b.nodeRef, b.Identity.NodeIPs, servers, b.Config.ClusterDomain,
		b.Config.ResolverConfig)
}

func (b *build) containerSpec() containerspec.Config {
	machine := b.Machine
	cfg := containerspec.Config{
		Layout: b.layout, Features: containerspec.FeaturesFrom(b.FeatureGates), ClusterDomain: b.Config.ClusterDomain,
		NodeIPs:   b.Identity.NodeIPs,
		Resources: machine.ContainerManager, DynamicResources: machine.ContainerManager, Volumes: b.volumes.manager,
		DNS:            b.runtime.dns,
		UserNamespaces: b.volumes.userNamespaces, HostFiles: machine.HostUtil, Subpaths: machine.Subpather,
		RuntimeHandlers:      b.volumes.state.RuntimeHandlers,
		Node:                 b.sources.view.Node,
		HostIPs:              b.sources.view.HostIPs,
		RequestPodReinspect:  b.forward.reinspect,
		PodCPUAndMemoryStats: b.forward.podStats,
		OnPodSandboxReady: containerspec.SandboxReady(b.pods.status,
			b.enabled(features.PodReadyToStartContainersCondition)),
	}
	if !b.Clients.Standalone() {
		cfg.RuntimeClasses, cfg.Services, cfg.ServicesSynced = b.objects.runtimeClasses, b.sources.services,
			b.sources.servicesSynced
		cfg.ConfigMaps, cfg.Secrets = b.objects.configMaps, b.objects.secrets
	}
	return cfg
}

func (b *build) makeRuntimeManager(ctx context.Context) (err error) {
	cfg, flags, probes := b.Config, b.Flags, b.pods.probes
	b.runtime.pulls = reclaim.NewPullTracker(b.Runtime.Images)
	b.runtime.manager, b.runtime.imageGCHooks, err = kuberuntime.NewKubeGenericRuntimeManager(ctx,
		kubecontainer.FilterEventRecorder(b.Observability.Recorder), probes.liveness, probes.readiness, probes.startup,
		b.layout.Root(), b.layout.PodLogs(), b.machineInfo, b.pods.lifecycle, cfg.MaxPods, kubecontainer.RealOS{},
		b.runtime.helper, hookClient(),
		flowcontrol.NewBackOff(imageBackOff, imageBackOffMax), cfg.SerializeImagePulls, cfg.MaxParallelImagePulls,
		float32(cfg.RegistryPullQPS), int(cfg.RegistryBurst),
		cfg.ImagePullCredentialsVerificationPolicy, cfg.PreloadedImagesVerificationAllowlist,
		flags.ImageCredentialProviderConfigPath, flags.ImageCredentialProviderBinDir,
		b.singleProcessOOMKill(), cfg.CPUCFSQuota, cfg.CPUCFSQuotaPeriod,
		b.Runtime.Runtime, b.runtime.pulls, b.Machine.ContainerManager, b.runtime.logs, b.objects.runtimeClasses,
		flags.SeccompDefault || cfg.SeccompDefault, cfg.MemorySwap.SwapBehavior,
		b.Machine.ContainerManager.GetNodeAllocatableAbsolute,
		ptr.Deref(cfg.MemoryThrottlingFactor, 0), cfg.MemoryReservationPolicy,
		b.Observability.PodStartup, b.Observability.TracerProvider, b.objects.tokens, b.serviceAccount(ctx),
		b.Observability.PodStartup)
	return err
}

// hookClient returns the HTTP client of lifecycle hooks. It does not verify the certificates of HTTPS servers, because
// the API has no field for a CA, so its requests must never carry credentials.
func hookClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: httpprobe.RedirectChecker(false),
	}
}

// singleProcessOOMKill is true if the OOM killer kills a single process and not the whole container. Cgroup v1 supports
// single processes only; in cgroup v2 it is memory.oom.group.
func (b *build) singleProcessOOMKill() *bool {
	if !util.IsCgroup2UnifiedMode() {
		return ptr.To(true)
	}
	return ptr.To(ptr.Deref(b.Config.SingleProcessOOMKill, false))
}

// serviceAccount returns the function that reads service accounts for image credential providers (KEP-4412).
func (b *build) serviceAccount(ctx context.Context) func(namespace, name string) (*v1.ServiceAccount, error) {
	if !b.enabled(features.KubeletServiceAccountTokenForCredentialProviders) {
		return func(string, string) (*v1.ServiceAccount, error) {
			return nil, errors.New("service account tokens for credential providers are disabled by a feature gate")
		}
	}
	if b.Clients.Standalone() {
		return func(string, string) (*v1.ServiceAccount, error) {
			return nil, errors.New("there are no service accounts in standalone mode")
		}
	}
	client := b.Clients.Kube.CoreV1()
	return func(namespace, name string) (*v1.ServiceAccount, error) {
		return client.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	}
}

func (b *build) makePLEG(ctx context.Context) (err error) {
	r, logger := &b.runtime, klog.FromContext(ctx)
	r.events = make(chan *pleg.PodLifecycleEvent, plegEvents)
	generic, evented := genericRelist, eventedRelist
	if !b.enabled(features.EventedPLEG) {
		r.pleg = pleg.NewGenericPLEG(logger, r.manager, r.events, &generic, b.pods.cache, b.clock)
		b.volumes.state.AddHealthCheck("PLEG", r.pleg.Healthy)
		return nil
	}
	r.pleg = pleg.NewGenericPLEG(logger, r.manager, r.events, &evented, b.pods.cache, b.clock)
	r.eventedPleg, err = pleg.NewEventedPLEG(logger, r.manager, b.Runtime.Runtime, r.events, b.pods.cache, r.pleg,
		eventedPlegRetries, &generic, b.clock)
	if err != nil {
		return err
	}
	b.volumes.state.AddHealthCheck("PLEG", r.pleg.Healthy)
	b.volumes.state.AddHealthCheck("EventedPLEG", r.eventedPleg.Healthy)
	return nil
}

// podsAtStart passes the pods that ran when the agent started to the parts that treat them differently: they are
// readmitted, they count as running for the pod workers, and termination records of pods that another kubelet has
// started again are deleted.
func (b *build) podsAtStart() component {
	manager, workers, readmission := b.runtime.manager, b.workers.workers, b.pressure.readmission
	list := func(ctx context.Context) ([]*kubecontainer.Pod, error) { return manager.GetPods(ctx, false) }
	return runs("pods at start", func(ctx context.Context) {
		if pods, err := runtimestate.AwaitPods(ctx, list); err == nil {
			workers.DeleteStaleTerminations(pods)
			workers.SetRunningAtStart(pods)
			readmission.SetRunning(pods)
		}
	})
}

func (b *build) containerManager() component {
	containers, node, active, ready := b.Machine.ContainerManager, b.sources.view.Node, b.pods.view.Active, b.sources.ready
	status, runtime, isolation := b.pods.status, b.Runtime.Runtime, b.Config.LocalStorageCapacityIsolation
	return component{name: "container manager", start: func(ctx context.Context) error {
		present, err := node(ctx)
		if err != nil {
			return fmt.Errorf("reading the node: %w", err)
		}
		return containers.Start(ctx, present, active, node, ready, status, runtime, isolation)
	}}
}

func (b *build) plegs() component {
	generic, evented := b.runtime.pleg, b.runtime.eventedPleg
	return starts("PLEG", func(context.Context) {
		generic.Start()
		if evented != nil {
			evented.Start()
		}
	})
}

// resolvConfCheck logs warnings if the resolver configuration of the node exceeds the limits for pods.
func (b *build) resolvConfCheck() component {
	dns, configured := b.runtime.dns, b.Config.ResolverConfig != ""
	return starts("resolv.conf check", func(ctx context.Context) {
		if configured {
			dns.CheckLimitsForResolvConf(klog.FromContext(ctx))
		}
	})
}
