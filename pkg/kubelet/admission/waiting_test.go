package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// pressuredNode is a node under pressure: the allocator, the statuses and the pressure check of a gate.
type pressuredNode struct {
	*node
	verdict policy.Verdict
	maxWait time.Duration
	clock   *clocktesting.FakePassiveClock
	gate    *Gate
	waiting *WaitingPods
	events  *record.FakeRecorder
	// full: there are not enough CPUs; runs is how often the handlers ran.
	full bool
	runs int
	// afterHandlers is called after the handlers have run, if not nil.
	afterHandlers func()
	// shuttingDown: the machine shuts down.
	shuttingDown bool
	// competing are the pods that the handlers got last.
	competing []string
}

func (s *pressuredNode) AdmitOrWait(*v1.Pod) (policy.Verdict, string) {
	if s.verdict == policy.Admitted {
		return policy.Admitted, ""
	}
	return s.verdict, "The node had condition: [MemoryPressure]. "
}

// AddPod refuses as the handlers do under pressure.
func (s *pressuredNode) AddPod(active []*v1.Pod, _ *v1.Pod) (bool, string, string) {
	s.competing = nil
	s.runs++
	if s.afterHandlers != nil {
		defer s.afterHandlers()
	}
	for _, p := range active {
		s.competing = append(s.competing, p.Name)
	}
	if s.verdict != policy.Admitted {
		return false, policy.ReasonEvicted, "The node had condition: [MemoryPressure]. "
	}
	if s.full {
		return false, lifecycle.OutOfCPU, "Node didn't have enough resource: cpu"
	}
	return true, "", ""
}

func newPressuredNode() *pressuredNode {
	s := &pressuredNode{
		node: &node{}, verdict: policy.Waits, maxWait: time.Minute,
		clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)),
	}
	s.restart()
	return s
}

// restart restarts the agent: nothing is in memory.
func (s *pressuredNode) restart() {
	s.seen, s.statuses = map[types.UID]bool{}, map[types.UID]v1.PodStatus{}
	s.events = record.NewFakeRecorder(100)
	s.readmission = NewReadmission(s, s)
	s.waiting = NewWaitingPods(WaitingPodsConfig{
		Pressure: s, Victims: s, Status: s, Recorder: s.events, Clock: s.clock, Active: s.Active,
		ShuttingDown: func() bool { return s.shuttingDown }, MaxWait: func() time.Duration { return s.maxWait },
	})
	s.gate = NewGate(s, s.readmission, s.waiting, NewRejector(s.events, s))
}

