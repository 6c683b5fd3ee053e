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
	// reasonBlind is the reason of a pressure condition that is False since nothing else is known.
	reasonBlind = "EvictionSignalUnknown"
	// unseen is what messages of blind conditions have in common, by which they are known again.
	unseen = " cannot be seen since "
)

// wording is what stock says of a condition.
type wording struct{ reason, message string }

var wordings = map[v1.NodeConditionType]map[v1.ConditionStatus]wording{
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

// sighted lets a pressure condition say which of its signals cannot be seen, and since when. It never becomes Unknown,
// since that would lift the taint while a disk is full: what is True stays so and keeps its reason; what is False stays
// False with a reason of its own. When the signals are back the condition says again what stock says.
func (u *Updater) sighted(t v1.NodeConditionType, set stock.Setter) stock.Setter {
	return func(ctx context.Context, node *v1.Node) error {
		if err := set(ctx, node); err != nil || u.cfg.Blind == nil {
			return err
		}
		signals, since := u.cfg.Blind(t)
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == t {
				describe(c, signals, since)
			}
		}
		return nil
	}
}

func describe(c *v1.NodeCondition, signals []string, since time.Time) {
	words, known := wordings[c.Type][c.Status]
	blind := len(signals) > 0
	if !known || (!blind && !strings.Contains(c.Message, unseen)) {
		return
	}
	c.Reason, c.Message = words.reason, words.message
	if !blind {
		return
	}
	c.Message += fmt.Sprintf(" as far as is known: %s%s%s", strings.Join(signals, ", "), unseen,
		since.UTC().Format(time.RFC3339))
	if c.Status == v1.ConditionFalse {
		c.Reason = reasonBlind
	}
}
