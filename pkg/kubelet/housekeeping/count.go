package housekeeping

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// countPods sets the metrics of configured, active and mirror pods.
type countPods struct{ active ActiveFilter }

func (countPods) Name() string { return "pod counts" }

func (t countPods) Run(_ context.Context, r *round) error {
	for isStatic, n := range countStatic(r.pods) {
		metrics.DesiredPodCount.WithLabelValues(staticLabel(isStatic)).Set(float64(n))
	}
	for isStatic, n := range countStatic(t.active.FilterActive(r.pods)) {
		metrics.ActivePodCount.WithLabelValues(staticLabel(isStatic)).Set(float64(n))
	}
	metrics.MirrorPodCount.Set(float64(len(r.mirrorPods)))
	return nil
}

// countStatic counts static pods under true and other pods under false, without mirror pods.
func countStatic(pods []*v1.Pod) map[bool]int {
	n := map[bool]int{true: 0, false: 0}
	for _, pod := range pods {
		if !kubetypes.IsMirrorPod(pod) {
			n[kubetypes.IsStaticPod(pod)]++
		}
	}
	return n
}

func staticLabel(isStatic bool) string {
	if isStatic {
		return "true"
	}
	return ""
}

// countWorkers sets the metric of pod workers. It sets all combinations of labels, so that none has an outdated value.
type countWorkers struct{}

func (countWorkers) Name() string { return "worker counts" }

func (countWorkers) Run(_ context.Context, r *round) error {
	counts := make(map[workLabels]int)
	for _, work := range []podlifecycle.Work{
		podlifecycle.WorkSync, podlifecycle.WorkTerminating, podlifecycle.WorkTerminated,
	} {
		for _, k := range []podworkers.KnownPod{
			{HasConfig: true}, {HasConfig: true, Static: true}, {HasConfig: true, Orphan: true},
			{HasConfig: true, Orphan: true, Static: true}, {Orphan: true},
		} {
			k.State = work
			counts[labelsOf(k)] = 0
		}
	}
	for _, k := range r.known {
		counts[labelsOf(k)]++
	}
	for l, n := range counts {
		metrics.WorkingPodCount.WithLabelValues(l.lifecycle, l.config, l.static).Set(float64(n))
	}
	return nil
}

// workLabels are the labels of the metric working_pods.
type workLabels struct{ lifecycle, config, static string }

func labelsOf(k podworkers.KnownPod) workLabels {
	switch {
	case !k.HasConfig:
		return workLabels{k.State.String(), "runtime_only", "unknown"}
	case k.Orphan:
		return workLabels{k.State.String(), "orphan", staticLabel(k.Static)}
	}
	return workLabels{k.State.String(), "desired", staticLabel(k.Static)}
}
