package preemption

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

// nodeWithPods has candidates, one of which suffices for the critical pod.
func nodeWithPods(count int) *node {
	n := &node{}
	for i := range count {
		n.pods = append(n.pods, newPod(fmt.Sprintf("p%02d", i), 0, "100m"))
	}
	return n
}

// preemptions is the metric for CPU.
func preemptions(t *testing.T) float64 {
	t.Helper()
	metrics.Register()
	value, err := testutil.GetCounterMetricValue(metrics.Preemptions.WithLabelValues(v1.ResourceCPU.String()))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// If the agent stops while a critical pod waits for its victim, it preempts no other pod, writes no event for a pod
// that continues to run, and does not decide about the critical pod.
func TestNoPreemptionAfterStop(t *testing.T) {
	critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
	for name, test := range map[string]struct {
		answer podkill.Answer
		events int
	}{
		"the request for the first victim is refused":       {podkill.Refused, 0},
		"the agent stops while the first victim is stopped": {podkill.Begun, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, recorder, requests := nodeWithPods(40), record.NewFakeRecorder(100), 0
				kill := func(context.Context, podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
					requests++
					return test.answer, podkill.Ended(podkill.Ending{Outcome: podkill.Failed, Err: context.Canceled})
				}
				before := preemptions(t)
				h := newHandler(n, kill, recorder)
				if _, err := failAdmission(t, h, n, critical, missingCPU(100)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if requests != 1 || len(recorder.Events) != test.events {
					t.Errorf("%d requests, %d events, want 1 and %d", requests, len(recorder.Events), test.events)
				}
				if !h.InProgress("critical") || h.Failed("critical") {
					t.Error("the attempt is not in progress, or has failed")
				}
				if counted := preemptions(t) - before; counted != 0 {
					t.Errorf("%v preemptions are counted", counted)
				}
			})
		})
	}
}

// The event is written when the pod workers have accepted the request, and only for a pod that was not terminating.
func TestEventFollowsAcceptedRequest(t *testing.T) {
	critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
	for answer, want := range map[podkill.Answer]int{
		podkill.Begun: 1, podkill.Hastened: 0, podkill.Unchanged: 0, podkill.AlreadyStopped: 0,
	} {
		t.Run(answer.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, recorder := nodeWithPods(1), record.NewFakeRecorder(10)
				kill := func(context.Context, podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
					if len(recorder.Events) > 0 {
						t.Errorf("before the request: %s", <-recorder.Events)
					}
					return answer, podkill.Ended(podkill.Ending{Outcome: podkill.Stopped})
				}
				before := preemptions(t)
				h := newHandler(n, kill, recorder)
				if _, err := failAdmission(t, h, n, critical, missingCPU(100)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(recorder.Events) != want || preemptions(t)-before != float64(want) {
					t.Errorf("%d events, %v preemptions counted, want %d", len(recorder.Events), preemptions(t)-before, want)
				}
				if h.InProgress("critical") || h.Failed("critical") {
					t.Error("the attempt is in progress, or has failed")
				}
			})
		})
	}
}

// Run returns when no attempt is under way any more, although a victim would take an hour to stop.
func TestRunWaitsForAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeWithPods(2)
		returned := false
		kill := fakekill.Waiting(func(ctx context.Context, _ podkill.Request) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			returned = true
			return ctx.Err()
		})
		h := newHandler(n, kill, record.NewFakeRecorder(10))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { h.Run(ctx); close(ended) }()
		critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
		if _, err := failAdmission(t, h, n, critical, missingCPU(100)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		<-ended
		if !returned || !h.InProgress("critical") {
			t.Errorf("the victim's end was awaited: %v; the attempt was dropped: %v", returned, !h.InProgress("critical"))
		}
		late := newPod("late", scheduling.SystemCriticalPriority, "100m")
		if _, err := failAdmission(t, h, n, late, missingCPU(100)); err != nil || !h.InProgress("late") {
			t.Errorf("a late pod: %v, in progress %v", err, h.InProgress("late"))
		}
	})
}
