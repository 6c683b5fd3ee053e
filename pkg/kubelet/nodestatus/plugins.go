package nodestatus

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

const (
	reasonPluginConditionMet    = "EvictionPluginConditionMet"
	reasonPluginConditionNotMet = "EvictionPluginConditionNotMet"

	// maxPluginsInMessage is the number of plugins that a message names.
	maxPluginsInMessage = 8
)

// PluginCondition is a node condition that eviction plugins report. Its type on the Node is its name with the prefix
// node.katalyst.kubewharf.io/, so that it is none of the Node's own conditions.
type PluginCondition struct {
	// Name has no prefix, and at most 63 characters.
	Name string
	// True is the status of the condition, which is True or False.
	True            bool
	Reason, Message string
}

// NewPluginCondition returns a condition with reason and message. The message names the first of the plugins, which
// must be in a stable order. Without plugins it is a condition of an earlier run of the agent.
func NewPluginCondition(name string, met bool, plugins []string) PluginCondition {
	c := PluginCondition{Name: name, True: met, Reason: reasonPluginConditionNotMet}
	if met {
		c.Reason, c.Message = reasonPluginConditionMet, "reported by eviction plugins"
	} else {
		c.Message = "no longer reported by eviction plugins"
	}
	if len(plugins) == 0 {
		c.Message += ", last before the start of the kubelet"
	} else {
		c.Message += ": " + pluginNames(plugins)
	}
	return c
}

func pluginNames(plugins []string) string {
	if more := len(plugins) - maxPluginsInMessage; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(plugins[:maxPluginsInMessage], ", "), more)
	}
	return strings.Join(plugins, ", ")
}

// setPluginConditions is a setter. It sets the plugin conditions, and removes all others with their prefix.
func (u *Updater) setPluginConditions(_ context.Context, node *v1.Node) error {
	var list []PluginCondition
	if u.cfg.PluginConditions != nil {
		list = u.cfg.PluginConditions()
	}
	status := &node.Status
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.NodeCondition) bool {
		name, ours := strings.CutPrefix(string(c.Type), arbiter.ConditionPrefix)
		return ours && !slices.ContainsFunc(list, func(p PluginCondition) bool { return p.Name == name })
	})
	now := metav1.NewTime(u.cfg.Clock.Now())
	for i := range list {
		setPluginCondition(status, &list[i], now)
	}
	return nil
}

// setPluginCondition sets one condition. A new one comes before Ready: clients take Ready for the last condition.
func setPluginCondition(status *v1.NodeStatus, p *PluginCondition, now metav1.Time) {
	c := v1.NodeCondition{
		Type: v1.NodeConditionType(arbiter.ConditionPrefix + p.Name), Status: v1.ConditionFalse,
		Reason: p.Reason, Message: p.Message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if p.True {
		c.Status = v1.ConditionTrue
	}
	indexOf := func(t v1.NodeConditionType) int {
		return slices.IndexFunc(status.Conditions, func(o v1.NodeCondition) bool { return o.Type == t })
	}
	if i := indexOf(c.Type); i >= 0 {
		if before := &status.Conditions[i]; before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		status.Conditions[i] = c
		return
	}
	at := indexOf(v1.NodeReady)
	if at < 0 {
		at = len(status.Conditions)
	}
	status.Conditions = slices.Insert(status.Conditions, at, c)
}
