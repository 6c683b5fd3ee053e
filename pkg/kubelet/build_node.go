package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// leaseRenewFraction of the lease's duration is the time between two renewals.
const leaseRenewFraction = 0.25

// nodeParts show the node to the API server.
type nodeParts struct {
	runtimeUp *runtimestate.Updater
	updater   *nodestatus.Updater
	lease     lease.Controller
	// dependents is the context of what needs the runtime, giveUp ends it with an error.
	dependents context.Context
	giveUp     context.CancelCauseFunc
	// killers stop pods for the sake of the node: eviction and the node's shutdown.
	killers *group
}

func (b *build) makeNode(ctx context.Context) error {
	n := &b.node
	n.runtimeUp = runtimestate.NewUpdater(runtimestate.UpdaterConfig{
		Runtime: b.runtime.manager, State: b.volumes.state, OnFirstReady: b.runtimeReady,
	})
	machine, err := nodestatus.NewMachine(b.Machine.CAdvisor)
	if err != nil {
		return err
	}
	cfg := nodestatus.Config{
		View: b.sources.view, OnHeartbeatFailure: b.Clients.OnHeartbeatFailure,
		Registration: b.registration(), Reporting: b.reporting(), Machine: machine,
		Resources: b.Machine.ContainerManager, ContainerManager: b.Machine.ContainerManager,
		Runtime: b.runtime.manager, State: b.volumes.state, RuntimeUp: n.runtimeUp, Pressure: b.pressure.eviction, Images: b.garbage.images,
		Volumes: b.volumes.manager, Shutdown: b.pressure.shutdown, Startup: b.Observability.NodeStartup, Recorder: b.Observability.Recorder,
		Clock: b.clock, Restore: b.pressure.eviction.Restore, Blind: b.pressure.eviction.Blind, OnStartupOver: n.runtimeUp.ExpectReady,
	}
	if !b.Clients.Standalone() {
		cfg.Client, cfg.Heartbeat = b.Clients.Kube, b.Clients.Heartbeat
		n.lease = b.leaseController(ctx)
	}
	n.updater = nodestatus.New(cfg)
	return nil
}

func (b *build) registration() nodestatus.Registration {
	return nodestatus.Registration{
		Register: b.Config.RegisterNode, Hostname: b.Identity.Hostname, ProviderID: b.Config.ProviderID,
		Labels: b.Flags.NodeLabels, Taints: b.Config.RegisterWithTaints,
		ControllerAttachDetach: b.Config.EnableControllerAttachDetach,
		ExternalCloudProvider:  cloudprovider.IsExternal(b.Flags.CloudProvider),
		GetOnExistsOnly:        enabled(features.KubeletRegistrationGetOnExistsOnly),
	}
}

func (b *build) reporting() nodestatus.Reporting {
	cfg := b.Config
	return nodestatus.Reporting{
		NodeIPs: b.Identity.NodeIPs, MaxPods: int(cfg.MaxPods), PodsPerCore: int(cfg.PodsPerCore), MaxImages: cfg.NodeStatusMaxImages,
		LocalStorageCapacityIsolation: cfg.LocalStorageCapacityIsolation,
		Endpoints:                     v1.NodeDaemonEndpoints{KubeletEndpoint: v1.DaemonEndpoint{Port: cfg.Port}},
		DeclaredFeatures:              b.admission.declared.Names,
		UpdateFrequency:               cfg.NodeStatusUpdateFrequency.Duration, ReportFrequency: cfg.NodeStatusReportFrequency.Duration,
	}
}

func (b *build) leaseController(ctx context.Context) lease.Controller {
	name, seconds := string(b.Identity.NodeName), b.Config.NodeLeaseDurationSeconds
	renew := time.Duration(float64(seconds) * leaseRenewFraction * float64(time.Second))
	return lease.NewController(b.clock, b.Clients.Heartbeat, name, seconds, b.Clients.OnHeartbeatFailure, renew, name,
		v1.NamespaceNodeLease, util.SetNodeOwnerFunc(ctx, b.Clients.Heartbeat, name))
}
