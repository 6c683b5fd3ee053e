package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// correlated is a recorder that drops the events that client-go drops.
type correlated struct {
	record.EventRecorder

	correlator *record.EventCorrelator
	clock      *clocktesting.FakeClock
	// recorded has the number of events by pod and reason.
	recorded map[string]int
}

func (c *correlated) AnnotatedEventf(
	object runtime.Object, _ map[string]string, kind, reason, text string, args ...any,
) {
	pod := object.(*v1.ObjectReference)
	now := metav1.NewTime(c.clock.Now())
	result, err := c.correlator.EventCorrelate(&v1.Event{
		InvolvedObject: *pod, Type: kind, Reason: reason, Message: fmt.Sprintf(text, args...), FirstTimestamp: now,
		LastTimestamp: now, Count: 1, Source: v1.EventSource{Component: "kubelet"},
	})
	if err == nil && !result.Skip {
		c.recorded[pod.Name+" "+reason]++
	}
}

// TestEventsOfABlockedPodLeaveRoomForOthers: client-go drops the warnings about a pod beyond 25 and one in five
// minutes. A pod that is blocked for hours still has the event that it is evicted.
func TestEventsOfABlockedPodLeaveRoomForOthers(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	events := &correlated{
		clock: clock, correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{Clock: clock}),
		recorded: map[string]int{},
	}
	s := &eventSink{recorder: events}
	result := func(name string, kind ResultKind) {
		s.Result(t.Context(), &Result{Kind: kind, Answer: podkill.Begun, At: clock.Now(), Err: errors.New("budget"),
			Victim: &policy.Victim{Pod: &snapshot.Pod{Facts: snapshot.NewFacts(&v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)},
			}, false)}}})
	}
	for range 4*60*2 - 5 {
		result("a", KillBlocked)
		clock.Step(15 * time.Second)
	}
	result("a", KillAccepted)
	if events.recorded["a Evicted"] != 1 {
		t.Errorf("the eviction has no event: %v", events.recorded)
	}
	if n := events.recorded["a EvictionBlocked"]; n < 20 || n > 25 {
		t.Errorf("%d events in two hours, not one in five minutes", n)
	}
	clock.Step(time.Hour)
	result("b", KillBlocked)
	if len(s.blocked) != 1 {
		t.Errorf("%d pods are remembered", len(s.blocked))
	}
}
