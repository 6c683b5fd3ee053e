package eviction

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A threshold in dry run may be met for weeks, while pods come and go.
func TestCountedDryRunPodsAreBounded(t *testing.T) {
	registerDryRunMetric()
	var c dryRunCounter
	cause := policy.Cause{Kind: policy.HardThreshold, Signal: snapshot.MemoryAvailable}
	for i := range 3 * mostCounted {
		c.add(cause, types.UID(fmt.Sprint(i)))
		if n := len(c.counted[cause]); n > mostCounted {
			t.Fatalf("%d pods are remembered", n)
		}
	}
}
