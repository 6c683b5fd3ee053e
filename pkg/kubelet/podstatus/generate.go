package podstatus

import (
	v1 "k8s.io/api/core/v1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Generate computes the status of a pod, and notes for the log. It is deterministic. It may be called concurrently,
// also for the same pod, if the lookups may.
func Generate(in Input) (v1.PodStatus, []Note) {
	if in.Runtime == nil {
		in.Runtime = &kubecontainer.PodStatus{ID: in.Pod.UID, Name: in.Pod.Name, Namespace: in.Pod.Namespace}
	}
	g := &generation{Input: in}
	out := v1.PodStatus{QOSClass: v1qos.GetPodQOS(in.Pod)}
	g.setPodIPs(&out)
	g.setContainerStatuses(&out)
	g.setPodResources(&out)
	// The phase depends on the container states only, not on the probes that set started and ready.
	g.setPhase(&out)
	// Conditions depend on started and ready, so the probes come first.
	if in.Lookups.Probes != nil {
		in.Lookups.Probes(&out)
	}
	if in.Lookups.Devices != nil {
		in.Lookups.Devices(&out)
	}
	g.setConditions(&out)
	g.setHostIPs(&out)
	return out, g.notes
}

// generation is one call of Generate.
type generation struct {
	Input
	notes []Note
}

func (g *generation) note(n Note) { g.notes = append(g.notes, n) }
