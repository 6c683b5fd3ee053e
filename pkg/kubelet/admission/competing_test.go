package admission_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// TestNoSecondVictimWhenTheFirstEndsBeforeAdmission: the resources are free when the handlers run again, and the list
// of active pods was read before.
func TestNoSecondVictimWhenTheFirstEndsBeforeAdmission(t *testing.T) {
	for name, others := range map[string][]*v1.Pod{"with another pod": {newPod("other", 4000)}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, func(w *world) {
				victim, preemptor := newPod("a-victim", 6000), critical("critical", 6000)
				w.stopTime["a-victim"] = 5 * time.Second
				w.add(append(others, victim)...)
				w.add(preemptor)
				w.wantStopped(t, "a-victim")
				// The active pods are listed, then the victim ends, then the handlers run.
				w.onList = func() { <-time.After(5 * time.Second); synctest.Wait() }
				w.RetryWaiting(w.ctx)
				w.onList = func() {}
				w.advance(10)
				w.wantStopped(t, "a-victim")
				w.wantRuns(t, preemptor)
				for _, other := range others {
					w.wantRuns(t, other)
				}
			})
		})
	}
}

// TestNoVictimWhenAPodEndsDuringAdmission: the handlers have got their list already.
func TestNoVictimWhenAPodEndsDuringAdmission(t *testing.T) {
	runScenario(t, func(w *world) {
		ending, other, preemptor := newPod("ending", 6000), newPod("other", 4000), critical("critical", 4000)
		w.stopTime["ending"] = 5 * time.Second
		w.add(ending, other)
		w.kill(ending)
		w.onHandlers = func() {
			<-time.After(10 * time.Second)
			synctest.Wait()
			if w.store.CouldHaveRunningContainers("ending") {
				t.Error("the pod has not ended")
			}
		}
		w.add(preemptor)
		w.onHandlers = func() {}
		w.advance(2)
		w.wantStopped(t, "ending")
		w.wantRuns(t, preemptor)
		w.wantRuns(t, other)
	})
}

// TestNoPreemptionWhenTooManyPodsWait: 64 pods wait already.
func TestNoPreemptionWhenTooManyPodsWait(t *testing.T) {
	runScenario(t, func(w *world) {
		big, small := newPod("big", 9000), newPod("small", 1000)
		w.stopTime["small"] = time.Hour
		w.add(big, small)
		for i := range 64 {
			w.add(critical(fmt.Sprintf("waiting-%02d", i), 10))
		}
		w.wantStopped(t, "small")
		if n := len(w.waiting.UIDs()); n != 64 {
			t.Fatalf("%d pods wait, want 64", n)
		}
		late := critical("late", 2000)
		w.add(late)
		w.advance(2)
		w.wantStopped(t, "small")
		w.wantRuns(t, big)
		if status, _ := w.GetPodStatus("late"); status.Phase != v1.PodFailed || status.Reason != lifecycle.OutOfCPU {
			t.Errorf("the pod that may not wait: %+v", status)
		}
		if w.victims.InProgress("late") {
			t.Error("a preemption attempt is in progress for a pod that was rejected")
		}
	})
}

// TestPreemptionEndsWithItsPod: the pod is deleted while its victim is being stopped, and the victim does not stop.
func TestPreemptionEndsWithItsPod(t *testing.T) {
	for name, remove := range map[string]func(*world, *v1.Pod){
		"deleted":                 (*world).delete,
		"removed from its source": func(w *world, pod *v1.Pod) { w.Remove(w.ctx, []*v1.Pod{pod}) },
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, func(w *world) {
				small, big, preemptor := newPod("small", 4000), newPod("big", 6000), critical("critical", 4000)
				w.stopTime["small"] = never
				w.add(small, big, preemptor)
				w.wantStopped(t, "small")
				remove(w, preemptor)
				w.advance(3600)
				w.wantStopped(t, "small", "critical")
				w.wantRuns(t, big)
			})
		})
	}
}

// TestNoSecondVictimForASlowOne: the victim takes longer than the ending of a stop request, and is killed in one of the
// escalation steps.
func TestNoSecondVictimForASlowOne(t *testing.T) {
	for _, stopTime := range []time.Duration{16 * time.Second, 28 * time.Second, grace + lastStepAfter - time.Second} {
		t.Run(stopTime.String(), func(t *testing.T) {
			runScenario(t, func(w *world) {
				small, big, preemptor := newPod("small", 4000), newPod("big", 6000), critical("critical", 4000)
				w.stopTime["small"] = stopTime
				w.add(small, big, preemptor)
				w.advance(int(stopTime.Seconds()) - 1)
				if !w.victims.IsVictim("small") || w.runs(preemptor) {
					t.Error("the critical pod does not wait for its victim, which has not stopped")
				}
				w.advance(3)
				w.wantStopped(t, "small")
				w.wantRuns(t, preemptor)
				w.wantRuns(t, big)
			})
		})
	}
}

