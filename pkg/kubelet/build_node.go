package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// restoreTimeout is how long the start of the agent waits to read the conditions of the Node. It is short because the
// API server may be a static pod of this node.
const restoreTimeout = 2 * time.Second

// leaseRenewFraction is the interval between two renewals as a fraction of the lease's duration; as in stock.
const leaseRenewFraction = 0.25

// nodeParts report the node to the API server.
type nodeParts struct {
	runtimeUp *runtimestate.Updater
	updater   *nodestatus.Updater
	lease     lease.Controller
}

func (b *build) makeNode(ctx context.Context) error {
	n := &b.node
	runner := b.runner
	n.runtimeUp = runtimestate.NewUpdater(runtimestate.UpdaterConfig{
		Runtime: b.runtime.manager, State: b.volumes.state, OnFirstReady: func(context.Context) { runner.runtimeUp() },
	})
	machine, err := nodestatus.NewMachine(b.Machine.CAdvisor)
	if err != nil {
		return err
	}
	manager, plugins := b.pressure.eviction, b.plugins.eviction
	cfg := nodestatus.Config{
		View: b.sources.view, OnHeartbeatFailure: b.Clients.OnHeartbeatFailure,
		Registration: b.registration(), Reporting: b.reporting(), Machine: machine,
		Resources: b.Machine.ContainerManager, ContainerManager: b.Machine.ContainerManager,
		Runtime: b.runtime.manager, State: b.volumes.state, RuntimeUpdater: n.runtimeUp, Pressure: b.pressure.eviction,
		Images:  b.garbage.images,
		Volumes: b.volumes.manager, Shutdown: b.pressure.shutdown, Startup: b.Observability.NodeStartup,
		Recorder: b.Observability.Recorder,
		Clock:    b.clock,
		Restore: func(conditions []v1.NodeCondition) {
			manager.Restore(conditions)
			plugins.restore(conditions)
		},
		Reported:       b.reportedNode(),
		UnknownSignals: manager.UnknownSignals, PluginConditions: plugins.conditions,
		OnStartupOver: n.runtimeUp.ExpectReady,
	}
	if !b.Clients.Standalone() {
		cfg.Client, cfg.Heartbeat = b.Clients.Kube, b.Clients.Heartbeat
		n.lease = b.leaseController(ctx)
	}
	n.updater = nodestatus.New(cfg)
	b.forward.updater = n.updater
	if !b.Clients.Standalone() {
		b.makeTaintWriter()
	}
	return nil
}

// reportedNode is what reporter plugins report of the Node; empty in standalone mode.
func (b *build) reportedNode() nodestatus.Reported {
	p := b.plugins.reporter
	if p.node == nil {
		return nodestatus.Reported{}
	}
	return nodestatus.Reported{
		Content: func() (nodestatus.ReportedContent, bool) {
			content, confirmed, known := p.node.Node()
			return nodestatus.ReportedContent{Node: content, Confirmed: confirmed}, known
		},
		Sustained:    func() time.Duration { return p.settings.Load().publish.Sustained },
		File:         b.layout.ReportedNode(),
		Synchronized: func(s nodestatus.ReportedSync) { p.node.Written(&s.Content.Node, s.Requests, s.Err, s.At) },
	}
}

func (b *build) registration() nodestatus.Registration {
	return nodestatus.Registration{
		Register: b.Config.RegisterNode, Hostname: b.Identity.Hostname, ProviderID: b.Config.ProviderID,
		Labels: b.Flags.NodeLabels, Taints: b.Config.RegisterWithTaints,
		ControllerAttachDetach: b.Config.EnableControllerAttachDetach,
		ExternalCloudProvider:  cloudprovider.IsExternal(b.Flags.CloudProvider),
		GetOnExistsOnly:        b.enabled(features.KubeletRegistrationGetOnExistsOnly),
	}
}

func (b *build) reporting() nodestatus.Reporting {
	cfg := b.Config
	return nodestatus.Reporting{
		NodeIPs: b.Identity.NodeIPs, MaxPods: int(cfg.MaxPods), PodsPerCore: int(cfg.PodsPerCore),
		MaxImages:                     cfg.NodeStatusMaxImages,
		LocalStorageCapacityIsolation: cfg.LocalStorageCapacityIsolation,
		Endpoints:                     v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: cfg.Port}},
		DeclaredFeatures:              b.admission.declared.Names,
		UpdateFrequency:               cfg.NodeStatusUpdateFrequency.Duration,
		ReportFrequency:               cfg.NodeStatusReportFrequency.Duration,
	}
}

func (b *build) leaseController(ctx context.Context) lease.Controller {
	name, seconds := string(b.Identity.NodeName), b.Config.NodeLeaseDurationSeconds
	renew := time.Duration(float64(seconds) * leaseRenewFraction * float64(time.Second))
	return lease.NewController(b.clock, b.Clients.Heartbeat, name, seconds, b.Clients.OnHeartbeatFailure, renew, name,
		v1.NamespaceNodeLease, util.SetNodeOwnerFunc(ctx, b.Clients.Heartbeat, name))
}

// nodeReports returns the components that update the Node, its lease and the mirror pods at the API server; none in
// standalone mode.
func (b *build) nodeReports() []component {
	if b.Clients.Standalone() {
		return nil
	}
	updater, plugins, static := b.node.updater, b.plugins.eviction, housekeeping.StaticPods{
		Node: b.sources.view.Lookup, Pods: b.pods.manager.GetStaticPodToMirrorPodMap,
		Reconcile: b.workers.syncer.ReconcileMirrorPod,
	}
	return []component{
		// First: the pressure conditions of the Node must be restored before a pod is admitted or evicted.
		starts("node conditions", func(ctx context.Context) { updater.RestoreAtStart(ctx, restoreTimeout) }),
		// The first heartbeat reads the status of the runtime, so that a restart does not report the node as not ready.
		runs("node status", updater.Run),
		runsOnDemand("node taints", &plugins.taintsRequired, plugins.taints.Run),
		runs("node lease", b.node.lease.Run),
		// Creates mirror pods as soon as the Node is registered, before the next synchronization of the static pods.
		runs("mirror pods at start", func(ctx context.Context) { housekeeping.RegisterStaticPods(ctx, static) }),
	}
}

// podCIDR passes the configured pod CIDR to the runtime. Otherwise nodestatus passes spec.podCIDR of the Node later.
func (b *build) podCIDR() component {
	updater, cidr := b.node.updater, b.Config.PodCIDR
	return starts("pod CIDR", func(ctx context.Context) {
		if _, err := updater.UpdatePodCIDR(ctx, cidr); err != nil {
			klog.FromContext(ctx).Error(err, "Pod CIDR update failed")
		}
	})
}
