package eviction

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// exiting is a summary that has nothing of a pod whose containers have exited, as with containerd, though its worker
// has not finished and its cgroup is there.
type exiting struct {
	*node
	pod string
	// exited is when the containers have exited.
	exited time.Time
}

func (e *exiting) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	s, err := e.node.Get(ctx, update)
	if err == nil && time.Now().After(e.exited) {
		s.Pods = slices.DeleteFunc(s.Pods, func(p statsapi.PodStats) bool { return p.PodRef.UID == e.pod })
	}
	return s, err
}

// TestWhatAStoppingPodHasOnTheDiskStaysExpected: a pod that fills the disk is evicted for a limit of its own. The stats
// have nothing of it once its containers have exited, and its volumes take a while to be cleaned up. What it holds is
// on its way all the time, so that no other pod is evicted.
func TestWhatAStoppingPodHasOnTheDiskStaysExpected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.disk.used = 95 * gi
		writer := n.add("writer", gi, storageLimited(5*gi))
		writer.disk = 40 * gi
		n.add("neighbour", gi).disk = 8 * gi
		n.available(16 * gi)
		c := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": "10Gi"}})
		c.LocalStorageCapacityIsolation = true
		c.Memory = &kernel{node: n}
		c.Collector = n.collector(t, &exiting{node: n, pod: "writer", exited: time.Now().Add(2 * time.Second)})
		c.Kill = func(_ context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.kills = append(n.kills, r.Pod.Name)
			ended := make(chan podkill.Ending, 1)
			time.AfterFunc(5*time.Second, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				writer.stopped, n.uncleaned["writer"] = true, true
				ended <- podkill.Ending{Outcome: podkill.Stopped}
			})
			return podkill.Begun, ended
		}
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
			wait(25 * time.Second)
			n.mu.Lock()
			n.disk.used, n.uncleaned["writer"] = 55*gi, false
			n.mu.Unlock()
			wait(30 * time.Second)
			expect(t, "kills", n.killed(), []string{"writer"})
		})
	})
}