// TestVictimThatSurvivesTheLastStepIsReplaced: once, after the last escalation step.
func TestVictimThatSurvivesTheLastStepIsReplaced(t *testing.T) {
	runScenario(t, func(w *world) {
		small, big, preemptor := newPod("small", 4000), newPod("big", 6000), critical("critical", 4000)
		w.stopTime["small"] = never
		w.add(small, big, preemptor)
		w.advance(int((grace + lastStepAfter).Seconds()) - 1)
		w.wantStopped(t, "small")
		w.advance(5)
		w.wantStopped(t, "small", "big")
		w.wantRuns(t, preemptor)
	})
}

// TestResourcesFreedByAnotherPodSuffice: a victim does not stop, and another pod that ends by itself meanwhile frees
// enough. No further victim is stopped.
func TestResourcesFreedByAnotherPodSuffice(t *testing.T) {
	runScenario(t, func(w *world) {
		stuck, other, ending := newPod("stuck", 4000), newPod("other", 3000), newPod("would-end-anyway", 3000)
		*stuck.Spec.Priority = -1
		preemptor := critical("critical", 3000)
		w.stopTime["stuck"] = never
		w.add(stuck, other, ending, preemptor)
		w.wantStopped(t, "stuck")
		w.advance(20)
		w.kill(ending)
		w.advance(2)
		w.wantRuns(t, preemptor)
		w.advance(3600)
		w.wantStopped(t, "stuck", "would-end-anyway")
		w.wantRuns(t, other)
	})
}

// TestNoPreemptionForADeletedPod: a critical pod was deleted while the agent was down.
func TestNoPreemptionForADeletedPod(t *testing.T) {
	runScenario(t, func(w *world) {
		runs, preemptor := newPod("runs", 10000), critical("critical", 4000)
		w.stopTime["runs"] = 5 * time.Second
		w.add(runs)
		preemptor.DeletionTimestamp = new(metav1.Now())
		preemptor.DeletionGracePeriodSeconds = preemptor.Spec.TerminationGracePeriodSeconds
		w.add(preemptor)
		w.advance(10)
		w.wantStopped(t, "critical")
		w.wantRuns(t, runs)
	})
}

// TestVictimThatEndsAfterTheRefusal: the last victim stops between the refusal by the handlers and the check whether an
// attempt is in progress.
func TestVictimThatEndsAfterTheRefusal(t *testing.T) {
	runScenario(t, func(w *world) {
		first, last, preemptor := newPod("first", 5000), newPod("last", 5000), critical("critical", 10000)
		w.stopTime["first"], w.stopTime["last"] = 5*time.Second, 8*time.Second
		w.add(first, last, preemptor)
		w.wantStopped(t, "first", "last")
		w.advance(4)
		<-time.After(2 * time.Second) // the first has ended
		synctest.Wait()
		lists, refused := 0, false
		w.onHandlers = func() { refused = true }
		w.onList = func() {
			if !refused {
				return
			}
			if lists++; lists == 1 { // the list of the check that follows the refusal
				<-time.After(5 * time.Second)
				synctest.Wait()
			}
		}
		w.RetryWaiting(w.ctx)
		w.onList, w.onHandlers = func() {}, func() {}
		w.advance(5)
		w.wantRuns(t, preemptor)
	})
}

// TestPreemptedResourcesAreReservedForThePreemptor: the pressure ends while the victim stops.
func TestPreemptedResourcesAreReservedForThePreemptor(t *testing.T) {
	runScenario(t, func(w *world) {
		victim, other := newPod("a-victim", 4000), newPod("other", 6000)
		waits, preemptor := newPod("waits", 4000), critical("critical", 4000)
		*other.Spec.Priority = 10
		w.stopTime["a-victim"] = 5 * time.Second
		w.add(victim, other)
		pressure := true
		w.maxWait = time.Hour
		w.verdict = func(pod *v1.Pod) policy.Verdict {
			if pressure && pod.Name == "waits" {
				return policy.Waits
			}
			return policy.Admitted
		}
		w.add(waits, preemptor)
		w.wantStopped(t, "a-victim")
		w.advance(4)
		<-time.After(3 * time.Second)
		synctest.Wait()
		pressure = false
		w.advance(10)
		w.wantStopped(t, "a-victim")
		w.wantRuns(t, preemptor)
		w.wantRuns(t, other)
	})
}
