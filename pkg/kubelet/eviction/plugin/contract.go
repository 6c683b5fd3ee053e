package plugin

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// Plugin is one eviction plugin, in the agent or behind a socket. The three calls are those of Katalyst's protocol
// evictionplugin.v1alpha1. The driver makes one call of a plugin at a time, and ends ctx after the call time-out; a
// plugin must return soon after that. A call that a plugin does not implement returns the zero value and no error.
//
// An error counts as a missing answer. Parts of an answer that are invalid are left out by the arbiter, or by the
// adapter that decodes them; the other parts count.
type Plugin interface {
	// EvictPods returns the pods that the plugin requests to be evicted, whatever its threshold.
	EvictPods(ctx context.Context, v *View) (*arbiter.Demand, error)
	// ThresholdMet returns whether the threshold of the plugin is met.
	ThresholdMet(ctx context.Context, v *View) (*arbiter.Threshold, error)
	// TopEvictionPods returns the pods to evict for a threshold that has been met for its grace period.
	TopEvictionPods(ctx context.Context, v *View, q arbiter.Question) (*arbiter.Reply, error)
}

// View is what plugins are given in one round, or with a question. Plugins share it: it must not be modified.
type View struct {
	// Taken is when the round began, on the agent's monotonic clock.
	Taken time.Time
	// Pods are the active pods that plugins may name, in the order of UIDs.
	Pods []*v1.Pod
	// Node is the last round of the eviction manager, with the observed signals, the usage of pods and the decision; nil
	// before the first. It is for plugins in the agent.
	Node *eviction.Round
	// Records are the eviction records of the candidates of a question, nil for other calls.
	Records map[types.UID]records.Record
}

// Pod returns the pod with a UID, nil if plugins may not name it.
func (v *View) Pod(uid string) *v1.Pod {
	for _, pod := range v.Pods {
		if string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}
