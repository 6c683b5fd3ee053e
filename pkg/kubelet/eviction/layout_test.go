package eviction

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// TestTheLayoutChangesWhileTheManagerRuns: an image disk is attached, and detached again. From the next round on pods
// are measured by what they keep on each disk, and the derived thresholds are those of the disk.
func TestTheLayoutChangesWhileTheManagerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("layers", gi).disk = 30 * gi
		n.add("logs", gi).logs = 20 * gi
		n.add("more-layers", gi).disk = 20 * gi
		n.available(20 * gi)
		n.full(50 * gi)
		c := n.config(t, settings.ThresholdConfig{
			Hard: map[string]string{"nodefs.available": "10Gi", "imagefs.available": "5Gi"},
		})
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute + 5*time.Second)
			n.mu.Lock()
			n.images = &diskState{capacity: 60 * gi, used: 50 * gi}
			n.mu.Unlock()
			wait(time.Minute + 5*time.Second)
			n.full(5 * gi)
			wait(25 * time.Second)
			expect(t, "who fills the node's disk", n.killed(), []string{"logs/1"})
			n.mu.Lock()
			n.images.used = 58 * gi
			n.mu.Unlock()
			wait(25 * time.Second)
			expect(t, "who fills the disk of images", n.killed(), []string{"logs/1", "layers/1"})
			n.mu.Lock()
			n.images = nil
			n.mu.Unlock()
			wait(time.Minute + 5*time.Second)
			n.full(7 * gi)
			wait(25 * time.Second)
			expect(t, "who fills the only disk", n.killed(), []string{"logs/1", "layers/1", "more-layers/1"})
		})
	})
}