func (s *pressuredNode) advance(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s *pressuredNode) drainEvents() (list []string) {
	for {
		select {
		case e := <-s.events.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func TestPodWaitsUntilPressureEnds(t *testing.T) {
	s := newPressuredNode()
	p := pod("a")
	for range 3 {
		if s.gate.Admit(t.Context(), p) {
			t.Fatal("admitted under pressure")
		}
		s.advance(time.Second)
	}
	status := s.statuses["a"]
	message := "The node had condition: [MemoryPressure]. The pod waits for at most 1m0s and is rejected then."
	if status.Phase != v1.PodPending || status.Reason != "WaitingForRoom" || status.Message != message {
		t.Errorf("status %+v", status)
	}
	if got, want := s.drainEvents(), []string{"Normal WaitingForRoom " + message}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if !s.waiting.IsWaiting("a") || !slices.Equal(s.waiting.UIDs(), []types.UID{"a"}) {
		t.Error("the pod does not wait")
	}
	if n, err := testutil.GetGaugeMetricValue(podsWaiting); err != nil || n != 1 {
		t.Errorf("metric %v, %v", n, err)
	}
	s.verdict = policy.Admitted
	if !s.gate.Admit(t.Context(), p) || s.waiting.IsWaiting("a") {
		t.Error("not admitted when the pressure is over")
	}
	if n, err := testutil.GetGaugeMetricValue(podsWaiting); err != nil || n != 0 {
		t.Errorf("metric %v, %v", n, err)
	}
}

func TestPodIsRejectedAfterMaxWait(t *testing.T) {
	s := newPressuredNode()
	p := pod("a")
	s.gate.Admit(t.Context(), p)
	s.advance(time.Minute - 1)
	if s.gate.Admit(t.Context(), p); s.statuses["a"].Phase != v1.PodPending {
		t.Errorf("rejected before its time: %+v", s.statuses["a"])
	}
	s.advance(1)
	s.gate.Admit(t.Context(), p)
	message := "Pod was rejected: The node had condition: [MemoryPressure]. "
	if status := s.statuses["a"]; status.Phase != v1.PodFailed || status.Reason != "Evicted" || status.Message != message {
		t.Errorf("status %+v", status)
	}
	if s.waiting.IsWaiting("a") {
		t.Error("the pod still waits")
	}
}

func TestPodThatMayNotWaitIsRejectedAtOnce(t *testing.T) {
	for name, change := range map[string]func(*pressuredNode){
		"its controller finds another node": func(s *pressuredNode) { s.verdict = policy.Rejected },
		"waiting is switched off":           func(s *pressuredNode) { s.maxWait = 0 },
		"too many wait": func(s *pressuredNode) {
			for i := range maxWaiting {
				s.gate.Admit(t.Context(), pod(types.UID(fmt.Sprint("earlier-", i))))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPressuredNode()
			change(s)
			s.gate.Admit(t.Context(), pod("a"))
			if status := s.statuses["a"]; status.Phase != v1.PodFailed || s.waiting.IsWaiting("a") {
				t.Errorf("status %+v", status)
			}
		})
	}
}

func TestRestartKeepsWaitingSince(t *testing.T) {
	s := newPressuredNode()
	p := pod("a")
	s.gate.Admit(t.Context(), p)
	// What the API server keeps; the start time is filled in by the status manager.
	p.Status = s.statuses["a"]
	p.Status.StartTime = &metav1.Time{Time: s.clock.Now()}
	s.advance(40 * time.Second)
	s.restart()
	if s.gate.Admit(t.Context(), p); !s.waiting.IsWaiting("a") {
		t.Fatal("the pod does not wait after the restart")
	}
	if events := s.drainEvents(); len(events) != 0 {
		t.Errorf("events again: %q", events)
	}
	s.advance(20 * time.Second)
	if s.gate.Admit(t.Context(), p); s.statuses["a"].Phase != v1.PodFailed {
		t.Errorf("the restart has prolonged the wait: %+v", s.statuses["a"])
	}
}

// TestACriticalPodWaitsForItsVictims: the handlers refuse it while its victims are being stopped.
func TestACriticalPodWaitsForItsVictims(t *testing.T) {
	for _, enough := range []bool{true, false} {
		s := newPressuredNode()
		s.verdict, s.full = policy.Admitted, true
		s.inProgress = map[types.UID]bool{"a": true}
		p := pod("a")
		for range 3 {
			s.gate.Admit(t.Context(), p)
			s.advance(time.Hour)
		}
		message := "Node didn't have enough resource: cpu. Pods of lower priority are being stopped to free resources."
		status := s.statuses["a"]
		if !s.waiting.IsWaiting("a") || status.Phase != v1.PodPending || status.Reason != "WaitingForRoom" ||
			status.Message != message {
			t.Errorf("status %+v", status)
		}
		if events := s.drainEvents(); len(events) != 1 || s.runs != 1 {
			t.Errorf("events %q, the handlers ran %d times", events, s.runs)
		}
		s.inProgress, s.full = nil, !enough
		if got := s.gate.Admit(t.Context(), p); got != enough || s.waiting.IsWaiting("a") {
			t.Errorf("admitted %v, want %v", got, enough)
		}
		status = s.statuses["a"]
		if !enough && (status.Phase != v1.PodFailed || status.Reason != "OutOfcpu") {
			t.Errorf("status %+v", status)
		}
	}
}

// TestRefusedPodKeepsItsPlace: its victims have stopped, another pod has got the resources, and further victims are
// stopped for it. While the handlers run for it, it does not count as waiting.
func TestRefusedPodKeepsItsPlace(t *testing.T) {
	s := newPressuredNode()
	s.verdict, s.full = policy.Admitted, true
	s.inProgress = map[types.UID]bool{"first": true, "second": true}
	s.gate.Admit(t.Context(), pod("first"))
	s.gate.Admit(t.Context(), pod("second"))
	s.inProgress["first"] = false
	if s.waiting.ShouldWait(t.Context(), pod("first")) || s.waiting.IsWaiting("first") {
		t.Error("the pod waits while the handlers run")
	}
	s.inProgress["first"] = true
	if !s.waiting.WaitForVictims(t.Context(), pod("first"), nil, "full") || !s.waiting.IsWaitingForVictims("first") {
		t.Error("the pod does not wait")
	}
	if got, want := s.waiting.UIDs(), []types.UID{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	if want := []types.UID{"first", "second", "first"}; !slices.Equal(s.begun, want) {
		t.Errorf("attempts for %v, want %v", s.begun, want)
	}
	if events := s.drainEvents(); len(events) != 2 {
		t.Errorf("events %q, want one for each pod", events)
	}
}

// TestAdmissionIsRepeatedWhenAPodEndsMeanwhile: a pod ends while the handlers run for another; they run again.
func TestAdmissionIsRepeatedWhenAPodEndsMeanwhile(t *testing.T) {
	s := newPressuredNode()
	s.verdict, s.full, s.active = policy.Admitted, true, []*v1.Pod{pod("ends")}
	s.afterHandlers = func() { s.active, s.full = nil, false }
	if !s.gate.Admit(t.Context(), pod("a")) || s.runs != 2 {
		t.Errorf("not admitted after the handlers ran %d times", s.runs)
	}
}

// TestNoAdmissionDuringShutdown: waiting pods go on waiting, and no victim is stopped for a new pod.
func TestNoAdmissionDuringShutdown(t *testing.T) {
	s := newPressuredNode()
	s.gate.Admit(t.Context(), pod("waits"))
	s.shuttingDown, s.verdict, s.full = true, policy.Admitted, true
	s.inProgress = map[types.UID]bool{"critical": true}
	s.advance(time.Hour)
	for range 3 {
		s.gate.Admit(t.Context(), pod("waits"))
	}
	if !s.waiting.IsWaiting("waits") || s.runs != 0 {
		t.Error("the handlers ran for a waiting pod")
	}
	if s.gate.Admit(t.Context(), pod("critical")); len(s.begun) != 0 || s.statuses["critical"].Phase != v1.PodFailed {
		t.Errorf("others are stopped for %v, which is %s", s.begun, s.statuses["critical"].Phase)
	}
	s.shuttingDown, s.full = false, false
	if !s.gate.Admit(t.Context(), pod("waits")) || s.runs != 2 {
		t.Error("the handlers did not run after the shutdown was cancelled")
	}
}

func TestAnAdmittedPodDoesNotWaitForVictimsAnyMore(t *testing.T) {
	s := newPressuredNode()
	s.verdict, s.inProgress = policy.Admitted, map[types.UID]bool{"a": true}
	if !s.gate.Admit(t.Context(), pod("a")) || s.waiting.IsWaiting("a") || len(s.inProgress) != 0 {
		t.Error("the pod waits although it fits")
	}
}

func TestRetryRequestsAreCoalesced(t *testing.T) {
	s := newPressuredNode()
	for range 3 {
		s.waiting.RequestRetry()
	}
	if n := len(s.waiting.RetryRequested()); n != 1 {
		t.Errorf("%d requests are pending", n)
	}
}

func TestRelease(t *testing.T) {
	s := newPressuredNode()
	s.gate.Admit(t.Context(), pod("a"))
	s.waiting.Release("a")
	if s.waiting.IsWaiting("a") || len(s.waiting.UIDs()) != 0 {
		t.Error("the pod still waits")
	}
}

// TestCompeting: requests of waiting pods count for pods that arrive later, and not for those that arrived earlier, nor
// for critical ones.
func TestCompeting(t *testing.T) {
	s := newPressuredNode()
	runs, first, second, newcomer, critical := pod("runs"), pod("first"), pod("second"), pod("newcomer"), pod("critical")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	active := []*v1.Pod{runs, first, second, newcomer, critical}
	s.active = active
	s.gate.Admit(t.Context(), first)
	s.gate.Admit(t.Context(), second)
	for _, test := range []struct {
		pod  *v1.Pod
		want string
	}{
		{first, "runs first newcomer critical"}, {second, "runs first second newcomer critical"},
		{newcomer, "runs first second newcomer critical"}, {critical, "runs newcomer critical"},
	} {
		var got []string
		for _, p := range s.waiting.Competing(test.pod) {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s competes with %v, want %s", test.pod.Name, got, test.want)
		}
	}
	if n := len(s.waiting.Exclude(active)); n != 3 || len(active) != 5 {
		t.Errorf("%d pods are left for eviction", n)
	}
	s.verdict = policy.Admitted
	s.gate.Admit(t.Context(), first)
	if got := strings.Join(s.competing, " "); got != "runs first newcomer critical" {
		t.Errorf("the handlers got %s", got)
	}
}
