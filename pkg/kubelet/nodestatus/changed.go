package nodestatus

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusChanged returns whether two statuses differ in more than heartbeat times and the order of conditions.
func statusChanged(before, after *v1.NodeStatus) bool {
	if conditionsChanged(before.Conditions, after.Conditions) {
		return true
	}
	// Shallow copies: only the field Conditions is replaced.
	b, a := *before, *after
	b.Conditions, a.Conditions = nil, nil
	return !apiequality.Semantic.DeepEqual(&b, &a)
}

// conditionsChanged is statusChanged for the conditions alone.
func conditionsChanged(before, after []v1.NodeCondition) bool {
	return len(before) != len(after) || !apiequality.Semantic.DeepEqual(withoutHeartbeat(before), withoutHeartbeat(after))
}

// withoutHeartbeat returns a copy without heartbeat times, sorted by type.
func withoutHeartbeat(conditions []v1.NodeCondition) []v1.NodeCondition {
	plain := slices.Clone(conditions)
	slices.SortStableFunc(plain, func(a, b v1.NodeCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	for i := range plain {
		plain[i].LastHeartbeatTime = metav1.Time{}
	}
	return plain
}
