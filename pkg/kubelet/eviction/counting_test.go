package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// swapping is a kernel whose pods each have a gibibyte in swap, which is full.
type swapping struct{ *kernel }

func (k swapping) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := k.kernel.ReadMemory(how)
	for _, m := range r.ByPod {
		if how.Swap {
			m.WorkingSet.Amount += snapshot.Bytes(gi)
		}
	}
	return r
}

func (k swapping) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return onlyPods(k.ReadMemory(how), uids)
}

// TestAnotherWayOfCountingIsNoGrowth: what pods have in swap counts as used by them from now on. None of them grows.
func TestAnotherWayOfCountingIsNoGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range 60 {
			n.add(fmt.Sprint("pod-", i), 200*mi, memoryRequest(100*mi))
		}
		n.available(gi + 100*mi)
		n.killTakes = time.Second
		c := n.config(t, hard("1Gi"))
		c.Memory = swapping{&kernel{node: n}}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			m.SetOptions(optionsWith(func(o *settings.Options) { o.CountSwap = true }))
			n.available(gi - 50*mi)
			wait(10 * time.Second)
			expect(t, "kills", len(n.killed()), 1)
		})
	})
}
