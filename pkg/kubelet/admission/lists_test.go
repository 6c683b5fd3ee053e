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

// TestAVictimThatEndsBeforeTheJudgementIsReplacedByNoOther: the room is there when the pod is asked about again, and
// the list of active pods is from before.
func TestAVictimThatEndsBeforeTheJudgementIsReplacedByNoOther(t *testing.T) {
	for name, others := range map[string][]*v1.Pod{"beside another": {sized("other", 4000)}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				victim, preemptor := sized("a-victim", 6000), critical("critical", 6000)
				w.takes["a-victim"] = 5 * time.Second
				w.add(append(others, victim)...)
				w.add(preemptor)
				w.wantStopped(t, "a-victim")
				// The active pods are listed, then the victim ends, and then the pod is asked about.
				w.listed = func() { <-time.After(5 * time.Second); synctest.Wait() }
				w.AskAgain(w.ctx)
				w.listed = func() {}
				w.pass(10)
				w.wantStopped(t, "a-victim")
				w.wantRuns(t, preemptor)
				for _, other := range others {
					w.wantRuns(t, other)
				}
			})
		})
	}
}

// TestAPodThatEndsDuringTheJudgementIsReplacedByNoOther: the chain was given its list already.
func TestAPodThatEndsDuringTheJudgementIsReplacedByNoOther(t *testing.T) {
	play(t, func(w *world) {
		ending, other, preemptor := sized("ending", 6000), sized("other", 4000), critical("critical", 4000)
		w.takes["ending"] = 5 * time.Second
		w.add(ending, other)
		w.kill(ending)
		w.judging = func() {
			<-time.After(10 * time.Second)
			synctest.Wait()
			if w.store.CouldHaveRunningContainers("ending") {
				t.Error("it has not ended")
			}
		}
		w.add(preemptor)
		w.judging = func() {}
		w.pass(2)
		w.wantStopped(t, "ending")
		w.wantRuns(t, preemptor)
		w.wantRuns(t, other)
	})
}

// TestNoPodIsStoppedForOneThatHasNoPlaceToWait: 64 pods wait already.
func TestNoPodIsStoppedForOneThatHasNoPlaceToWait(t *testing.T) {
	play(t, func(w *world) {
		big, small := sized("big", 9000), sized("small", 1000)
		w.takes["small"] = time.Hour
		w.add(big, small)
		for i := range 64 {
			w.add(critical(fmt.Sprintf("waiting-%02d", i), 10))
		}
		w.wantStopped(t, "small")
		if n := len(w.room.Waiting()); n != 64 {
			t.Fatalf("%d pods wait, want 64", n)
		}
		late := critical("late", 2000)
		w.add(late)
		w.pass(2)
		w.wantStopped(t, "small")
		w.wantRuns(t, big)
		if status, _ := w.GetPodStatus("late"); status.Phase != v1.PodFailed || status.Reason != lifecycle.OutOfCPU {
			t.Errorf("the pod that has no place: %+v", status)
		}
		if w.victims.Making("late") {
			t.Error("room is being made for a pod that was rejected")
		}
	})
}

// TestPreemptionEndsWithItsPod: the pod is deleted while its victim is being stopped, and the victim does not stop.
func TestPreemptionEndsWithItsPod(t *testing.T) {
	for name, leaves := range map[string]func(*world, *v1.Pod){
		"deleted":                 (*world).delete,
		"removed from its source": func(w *world, pod *v1.Pod) { w.Remove(w.ctx, []*v1.Pod{pod}) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				small, big, preemptor := sized("small", 4000), sized("big", 6000), critical("critical", 4000)
				w.takes["small"] = never
				w.add(small, big, preemptor)
				w.wantStopped(t, "small")
				leaves(w, preemptor)
				w.pass(3600)
				w.wantStopped(t, "small", "critical")
				w.wantRuns(t, big)
			})
		})
	}
}

// TestASlowVictimIsReplacedByNoOther: the victim takes longer than those who asked for its stop wait, and is killed on
// one of the rungs of the ladder.
func TestASlowVictimIsReplacedByNoOther(t *testing.T) {
	for _, takes := range []time.Duration{16 * time.Second, 28 * time.Second, grace + ladderEnd - time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			play(t, func(w *world) {
				small, big, preemptor := sized("small", 4000), sized("big", 6000), critical("critical", 4000)
				w.takes["small"] = takes
				w.add(small, big, preemptor)
				w.pass(int(takes.Seconds()) - 1)
				if !w.victims.Leaving("small") || w.runs(preemptor) {
					t.Error("the critical pod does not wait for its victim, which has not stopped")
				}
				w.pass(3)
				w.wantStopped(t, "small")
				w.wantRuns(t, preemptor)
				w.wantRuns(t, big)
			})
		})
	}
}

