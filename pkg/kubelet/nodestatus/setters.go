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

// versionPatience is how long the runtime may take to tell its version; it does so from memory.
const versionPatience = 5 * time.Second

// setters fill in the status of a node in the order facts, pressure, rest. Facts may ask the runtime and DNS and can be
// slow; the others answer from memory. Ready must be the last condition, and it looks at the capacity that the facts
// set.
type setters struct {
	facts    []stock.Setter
	pressure []stock.Setter
	rest     []stock.Setter
}

func (u *Updater) newSetters(sink eventSink) setters {
	c, now := &u.cfg, u.cfg.Clock.Now
	noteCordon := schedulability(sink)
	return setters{
		facts: u.factSetters(sink),
		pressure: []stock.Setter{
			u.sighted(v1.NodeMemoryPressure, stock.MemoryPressureCondition(now, c.Pressure.IsUnderMemoryPressure, sink.status)),
			u.sighted(v1.NodeDiskPressure, stock.DiskPressureCondition(now, c.Pressure.IsUnderDiskPressure, sink.status)),
			u.sighted(v1.NodePIDPressure, stock.PIDPressureCondition(now, c.Pressure.IsUnderPIDPressure, sink.status)),
		},
		rest: []stock.Setter{
			stock.ReadyCondition(now, c.State.RuntimeErrors, c.State.NetworkErrors, c.State.StorageErrors,
				c.ContainerManager.Status, c.Shutdown.ShutdownStatus, sink.status, c.Reporting.LocalStorageCapacityIsolation),
			stock.VolumesInUse(c.Volumes.ReconcilerStatesHasBeenSynced, c.Volumes.GetVolumesInUse),
			func(ctx context.Context, node *v1.Node) error {
				noteCordon(klog.FromContext(ctx), node)
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
			res.GetDevicePluginResourceCapacity, res.GetNodeAllocatableReservation, sink.plain, r.LocalStorageCapacityIsolation),
		stock.VersionInfo(c.Machine.VersionInfo, c.Runtime.Type, c.runtimeVersion),
		stock.DaemonEndpoints(&r.Endpoints),
		stock.Images(r.MaxImages, c.Images.GetImageList),
		stock.GoRuntime(),
		stock.RuntimeHandlers(c.State.RuntimeHandlers),
		stock.NodeFeatures(c.State.RuntimeFeatures),
		declaredFeatures(r.DeclaredFeatures),
	}
}

// runtimeVersion asks the runtime, but does not wait long: one that hangs must not keep everybody from reading that the
// node is not Ready. The version is then reported as Unknown.
func (c *Config) runtimeVersion(ctx context.Context) (kubecontainer.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	return c.Runtime.Version(ctx)
}

// declaredFeatures reports the features found at start (KEP-5328); they do not change while the agent runs.
func declaredFeatures(names []string) stock.Setter {
	return func(_ context.Context, node *v1.Node) error {
		if names != nil {
			node.Status.DeclaredFeatures = names
		}
		return nil
	}
}

// apply runs the setters on node. One that fails leaves its fields as they were or half set; the others count all the
// same.
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
