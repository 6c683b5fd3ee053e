package podlifecycle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A termination that an earlier run of the agent began is resumed with the same cause and no longer grace period,
// whatever the pod's status is now; the pod is never synced.
func TestResumedTermination(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cause := rapid.SampledFrom([]Cause{CauseDeletion, CauseKill, CauseEviction}).Draw(t, "cause")
		pod := PodFacts{
			FullName: "p_ns", Deleting: rapid.Bool().Draw(t, "deleting"), Completed: rapid.Bool().Draw(t, "completed"),
			DeletionGrace: pointers(50).Draw(t, "deletion"), SpecGrace: pointers(50).Draw(t, "spec"),
		}
		left := rapid.Int64Range(1, 50).Draw(t, "left")
		stopped := rapid.Bool().Draw(t, "stopped")
		now := time.Unix(1000, 0)
		s, _ := State{}.Next(Updated{
			Type: rapid.SampledFrom([]UpdateType{UpdateSync, UpdateChange, UpdateCreate, UpdateKill}).Draw(t, "type"), Pod: pod,
			Stopped: stopped,
			Kill:    &Kill{Evict: cause == CauseEviction, Grace: &left, Amends: true, Resumed: cause},
		}, now)
		if ended := pod.Completed && stopped; ended != (s.Phase == Terminated) || !ended && s.Phase != Terminating {
			t.Fatalf("phase %v", s.Phase)
		}
		if s.Phase == Terminating {
			if s.Termination.Cause != cause || s.Termination.Grace > left || s.Termination.Hastened ||
				s.Termination.Amended != cause.ByAgent() {
				t.Fatalf("termination %+v", s.Termination)
			}
		}
		for range 5 {
			var cmds []Command
			s, cmds = s.Next(WorkerReady{Stopped: stopped}, now)
			for _, cmd := range cmds {
				if run, ok := cmd.(Run); ok && run.Op == OpSync {
					t.Fatal("the pod is synced")
				}
			}
			s, _ = s.Next(Returned{Outcome: rapid.SampledFrom([]Outcome{Succeeded, Failed, Cancelled}).Draw(t, "outcome"),
				Pod: pod}, now)
			s, _ = s.Next(Updated{Type: UpdateSync, Pod: pod}, now)
		}
	})
}
