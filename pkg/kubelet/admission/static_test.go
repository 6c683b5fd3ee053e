package admission_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
)

type noStatuses struct{ w *world }

func (s noStatuses) RemoveOrphanedStatuses(_ klog.Logger, keep map[types.UID]bool) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	for uid := range s.w.statuses {
		if !keep[uid] {
			delete(s.w.statuses, uid)
		}
	}
}

func (w *world) cleaner() *housekeeping.Cleaner {
	return housekeeping.New(housekeeping.Config{
		ShuttingDown: func() bool { return false },
		Pods:         w.Pods, Workers: w.workers, Active: podview.New(w.Pods, w.store, w), Statuses: noStatuses{w},
		Waiting: w.waiting.IsWaiting,
	})
}

// TestAStaticPodThatWaitsIsNotStartedWithoutAdmission: its manifest is moved away and back while it waits.
func TestAStaticPodThatWaitsIsNotStartedWithoutAdmission(t *testing.T) {
	runScenario(t, func(w *world) {
		runs, static := newPod("runs", 10000), critical("static", 4000)
		static.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		w.stopTime["runs"] = never
		w.add(runs, static)
		w.wantStopped(t, "runs")
		if !w.waiting.IsWaiting("static") {
			t.Fatal("the pod does not wait")
		}
		cleaner := w.cleaner()
		w.Remove(w.ctx, []*v1.Pod{static})
		synctest.Wait()
		w.add(static)
		for range 10 {
			if err := cleaner.RestartPods(w.ctx); err != nil {
				t.Fatal(err)
			}
			w.advance(2)
		}
		if state, _ := w.store.State("static"); state.Phase == podlifecycle.Syncing {
			t.Error("the pod runs although the other pod has not stopped and the node is full")
		}
	})
}

// TestAwaitedStaticPodMayRunAgain: the manifest of a static pod that stops late is moved back meanwhile, so that the
// pod runs again between two checks.
func TestAwaitedStaticPodMayRunAgain(t *testing.T) {
	runScenario(t, func(w *world) {
		static, other, preemptor := newPod("static", 4000), newPod("other", 6000), critical("critical", 4000)
		static.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		w.stopTime["static"] = 30*time.Second + 100*time.Millisecond
		w.add(static, other)
		w.Remove(w.ctx, []*v1.Pod{static})
		synctest.Wait()
		w.add(static) // moved back: it starts again when it has stopped
		w.add(preemptor)
		w.wantStopped(t, "static")
		cleaner := w.cleaner()
		for !w.runs(static) {
			<-time.After(500 * time.Millisecond)
			synctest.Wait()
			if err := cleaner.RestartPods(w.ctx); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		w.advance(10)
		w.wantStopped(t, "static", "other")
		w.wantRuns(t, static)
		w.wantRuns(t, preemptor)
	})
}
