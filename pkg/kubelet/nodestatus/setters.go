package nodestatus

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stock "k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

// versionTimeout limits the query of the runtime's version, which the runtime has in memory.
const versionTimeout = 5 * time.Second

// setters set the status of a Node in the order facts, pressure, rest. Facts may query the runtime and DNS, and may be
// slow; the others use values in memory. Pressure includes the conditions of eviction plugins. Ready must be the last
// condition; it depends on the capacity, which is one of the facts.
type setters struct {
	facts    []stock.Setter
	pressure []stock.Setter
	rest     []stock.Setter
}

func (u *Updater) newSetters(sink eventSink) setters {
	c, now := &u.cfg, u.cfg.Clock.Now
	reportSchedulability := schedulability(sink)
	return setters{
		facts: u.factSetters(sink),
		pressure: []stock.Setter{
			u.withUnknownSignals(v1.NodeMemoryPressure,
				stock.MemoryPressureCondition(now, c.Pressure.IsUnderMemoryPressure, sink.status)),
			u.withUnknownSignals(v1.NodeDiskPressure,
				stock.DiskPressureCondition(now, c.Pressure.IsUnderDiskPressure, sink.status)),
			u.withUnknownSignals(v1.NodePIDPressure,
				stock.PIDPressureCondition(now, c.Pressure.IsUnderPIDPressure, sink.status)),
			u.setPluginConditions,
		},
		rest: []stock.Setter{
			stock.ReadyCondition(now, c.State.RuntimeErrors, c.State.NetworkErrors, c.State.StorageErrors,
				c.ContainerManager.Status, c.Shutdown.ShutdownStatus, sink.status, c.Reporting.LocalStorageCapacityIsolation),
			stock.VolumesInUse(c.Volumes.ReconcilerStatesHasBeenSynced, c.Volumes.GetVolumesInUse),
			func(ctx context.Context, node *v1.Node) error {
				reportSchedulability(klog.FromContext(ctx), node)
				return nil
			},
		},
	}
}

func (u *Updater) factSetters(sink eventSink) []stock.Setter {
	c, r, res := &u.cfg, &u.cfg.Reporting, u.cfg.Resources
	return []stock.Setter{
		stock.NodeAddress(r.NodeIPs, ValidateNodeIP, c.Registration.Hostname, c.Registration.ExternalCloudProvider,
			utilnet.ResolveBindAddress),
		stock.MachineInfo(string(u.Name()), r.MaxPods, r.PodsPerCore, c.Machine.MachineInfo, res.GetCapacity,
			u.devicePluginCapacity, res.GetNodeAllocatableReservation, sink.plain, r.LocalStorageCapacityIsolation),
		stock.VersionInfo(c.Machine.VersionInfo, c.Runtime.Type, c.runtimeVersion),
		stock.DaemonEndpoints(&r.Endpoints),
		stock.Images(r.MaxImages, c.Images.GetImageList),
		stock.GoRuntime(),
		stock.RuntimeHandlers(c.State.RuntimeHandlers),
		stock.NodeFeatures(c.State.RuntimeFeatures),
		declaredFeatures(r.DeclaredFeatures),
	}
}

// runtimeVersion queries the version of the runtime, with a timeout: a runtime that hangs must not delay the report
// that the node is not Ready. The version is then reported as Unknown.
func (c *Config) runtimeVersion(ctx context.Context) (kubecontainer.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	return c.Runtime.Version(ctx)
}

// declaredFeatures reports the declared features (KEP-5328), which do not change while the agent runs.
func declaredFeatures(names []string) stock.Setter {
	return func(_ context.Context, node *v1.Node) error {
		if names != nil {
			node.Status.DeclaredFeatures = names
		}
		return nil
	}
}

// apply calls the setters for a Node. A setter that fails may set none or some of its fields; the others are called
// nevertheless.
func apply(ctx context.Context, node *v1.Node, list []stock.Setter) {
	logger := klog.FromContext(ctx)
	for i, set := range list {
		logger.V(5).Info("Setting node status", "position", i, "node", klog.KObj(node))
		if err := set(ctx, node); err != nil {
			logger.Error(err, "Failed to set some node status fields", "node", klog.KObj(node))
		}
	}
}

func (s setters) applyConditions(ctx context.Context, node *v1.Node) {
	apply(ctx, node, s.pressure)
	apply(ctx, node, s.rest)
}
