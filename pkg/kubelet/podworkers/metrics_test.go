package podworkers

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

const gauges = `
# HELP plimsoll_pod_terminating_oldest_seconds [ALPHA] How long the oldest termination of a pod that is under way has taken so far, 0 if there is none.
# TYPE plimsoll_pod_terminating_oldest_seconds gauge
plimsoll_pod_terminating_oldest_seconds OLDEST
# HELP plimsoll_pod_workers [ALPHA] Number of pod workers by the phase of their pods.
# TYPE plimsoll_pod_workers gauge
plimsoll_pod_workers{phase="Finished"} FINISHED
plimsoll_pod_workers{phase="Known"} 1
plimsoll_pod_workers{phase="Syncing"} 2
plimsoll_pod_workers{phase="Terminated"} 0
plimsoll_pod_workers{phase="Terminating"} TERMINATING
# HELP plimsoll_pod_workers_stuck [ALPHA] Number of pod workers that are terminating pods whose containers should have ended by now.
# TYPE plimsoll_pod_workers_stuck gauge
plimsoll_pod_workers_stuck STUCK
`

func TestGauges(t *testing.T) {
	bubble(t, func(n *node) {
		registry := metrics.NewKubeRegistry()
		registry.CustomMustRegister(n.Collector())
		want := func(when string, values ...string) {
			t.Helper()
			text := strings.NewReplacer(values...).Replace(gauges)
			// Twice: a collection changes nothing.
			for range 2 {
				if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
		release := make(chan struct{})
		n.script.onTerminate = func(context.Context, podsync.TerminateRequest) error { <-release; return nil }
		well, first, second, leaving := newPod("well"), staticPod("s", "s1"), staticPod("s", "s2"), newPod("leaving")
		n.start(well)
		n.start(first)
		n.start(second)
		n.start(leaving)
		before := observed(t, "kill")
		n.send(kubetypes.SyncPodKill, leaving, &KillOptions{GracePeriod: new(int64(2))})
		n.advance(5 * time.Second)
		want("while it stops", "OLDEST", "5", "FINISHED", "0", "TERMINATING", "1", "STUCK", "0")
		n.advance(8 * time.Second)
		want("too long", "OLDEST", "13", "FINISHED", "0", "TERMINATING", "1", "STUCK", "1")
		if count, _ := observed(t, "kill").minus(before); count != 0 {
			t.Error("a termination was counted before its end")
		}
		close(release)
		n.advance(2 * time.Second)
		want("when it is over", "OLDEST", "0", "FINISHED", "1", "TERMINATING", "0", "STUCK", "0")
		if count, seconds := observed(t, "kill").minus(before); count != 1 || seconds != 13 {
			t.Errorf("%d terminations of %v s were counted, want one of 13", count, seconds)
		}
		// The end of a pod that never ran is no termination.
		n.send(kubetypes.SyncPodKill, second)
		n.advance(time.Minute)
		n.expectPhase(second, 5)
		if count, _ := observed(t, "kill").minus(before); count != 1 {
			t.Errorf("%d terminations were counted, want one", count)
		}
		synctest.Wait()
	})
}

// histogram is the state of one.
type histogram struct {
	count   uint64
	seconds float64
}

func (h histogram) minus(o histogram) (uint64, float64) {
	return h.count - o.count, h.seconds - o.seconds
}

func observed(t *testing.T, cause string) histogram {
	t.Helper()
	RegisterMetrics()
	terminatingSeconds.WithLabelValues(cause) // creates the series
	found, err := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer, "plimsoll_pod_terminating_seconds",
		map[string]string{"cause": cause})
	if err != nil {
		t.Fatal(err)
	}
	return histogram{found.GetAggregatedSampleCount(), found.GetAggregatedSampleSum()}
}
