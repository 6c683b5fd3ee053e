package nodestatus

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	stock "k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

const (
	// reasonSignalUnknown is the reason of a pressure condition that is False although one of its signals is unknown.
	reasonSignalUnknown = "EvictionSignalUnknown"
	// unknownSince is part of the message of each condition with an unknown signal. Such a message of an earlier run is
	// recognized by it.
	unknownSince = " cannot be seen since "
)

// stockText has stock's reason and message of a condition.
type stockText struct{ reason, message string }

var stockTexts = map[v1.NodeConditionType]map[v1.ConditionStatus]stockText{
	v1.NodeMemoryPressure: {
		v1.ConditionTrue:  {"KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
		v1.ConditionFalse: {"KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
	},
	v1.NodeDiskPressure: {
		v1.ConditionTrue:  {"KubeletHasDiskPressure", "kubelet has disk pressure"},
		v1.ConditionFalse: {"KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
	},
	v1.NodePIDPressure: {
		v1.ConditionTrue:  {"KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
		v1.ConditionFalse: {"KubeletHasSufficientPID", "kubelet has sufficient PID available"},
	},
}

// withUnknownSignals adds the unknown signals of a pressure condition, and since when they are unknown, to its message.
// The condition does not become Unknown, since that would remove the taint while a disk is full: if it is True, it
// stays True with the same reason; if it is False, it stays False with the reason EvictionSignalUnknown. When all
// signals are known again, reason and message are those of stock.
func (u *Updater) withUnknownSignals(t v1.NodeConditionType, set stock.Setter) stock.Setter {
	return func(ctx context.Context, node *v1.Node) error {
		if err := set(ctx, node); err != nil || u.cfg.UnknownSignals == nil {
			return err
		}
		signals, since := u.cfg.UnknownSignals(t)
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == t {
				setText(c, signals, since)
			}
		}
		return nil
	}
}

// setText sets reason and message of a pressure condition. It does not change a message that is not one of its own.
func setText(c *v1.NodeCondition, signals []string, since time.Time) {
	text, ok := stockTexts[c.Type][c.Status]
	unknown := len(signals) > 0
	if !ok || (!unknown && !strings.Contains(c.Message, unknownSince)) {
		return
	}
	c.Reason, c.Message = text.reason, text.message
	if !unknown {
		return
	}
	c.Message += fmt.Sprintf(" as far as is known: %s%s%s", strings.Join(signals, ", "), unknownSince,
		since.UTC().Format(time.RFC3339))
	if c.Status == v1.ConditionFalse {
		c.Reason = reasonSignalUnknown
	}
}
