package eviction

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A threshold in dry run may be met for weeks, while pods come and go.
func TestWhatWasCountedIsBounded(t *testing.T) {
	registerDryRunMetric()
	var r rehearsals
	v := policy.Victim{Signal: snapshot.MemoryAvailable, Metric: snapshot.MemoryAvailable.String(), Hard: true}
	for i := range 3 * mostCounted {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}
		v.Pod = &snapshot.Pod{Facts: &snapshot.Facts{UID: pod.UID, Object: pod}}
		r.count(&v)
		if n := len(r.counted[causeOf(&v)]); n > mostCounted {
			t.Fatalf("%d pods are remembered", n)
		}
	}
}
