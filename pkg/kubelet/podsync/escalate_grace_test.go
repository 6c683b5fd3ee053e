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

// A grace period of more seconds than a time.Duration can represent is a long one: the pod does not become overdue.
func TestGracePeriodBeyondTimeDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		s := h.syncer()
		time.AfterFunc(time.Hour, func() { h.setProcesses(); h.exitContainers() })
		request := terminateRequest(h)
		request.Pod = podWithGrace(math.MaxInt64)
		if err := s.Terminate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectEvents(t, h.world)
	})
}

func TestHastenToAGracePeriodBeyondTimeDuration(t *testing.T) {
	l := newProgressByPod()
	e := l.get("uid")
	now := time.Now()
	l.beginAttempt(e, now, time.Minute, true)
	l.shorten("uid", now.Add(seconds(math.MaxInt64)))
	if got := e.gracePeriod.End; !got.Equal(now.Add(time.Minute)) {
		t.Errorf("end %v, want %v", got, now.Add(time.Minute))
	}
}

// If KillPod returns without an error while the containers run, no step is due during the call; the pod is killed
// nevertheless when it is overdue.
func TestEscalationIfKillPodReturnsAndContainersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		close(h.stopped)
		h.onCgroupKill = func() {
			h.setProcesses()
			h.lock.Lock()
			defer h.lock.Unlock()
			h.inRuntime = runtimeStatus(container("a", stateExited))
		}
		s := h.syncer()
		err := s.Terminate(t.Context(), terminateRequest(h))
		for err != nil && time.Since(h.begin) < 2*time.Minute {
			<-time.After(10 * time.Second)
			err = s.Terminate(t.Context(), terminateRequest(h))
		}
		if err != nil {
			t.Fatal(err)
		}
		expectReasons(t, h.world, ContainerStopOverdue, ContainerProcessesKilled)
	})
}

// hangingRuntime does not return from GetPod before its time-out.
type hangingRuntime struct{ stuckRuntime }

func (r hangingRuntime) GetPod(ctx context.Context, _ types.UID) (*kubecontainer.Pod, error) {
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	<-ctx.Done()
	return nil, ctx.Err()
}

// Queries before and after the kill delay it for a few seconds only, although a request to the runtime may take
// minutes.
func TestKillDoesNotWaitForAHangingRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		c := h.config()
		r := stuckRuntime{runtimeOf{h.world}, h}
		c.Runtime, c.Stopper, c.Processes = hangingRuntime{r}, r, stuckProcesses{h}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := New(c).Terminate(ctx, terminateRequest(h)); err == nil {
			t.Fatal("Terminate returns no error although the runtime hangs")
		}
		expectTimeline(t, h, "5s kill pod")
		expectReasons(t, h.world, ContainerStopOverdue)
	})
}
