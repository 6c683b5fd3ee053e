package eviction

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestCountedDryRunPodsAreBounded: a threshold in dry run may be met for weeks, while pods come and go.
func TestCountedDryRunPodsAreBounded(t *testing.T) {
	registerDryRunMetric()
	var c dryRunCounter
	cause := policy.Cause{Kind: policy.HardThreshold, Signal: snapshot.MemoryAvailable}
	for i := range 3 * maxCountedPods {
		c.add(cause, types.UID(fmt.Sprint(i)))
		if n := len(c.counted[cause]); n > maxCountedPods {
			t.Fatalf("%d pods are remembered", n)
		}
	}
}
