package memorygrowth

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Name is the name of the plugin.
const Name = v1alpha1.MemoryGrowthPlugin

// Settings may change while the plugin is in use.
type Settings struct {
	// Horizon is how far ahead a threshold may be met for a pod to be requested.
	Horizon time.Duration
	// MonitoringPeriod is that of the eviction manager. A round that is older than two periods is not used.
	MonitoringPeriod time.Duration
}

// Plugin implements plugin.Plugin. Its calls are made one at a time.
type Plugin struct {
	settings func() Settings
	// since has, for each pod that was a candidate in the last round, the number of the first decision since which it has
	// been one without interruption.
	since map[types.UID]uint64
}

var _ plugin.Plugin = (*Plugin)(nil)

// New returns the plugin. Function settings is called once for each round.
func New(settings func() Settings) *Plugin { return &Plugin{settings: settings} }

// EvictPods requests at most one pod, which is a candidate since an earlier decision.
func (p *Plugin) EvictPods(_ context.Context, v *plugin.View) (*arbiter.Demand, error) {
	settings := p.settings()
	if v.Node == nil || v.Node.Decision.Growth == nil ||
		v.Taken.Sub(v.Node.Snapshot.Taken) > 2*settings.MonitoringPeriod {
		p.since = nil
		return &arbiter.Demand{}, nil
	}
	growth, number := v.Node.Decision.Growth, v.Node.Decision.Number
	threshold, left := firstMet(growth, settings.Horizon)
	found := candidates(growth, threshold, v)
	p.since = continued(p.since, found, number)
	chosen := fastest(found, func(uid types.UID) bool { return p.since[uid] < number })
	if chosen == nil {
		return &arbiter.Demand{}, nil
	}
	return &arbiter.Demand{Pods: []arbiter.PodDemand{{UID: chosen.Pod.UID, Reason: reason(chosen, threshold, left)}}}, nil
}

// ThresholdMet implements plugin.Plugin: the plugin has no threshold.
func (p *Plugin) ThresholdMet(context.Context, *plugin.View) (*arbiter.Threshold, error) {
	return &arbiter.Threshold{}, nil
}

// TopEvictionPods implements plugin.Plugin: the plugin has no threshold.
func (p *Plugin) TopEvictionPods(_ context.Context, _ *plugin.View, q arbiter.Question) (*arbiter.Reply, error) {
	return &arbiter.Reply{Question: q}, nil
}

// firstMet returns the threshold that is met first, within the horizon, and the time until then; nil if there is none.
func firstMet(g *policy.MemoryGrowth, horizon time.Duration) (first *policy.ThresholdGrowth, left time.Duration) {
	for i := range g.Thresholds {
		t := &g.Thresholds[i]
		if in, ok := t.MetWithin(horizon); ok && (first == nil || in < left) {
			first, left = t, in
		}
	}
	return first, left
}

// significantShare: the growth of a pod counts from this fraction (one tenth) of all growth on. Less does not delay the
// threshold noticeably.
const significantShare = 10

// candidates returns the pods above their requests whose eviction would delay the threshold, in the order of UIDs; none
// without a threshold.
func candidates(g *policy.MemoryGrowth, t *policy.ThresholdGrowth, v *plugin.View) (found []*policy.PodGrowth) {
	if t == nil {
		return nil
	}
	for i := range g.Pods {
		pod := &g.Pods[i]
		if pod.AboveRequest && pod.Rate >= t.Rate/significantShare && v.Pod(string(pod.Pod.UID)) != nil {
			found = append(found, pod)
		}
	}
	return found
}

// continued returns since when each of the candidates of a decision has been one.
func continued(since map[types.UID]uint64, found []*policy.PodGrowth, number uint64) map[types.UID]uint64 {
	next := make(map[types.UID]uint64, len(found))
	for _, pod := range found {
		next[pod.Pod.UID] = number
		if first, ok := since[pod.Pod.UID]; ok {
			next[pod.Pod.UID] = first
		}
	}
	return next
}

// fastest returns the pod that grows fastest among those that are eligible, nil if there is none. Of equal ones it is
// the first.
func fastest(list []*policy.PodGrowth, eligible func(types.UID) bool) (most *policy.PodGrowth) {
	for _, pod := range list {
		if eligible(pod.Pod.UID) && (most == nil || pod.Rate > most.Rate) {
			most = pod
		}
	}
	return most
}

// reason returns why the pod is requested.
func reason(pod *policy.PodGrowth, t *policy.ThresholdGrowth, left time.Duration) string {
	whose := "the node's"
	if t.Signal == snapshot.AllocatableMemoryAvailable {
		whose = "the pods'"
	}
	return fmt.Sprintf("memory usage grows by %s; at %s growth of %s %s reaches the threshold %s in %s",
		perSecond(pod.Rate), whose, perSecond(t.Rate), t.Signal, t.Threshold, left.Round(time.Second))
}

// perSecond formats a rate in bytes per second.
func perSecond(rate float64) string { return fmt.Sprintf("%.1f MiB/s", rate/(1<<20)) }
