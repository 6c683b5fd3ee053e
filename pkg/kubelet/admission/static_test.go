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
		Pods: w.Pods, Workers: w.workers, Active: podview.New(w.Pods, w.store, w), Statuses: noStatuses{w}, Waiting: w.room.Holds,
	})
}

// TestAStaticPodThatWaitsIsNotStartedWithoutAdmission: its manifest is moved away and back while it waits for room.
func TestAStaticPodThatWaitsIsNotStartedWithoutAdmission(t *testing.T) {
	play(t, func(w *world) {
		runs, static := sized("runs", 10000), critical("static", 4000)
		static.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		w.takes["runs"] = never
		w.add(runs, static)
		w.wantStopped(t, "runs")
		if !w.room.Holds("static") {
			t.Fatal("it does not wait")
		}
		cleaner := w.cleaner()
		w.Remove(w.ctx, []*v1.Pod{static})
		synctest.Wait()
		w.add(static)
		for range 10 {
			if err := cleaner.RestartPods(w.ctx); err != nil {
				t.Fatal(err)
			}
			w.pass(2)
		}
		if state, _ := w.store.State("static"); state.Phase == podlifecycle.Syncing {
			t.Error("it runs beside the pod that has not stopped, on a node that is full")
		}
	})
}

// TestThePodThatIsWaitedForMayRunAgain: a static pod that stops late is moved back meanwhile, and runs again between two
// looks at it.
func TestThePodThatIsWaitedForMayRunAgain(t *testing.T) {
	play(t, func(w *world) {
		static, other, preemptor := sized("static", 4000), sized("other", 6000), critical("critical", 4000)
		static.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		w.takes["static"] = 30*time.Second + 100*time.Millisecond
		w.add(static, other)
		w.Remove(w.ctx, []*v1.Pod{static})
		synctest.Wait()
		w.add(static) // moved back: it is wanted again when it has stopped
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
		w.pass(10)
		w.wantStopped(t, "static", "other")
		w.wantRuns(t, static)
		w.wantRuns(t, preemptor)
	})
}
