package podsync

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// returningPods notes beside the world's calls who was told to be stopped.
type returningPods struct {
	*world
	returns bool
}

func (r *returningPods) Returns(pod *v1.Pod) bool { return r.returns && pod.DeletionTimestamp == nil }
func (r *returningPods) Stopped(types.UID)        { r.returns = false; _ = r.did("stopped") }

// A pod that starts again with the node has no final status: neither the generator nor the status manager may fail it. Its next life is
// like any other.
func TestPodThatReturnsHasNoFinalStatus(t *testing.T) {
	final := slices.Insert(slices.Clone(wholeCleanUp), len(wholeCleanUp)-1, "stopped")
	w := newWorld()
	c := w.config()
	c.Returning = &returningPods{world: w, returns: true}
	s := New(c)
	for _, returns := range []bool{true, false} {
		w.volumesLeft = 0
		ends, cleanedUp := slices.Clone(wholeTermination), slices.Clone(final)
		if returns {
			ends[len(ends)-2], cleanedUp[0] = "generate terminal=false", "generate terminal=false"
			cleanedUp = cleanedUp[:len(cleanedUp)-1]
		}
		w.inRuntime = runtimeStatus(container("a", up))
		if err := s.Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime}); err != nil {
			t.Fatal(err)
		}
		expect(t, w, ends...)
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
			t.Fatal(err)
		}
		expect(t, w, cleanedUp...)
	}
}

// Deleted while it is being stopped, it is final: the API server waits for that to forget it.
func TestPodThatReturnsIsDeletedMeanwhile(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.Returning = &returningPods{world: w, returns: true}
	pod := testPod()
	pod.DeletionTimestamp = &pod.CreationTimestamp
	if err := New(c).CleanUp(context.Background(), pod, w.inRuntime); err != nil {
		t.Fatal(err)
	}
	if calls := w.take(); calls[0] != "generate terminal=true" || calls[len(calls)-1] != "final" {
		t.Errorf("calls %q", calls)
	}
}
