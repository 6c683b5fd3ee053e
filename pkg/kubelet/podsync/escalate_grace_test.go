package podsync

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// A grace period of more seconds than a time.Duration holds is a long one: nobody is killed for it.
func TestVeryLongGraceIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		s := h.syncer()
		time.AfterFunc(time.Hour, func() { h.leave(); h.ends() })
		request := requestOf(h)
		request.Pod = podWithGrace(math.MaxInt64)
		if err := s.Terminate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectEvents(t, h.world)
	})
}

func TestHasteningToAVeryLongGraceIsNotOverdue(t *testing.T) {
	l := newLedger()
	e := l.open("uid")
	now := time.Now()
	l.attempt(e, now, time.Minute, true)
	l.shorten("uid", now.Add(seconds(math.MaxInt64)))
	if got := e.term.End; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("end %v, want %v", got, now.Add(time.Minute))
	}
}

// A runtime may say that it has stopped the pod and that its containers run, both at once. There is never time to climb beside such a
// call; the pod is killed all the same when it is overdue.
func TestRuntimeThatContradictsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		close(h.stopped)
		h.onCgroupKill = func() {
			h.leave()
			h.hard.Lock()
			defer h.hard.Unlock()
			h.inRuntime = runtimeStatus(container("a", down))
		}
		s := h.syncer()
		err := s.Terminate(t.Context(), requestOf(h))
		for err != nil && time.Since(h.begin) < 2*time.Minute {
			<-time.After(10 * time.Second)
			err = s.Terminate(t.Context(), requestOf(h))
		}
		if err != nil {
			t.Fatal(err)
		}
		expectReasons(t, h.world, ContainerStopOverdue, ContainerProcessesKilled)
	})
}

// hungRuntime answers no question.
type hungRuntime struct{ hardRuntime }

func (r hungRuntime) GetPod(ctx context.Context, _ types.UID) (*kubecontainer.Pod, error) {
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	<-ctx.Done()
	return nil, ctx.Err()
}

// What is asked before the kill must not put it off, nor what comes after it, for as long as a request to the runtime may take.
func TestRuntimeThatHangsIsNotWaitedForBeforeTheKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		c := h.config()
		c.Runtime, c.Stopper, c.Processes = hungRuntime{hardRuntime{runtimeOf{h.world}, h}}, hardRuntime{runtimeOf{h.world}, h}, hardProcesses{h}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := New(c).Terminate(ctx, requestOf(h)); err == nil {
			t.Fatal("stopped by a runtime that hangs")
		}
		expectTimeline(t, h, "5s kill pod")
		expectReasons(t, h.world, ContainerStopOverdue)
	})
}
