package podsync

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeShutdown is a ShutdownManager that records its calls with those of the world.
type fakeShutdown struct {
	*world
	restarts bool
}

func (r *fakeShutdown) RestartsAfterShutdown(pod *v1.Pod) bool {
	return r.restarts && pod.DeletionTimestamp == nil
}
func (r *fakeShutdown) PodStopped(types.UID) { r.restarts = false; _ = r.called("stopped") }

// For a pod that starts again after the shutdown neither generator nor status manager get a final status. The next
// instance is a pod as any other.
func TestPodThatRestartsAfterShutdownHasNoFinalStatus(t *testing.T) {
	final := slices.Insert(slices.Clone(allCleanUpCalls), len(allCleanUpCalls)-1, "stopped")
	w := newWorld()
	c := w.config()
	c.Shutdown = &fakeShutdown{world: w, restarts: true}
	s := New(c)
	for _, returns := range []bool{true, false} {
		w.volumesLeft = 0
		ends, cleanedUp := slices.Clone(allTerminateCalls), slices.Clone(final)
		if returns {
			ends[len(ends)-2], cleanedUp[0] = "generate terminal=false", "generate terminal=false"
			cleanedUp = cleanedUp[:len(cleanedUp)-1]
		}
		w.inRuntime = runtimeStatus(container("a", stateRunning))
		if err := s.Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime}); err != nil {
			t.Fatal(err)
		}
		expectCalls(t, w, ends...)
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
			t.Fatal(err)
		}
		expectCalls(t, w, cleanedUp...)
	}
}

// If the pod is deleted while it is being stopped its status is final, since the API server waits for that.
func TestDeletedPodHasAFinalStatusDuringShutdown(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.Shutdown = &fakeShutdown{world: w, restarts: true}
	pod := testPod()
	pod.DeletionTimestamp = &pod.CreationTimestamp
	if err := New(c).CleanUp(context.Background(), pod, w.inRuntime); err != nil {
		t.Fatal(err)
	}
	if calls := w.takeCalls(); calls[0] != "generate terminal=true" || calls[len(calls)-1] != "final" {
		t.Errorf("calls %q", calls)
	}
}
