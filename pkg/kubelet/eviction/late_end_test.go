package eviction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// slowSummary answers half a second after it has read what pods use, and calls answered before.
type slowSummary struct {
	*node
	answered func()
}

func (s *slowSummary) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	summary, err := s.node.Get(ctx, update)
	time.Sleep(500 * time.Millisecond)
	s.answered()
	return summary, err
}

// TestFailedVictimThatEndsDuringACollection: the kill of a victim has failed, and the pod ends after it was read by a
// collection and before that is used. It covers what is missing in those stats, so no other pod goes.
func TestFailedVictimThatEndsDuringACollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		victim := n.add("victim", 6*gi)
		n.add("other", 5*gi)
		n.available(500 * mi)
		var failed time.Time
		c := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"memory.available": "1Gi"}})
		c.Collector = n.collector(t, &slowSummary{n, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			// Another pod may go from three seconds after the failure on.
			if !failed.IsZero() && time.Since(failed) > 2900*time.Millisecond {
				victim.stopped, n.uncleaned["victim"] = true, true
			}
		}})
		c.Kill = func(_ context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.kills, failed = append(n.kills, r.Pod.Name), time.Now()
			ended := make(chan podkill.Ending, 1)
			ended <- podkill.Ending{Outcome: podkill.Failed, Err: errors.New("refused by the runtime")}
			return podkill.Begun, ended
		}
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) { wait(15 * time.Second) })
		expect(t, "evicted", n.killed(), []string{"victim"})
	})
}