// TestAVictimThatOutlivesEverythingIsReplaced: once, when the last rung was climbed.
func TestAVictimThatOutlivesEverythingIsReplaced(t *testing.T) {
	play(t, func(w *world) {
		small, big, preemptor := sized("small", 4000), sized("big", 6000), critical("critical", 4000)
		w.takes["small"] = never
		w.add(small, big, preemptor)
		w.pass(int((grace + ladderEnd).Seconds()) - 1)
		w.wantStopped(t, "small")
		w.pass(5)
		w.wantStopped(t, "small", "big")
		w.wantRuns(t, preemptor)
	})
}

// TestRoomThatCameByItselfIsTakenAtOnce: a victim does not stop, and what it has to give comes from a pod that ends by
// itself meanwhile. No further victim is stopped.
func TestRoomThatCameByItselfIsTakenAtOnce(t *testing.T) {
	play(t, func(w *world) {
		stuck, other, ending := sized("stuck", 4000), sized("other", 3000), sized("would-end-anyway", 3000)
		*stuck.Spec.Priority = -1
		preemptor := critical("critical", 3000)
		w.takes["stuck"] = never
		w.add(stuck, other, ending, preemptor)
		w.wantStopped(t, "stuck")
		w.pass(20)
		w.kill(ending)
		w.pass(2)
		w.wantRuns(t, preemptor)
		w.pass(3600)
		w.wantStopped(t, "stuck", "would-end-anyway")
		w.wantRuns(t, other)
	})
}

// TestNoPodIsStoppedForOneThatComesDeleted: a critical pod was deleted while the agent was down.
func TestNoPodIsStoppedForOneThatComesDeleted(t *testing.T) {
	play(t, func(w *world) {
		runs, preemptor := sized("runs", 10000), critical("critical", 4000)
		w.takes["runs"] = 5 * time.Second
		w.add(runs)
		preemptor.DeletionTimestamp = new(metav1.Now())
		preemptor.DeletionGracePeriodSeconds = preemptor.Spec.TerminationGracePeriodSeconds
		w.add(preemptor)
		w.pass(10)
		w.wantStopped(t, "critical")
		w.wantRuns(t, runs)
	})
}

// TestAVictimThatEndsAfterTheRefusalDoesNotRejectThePod: the last victim stops between the chain's refusal and the
// look whether room is being made.
func TestAVictimThatEndsAfterTheRefusalDoesNotRejectThePod(t *testing.T) {
	play(t, func(w *world) {
		first, last, preemptor := sized("first", 5000), sized("last", 5000), critical("critical", 10000)
		w.takes["first"], w.takes["last"] = 5*time.Second, 8*time.Second
		w.add(first, last, preemptor)
		w.wantStopped(t, "first", "last")
		w.pass(4)
		<-time.After(2 * time.Second) // the first has ended
		synctest.Wait()
		looks, judged := 0, false
		w.judging = func() { judged = true }
		w.listed = func() {
			if !judged {
				return
			}
			if looks++; looks == 1 { // after the list of the check that follows the refusal
				<-time.After(5 * time.Second)
				synctest.Wait()
			}
		}
		w.AskAgain(w.ctx)
		w.listed, w.judging = func() {}, func() {}
		w.pass(5)
		w.wantRuns(t, preemptor)
	})
}

// TestRoomThatIsMadeForAPodIsNotTakenByOneThatWaitsForTheEndOfPressure: the pressure ends while the victim stops.
func TestRoomThatIsMadeForAPodIsNotTakenByOneThatWaitsForTheEndOfPressure(t *testing.T) {
	play(t, func(w *world) {
		victim, other, waits, preemptor := sized("a-victim", 4000), sized("other", 6000), sized("waits", 4000), critical("critical", 4000)
		*other.Spec.Priority = 10
		w.takes["a-victim"] = 5 * time.Second
		w.add(victim, other)
		pressure := true
		w.bound = time.Hour
		w.verdict = func(pod *v1.Pod) policy.Verdict {
			if pressure && pod.Name == "waits" {
				return policy.Waits
			}
			return policy.Admitted
		}
		w.add(waits, preemptor)
		w.wantStopped(t, "a-victim")
		w.pass(4)
		<-time.After(3 * time.Second)
		synctest.Wait()
		pressure = false
		w.pass(10)
		w.wantStopped(t, "a-victim")
		w.wantRuns(t, preemptor)
		w.wantRuns(t, other)
	})
}
