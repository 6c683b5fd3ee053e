package generator

import (
	"context"
	"net"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

// Generator generates pod statuses. It is safe for concurrent use.
type Generator struct {
	cfg Config
}

// New returns a generator. It starts no goroutine.
func New(cfg Config) *Generator { return &Generator{cfg: cfg} }

// Generate returns the status of a pod whose state in the runtime is given. It is called by the worker of the pod,
// while it synchronizes, terminates or cleans up the pod. The pod must have its allocated resources. terminal is true
// when no container of the pod runs or will be started; the status manager's conditions about a resize are then
// cleared.
func (g *Generator) Generate(
	ctx context.Context, pod *v1.Pod, runtime *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus {
	logger := klog.FromContext(ctx)
	logger.V(3).Info("Generating pod status", "pod", klog.KObj(pod), "podIsTerminal", terminal)
	previous, found := g.cfg.Statuses.GetPodStatus(pod.UID)
	if !found {
		previous = pod.Status
	}
	status, notes := podstatus.Generate(podstatus.Input{
		Pod:               pod,
		Runtime:           runtime,
		Previous:          previous,
		Terminal:          terminal,
		Evict:             g.eviction(pod),
		Network:           podstatus.Network{HostIPs: g.hostIPs(ctx), NodeIPs: g.cfg.NodeIPs},
		Features:          g.cfg.Features.Features,
		Lookups:           g.lookups(ctx, pod),
		RecursiveReadOnly: g.recursiveReadOnly(ctx, pod),
		ResizeConditions:  g.resizeConditions(pod, terminal),
	})
	logNotes(logger, pod, notes)
	g.warnOfFamilyChange(logger, pod, previous.HostIP, status.HostIP)
	logger.V(4).Info("Got phase for pod", "pod", klog.KObj(pod), "oldPhase", previous.Phase, "phase", status.Phase)
	return status
}

func (g *Generator) eviction(pod *v1.Pod) *podstatus.Eviction {
	for _, evictor := range g.cfg.Evictors {
		if r := evictor.ShouldEvict(pod); r.Evict {
			return &podstatus.Eviction{Reason: r.Reason, Message: r.Message}
		}
	}
	return nil
}

// hostIPs returns nil while the node is not registered.
func (g *Generator) hostIPs(ctx context.Context) []net.IP {
	if g.cfg.HostIPs == nil {
		return nil
	}
	ips, err := g.cfg.HostIPs(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("Cannot get host IPs", "err", err)
		return nil
	}
	return ips
}

func (g *Generator) resizeConditions(pod *v1.Pod, terminal bool) []*v1.PodCondition {
	if terminal {
		g.cfg.Resizes.ClearPodResizeInProgressCondition(pod.UID)
		g.cfg.Resizes.ClearPodResizePendingCondition(pod.UID)
		return nil
	}
	return g.cfg.Resizes.GetPodResizeConditions(pod.UID)
}

// recursiveReadOnly is false when the runtime does not report its handlers.
func (g *Generator) recursiveReadOnly(ctx context.Context, pod *v1.Pod) bool {
	if g.cfg.RuntimeClasses == nil || g.cfg.RuntimeHandlers == nil {
		return false
	}
	logger := klog.FromContext(ctx)
	name, err := g.cfg.RuntimeClasses.LookupRuntimeHandler(pod.Spec.RuntimeClassName)
	if err != nil {
		logger.Error(err, "Failed to look up the runtime handler", "pod", klog.KObj(pod),
			"runtimeClassName", pod.Spec.RuntimeClassName)
		return false
	}
	handlers := g.cfg.RuntimeHandlers()
	for i := range handlers {
		if handlers[i].Name == name {
			return handlers[i].SupportsRecursiveReadOnlyMounts
		}
	}
	if len(handlers) > 0 {
		logger.Error(nil, "Unknown runtime handler", "pod", klog.KObj(pod), "runtimeHandlerName", name)
	}
	return false
}

func logNotes(logger klog.Logger, pod *v1.Pod, notes []podstatus.Note) {
	for _, n := range notes {
		fields := []any{"pod", klog.KObj(pod), "podUID", pod.UID}
		for _, f := range []struct{ key, value string }{
			{"containerName", n.Container}, {"volumeName", n.Volume}, {"phase", string(n.Phase)},
		} {
			if f.value != "" {
				fields = append(fields, f.key, f.value)
			}
		}
		if n.Problem {
			logger.Error(n.Err, n.Text, fields...)
		} else {
			logger.V(4).Info(n.Text, append(fields, "err", n.Err)...)
		}
	}
}
