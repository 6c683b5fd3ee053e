package reclaimedresource

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

// Name is the name of the plugin, which is Katalyst's.
const Name = v1alpha1.ReclaimedResourcePressurePlugin

// The reclaimed resources of Katalyst, in thousandths of a CPU and in bytes.
const (
	MilliCPU v1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	Memory   v1.ResourceName = "resource.katalyst.kubewharf.io/reclaimed_memory"
)

// Resources are the resources that the rule considers, in this order.
var Resources = []v1.ResourceName{MilliCPU, Memory}

// Settings are those of the plugin.
type Settings struct {
	// Ratio is how many times the allocatable amount may be requested.
	Ratio rule.Millionths
	// MetFor is the grace period of the threshold, Grace that of the eviction.
	MetFor, Grace time.Duration
	Levels        arbiter.Levels
}

// Facts are what the rule decides on.
type Facts struct {
	Pods []*v1.Pod
	// Ending are the pods that are being stopped. What they request will be free.
	Ending map[types.UID]bool
	// Allocatable is what is allocatable of reclaimed resources. Resources that are missing are unknown.
	Allocatable v1.ResourceList
	// Met is the resource whose threshold was met in the last round, empty for none.
	Met v1.ResourceName
}

// Decide returns whether a threshold is met, and the pods to evict for it. Of two thresholds that are met, the one that
// counted in the last round does, so that two which are exceeded more by turns do not end each other's grace periods;
// then the one that is exceeded most, then that of the resource that is first in Resources. The driver measures how
// long a threshold has been met.
func Decide(f *Facts, s *Settings) rule.Finding {
	var worst *demand
	for _, name := range Resources {
		d, known := demandOf(f, s, name)
		if !known || !rule.Exceeds(d.requested, s.Ratio, d.allocatable) {
			continue
		}
		if worst == nil || name == f.Met || (worst.name != f.Met && d.moreThan(worst)) {
			worst = &d
		}
	}
	if worst == nil {
		return rule.Finding{}
	}
	top := rule.Rank(worst.pods)
	return rule.Finding{
		Threshold: arbiter.Threshold{
			Kind: arbiter.Hard, Scope: string(worst.name), Observed: float64(worst.requested),
			Target: float64(s.Ratio) / 1e6 * float64(worst.allocatable), Grace: s.MetFor, Candidates: top,
		},
		Top: top, GraceSeconds: new(int64(s.Grace / time.Second)),
	}
}

// demand is what reclaimed pods request of a resource, and the pods.
type demand struct {
	name                   v1.ResourceName
	allocatable, requested int64
	pods                   []rule.Candidate
}

// moreThan reports whether the resource is exceeded more than another one.
func (d *demand) moreThan(o *demand) bool {
	return float64(d.requested)*float64(o.allocatable) > float64(o.requested)*float64(d.allocatable)
}

// demandOf returns the demand for a resource, false if it is unknown what is allocatable. All candidates are reclaimed
// pods and, as with Katalyst, their requests count more than their priorities.
func demandOf(f *Facts, s *Settings, name v1.ResourceName) (demand, bool) {
	allocatable, known := f.Allocatable[name]
	if !known {
		return demand{}, false
	}
	d := demand{name: name, allocatable: max(0, allocatable.Value())}
	for _, pod := range f.Pods {
		if f.Ending[pod.UID] || rule.LevelOf(pod, &s.Levels) != rule.Reclaimed {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		q, ok := requests[name]
		if n := q.Value(); ok && n > 0 {
			d.requested += min(n, 1<<62-d.requested)
			d.pods = append(d.pods, rule.Candidate{UID: pod.UID, Level: rule.Reclaimed, Amount: float64(n)})
		}
	}
	return d, true
}
