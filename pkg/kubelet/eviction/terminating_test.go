package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// The agent stops a pod, and no eviction of this run of the agent has begun that: it was evicted before a restart, or
// its active deadline is exceeded. It covers what a soft threshold misses, and has less time than a victim would have,
// so that no other pod is evicted.
func TestSoftThresholdWaitsForAPodThatTheAgentStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("stopping", 20*gi)
		n.add("other", 4*gi, priority(1))
		n.available(500 * mi)
		c := n.config(t, settings.ThresholdConfig{
			Soft:             map[string]string{"memory.available": "1Gi"},
			SoftGracePeriods: map[string]string{"memory.available": "5s"},
		})
		end := time.Now().Add(40 * time.Second)
		c.TerminationRequested = func(uid types.UID) bool { return uid == "stopping" }
		c.TerminationDeadline = func(types.UID) time.Time { return end }
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "kills while it is stopping", n.killed(), nil)
			wait(time.Minute)
			expect(t, "kills when it is overdue", n.killed(), []string{"other/60"})
		})
	})
}
