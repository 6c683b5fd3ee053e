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

// squeezed is a node under pressure: the allocator, the statuses and the judge of a gate.
type squeezed struct {
	*node
	verdict policy.Verdict
	bound   time.Duration
	clock   *clocktesting.FakePassiveClock
	gate    *Gate
	room    *Room
	events  *record.FakeRecorder
	// full: there are not enough CPUs; asked is how often the chain was run.
	full  bool
	asked int
	// judged is called when the chain has answered, if not nil.
	judged func()
	// goingDown: the machine shuts down.
	goingDown bool
	// beside are the pods that the chain was shown last.
	beside []string
}

func (s *squeezed) Judge(*v1.Pod) (policy.Verdict, string) {
	if s.verdict == policy.Admitted {
		return policy.Admitted, ""
	}
	return s.verdict, "The node had condition: [MemoryPressure]. "
}

// AddPod refuses as the chain of admit handlers does while there is pressure.
func (s *squeezed) AddPod(active []*v1.Pod, _ *v1.Pod) (bool, string, string) {
	s.beside = nil
	s.asked++
	if s.judged != nil {
		defer s.judged()
	}
	for _, p := range active {
		s.beside = append(s.beside, p.Name)
	}
	if s.verdict != policy.Admitted {
		return false, policy.ReasonEvicted, "The node had condition: [MemoryPressure]. "
	}
	if s.full {
		return false, lifecycle.OutOfCPU, "Node didn't have enough resource: cpu"
	}
	return true, "", ""
}

func squeeze() *squeezed {
	s := &squeezed{node: &node{}, verdict: policy.Waits, bound: time.Minute, clock: clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))}
	s.restart()
	return s
}

// restart begins with nothing in memory.
func (s *squeezed) restart() {
	s.seen, s.statuses = map[types.UID]bool{}, map[types.UID]v1.PodStatus{}
	s.events = record.NewFakeRecorder(100)
	s.readmission = NewReadmission(s, s)
	s.room = NewRoom(RoomConfig{
		Pressure: s, Victims: s, Status: s, Recorder: s.events, Clock: s.clock,
		Active: s.Active, GoingDown: func() bool { return s.goingDown }, Bound: func() time.Duration { return s.bound },
	})
	s.gate = NewGate(s, s.readmission, s.room, NewRejector(s.events, s))
}

func (s *squeezed) pass(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func (s *squeezed) told() (list []string) {
	for {
		select {
		case e := <-s.events.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func TestAPodWaitsVisiblyAndEntersWhenThereIsRoom(t *testing.T) {
	s := squeeze()
	p := pod("a")
	for range 3 {
		if s.gate.Admit(t.Context(), p) {
			t.Fatal("admitted under pressure")
		}
		s.pass(time.Second)
	}
	status := s.statuses["a"]
	message := "The node had condition: [MemoryPressure]. The pod waits for at most 1m0s and is rejected then."
	if status.Phase != v1.PodPending || status.Reason != "WaitingForRoom" || status.Message != message {
		t.Errorf("status %+v", status)
	}
	if got, want := s.told(), []string{"Normal WaitingForRoom " + message}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if !s.room.Holds("a") || !slices.Equal(s.room.Waiting(), []types.UID{"a"}) {
		t.Error("it does not wait")
	}
	if n, err := testutil.GetGaugeMetricValue(podsWaiting); err != nil || n != 1 {
		t.Errorf("the metric says %v, %v", n, err)
	}
	s.verdict = policy.Admitted
	if !s.gate.Admit(t.Context(), p) || s.room.Holds("a") {
		t.Error("not admitted when the pressure is over")
	}
	if n, err := testutil.GetGaugeMetricValue(podsWaiting); err != nil || n != 0 {
		t.Errorf("the metric says %v, %v", n, err)
	}
}

func TestAtTheEndOfItsTimeAPodIsRejectedAsStockDoes(t *testing.T) {
	s := squeeze()
	p := pod("a")
	s.gate.Admit(t.Context(), p)
	s.pass(time.Minute - 1)
	if s.gate.Admit(t.Context(), p); s.statuses["a"].Phase != v1.PodPending {
		t.Errorf("rejected before its time: %+v", s.statuses["a"])
	}
	s.pass(1)
	s.gate.Admit(t.Context(), p)
	if status := s.statuses["a"]; status.Phase != v1.PodFailed || status.Reason != "Evicted" || status.Message != "Pod was rejected: The node had condition: [MemoryPressure]. " {
		t.Errorf("status %+v", status)
	}
	if s.room.Holds("a") {
		t.Error("it still waits")
	}
}

func TestWhoMayNotWaitIsRejectedAtOnce(t *testing.T) {
	for name, change := range map[string]func(*squeezed){
		"its controller finds another node": func(s *squeezed) { s.verdict = policy.Rejected },
		"waiting is switched off":           func(s *squeezed) { s.bound = 0 },
		"too many wait": func(s *squeezed) {
			for i := range mostWaiting {
				s.gate.Admit(t.Context(), pod(types.UID(fmt.Sprint("earlier-", i))))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := squeeze()
			change(s)
			s.gate.Admit(t.Context(), pod("a"))
			if status := s.statuses["a"]; status.Phase != v1.PodFailed || s.room.Holds("a") {
				t.Errorf("status %+v", status)
			}
		})
	}
}

func TestARestartNeitherForgetsNorProlongsTheWait(t *testing.T) {
	s := squeeze()
	p := pod("a")
	s.gate.Admit(t.Context(), p)
	// What the API server keeps; the start time is filled in by the status manager.
	p.Status = s.statuses["a"]
	p.Status.StartTime = &metav1.Time{Time: s.clock.Now()}
	s.pass(40 * time.Second)
	s.restart()
	if s.gate.Admit(t.Context(), p); !s.room.Holds("a") {
		t.Fatal("it does not wait after the restart")
	}
	if told := s.told(); len(told) != 0 {
		t.Errorf("told again: %q", told)
	}
	s.pass(20 * time.Second)
	if s.gate.Admit(t.Context(), p); s.statuses["a"].Phase != v1.PodFailed {
		t.Errorf("the restart has prolonged the wait: %+v", s.statuses["a"])
	}
}

// TestACriticalPodWaitsForItsVictims: the chain refuses it while others are being stopped for it.
func TestACriticalPodWaitsForItsVictims(t *testing.T) {
	for _, enough := range []bool{true, false} {
		s := squeeze()
		s.verdict, s.full = policy.Admitted, true
		s.making = map[types.UID]bool{"a": true}
		p := pod("a")
		for range 3 {
			s.gate.Admit(t.Context(), p)
			s.pass(time.Hour)
		}
		message := "Node didn't have enough resource: cpu. Pods that matter less are being stopped to make room."
		if status := s.statuses["a"]; !s.room.Holds("a") || status.Phase != v1.PodPending || status.Reason != "WaitingForRoom" || status.Message != message {
			t.Errorf("status %+v", status)
		}
		if told := s.told(); len(told) != 1 || s.asked != 1 {
			t.Errorf("events %q, the chain was run %d times", told, s.asked)
		}
		s.making, s.full = nil, !enough
		if got := s.gate.Admit(t.Context(), p); got != enough || s.room.Holds("a") {
			t.Errorf("admitted %v, want %v", got, enough)
		}
		if status := s.statuses["a"]; !enough && (status.Phase != v1.PodFailed || status.Reason != "OutOfcpu") {
			t.Errorf("status %+v", status)
		}
	}
}

// TestAPodThatIsRefusedAgainKeepsItsPlace: its victims have stopped, somebody else has the room, and others are
// stopped for it. While it is being judged it counts as one that may run in a moment.
func TestAPodThatIsRefusedAgainKeepsItsPlace(t *testing.T) {
	s := squeeze()
	s.verdict, s.full = policy.Admitted, true
	s.making = map[types.UID]bool{"first": true, "second": true}
	s.gate.Admit(t.Context(), pod("first"))
	s.gate.Admit(t.Context(), pod("second"))
	s.making["first"] = false
	if s.room.Hold(t.Context(), pod("first")) || s.room.Holds("first") {
		t.Error("it waits while it is being judged")
	}
	s.making["first"] = true
	if !s.room.HoldForVictims(t.Context(), pod("first"), nil, "full") || !s.room.HoldsForVictims("first") {
		t.Error("it does not wait")
	}
	if got, want := s.room.Waiting(), []types.UID{"first", "second"}; !slices.Equal(got, want) {
		t.Errorf("%v wait, want %v", got, want)
	}
	if want := []types.UID{"first", "second", "first"}; !slices.Equal(s.begun, want) {
		t.Errorf("room was made for %v, want %v", s.begun, want)
	}
	if told := s.told(); len(told) != 2 {
		t.Errorf("events %q, want one for each pod", told)
	}
}

// TestARefusalFromBeforeTheEndOfAPodDoesNotCount: a pod ends while another is being judged, which is judged again.
func TestARefusalFromBeforeTheEndOfAPodDoesNotCount(t *testing.T) {
	s := squeeze()
	s.verdict, s.full, s.active = policy.Admitted, true, []*v1.Pod{pod("ends")}
	s.judged = func() { s.active, s.full = nil, false }
	if !s.gate.Admit(t.Context(), pod("a")) || s.asked != 2 {
		t.Errorf("not admitted when it was judged %d times", s.asked)
	}
}

// TestWhileTheMachineGoesDown: pods that wait go on waiting, and no pod is stopped for one that comes.
func TestWhileTheMachineGoesDown(t *testing.T) {
	s := squeeze()
	s.gate.Admit(t.Context(), pod("waits"))
	s.goingDown, s.verdict, s.full = true, policy.Admitted, true
	s.making = map[types.UID]bool{"critical": true}
	s.pass(time.Hour)
	for range 3 {
		s.gate.Admit(t.Context(), pod("waits"))
	}
	if !s.room.Holds("waits") || s.asked != 0 {
		t.Error("a pod that waits is judged")
	}
	if s.gate.Admit(t.Context(), pod("critical")); len(s.begun) != 0 || s.statuses["critical"].Phase != v1.PodFailed {
		t.Errorf("others are stopped for %v, which is %s", s.begun, s.statuses["critical"].Phase)
	}
	s.goingDown, s.full = false, false
	if !s.gate.Admit(t.Context(), pod("waits")) || s.asked != 2 {
		t.Error("not judged after the shutdown was cancelled")
	}
}

func TestAnAdmittedPodDoesNotWaitForVictimsAnyMore(t *testing.T) {
	s := squeeze()
	s.verdict, s.making = policy.Admitted, map[types.UID]bool{"a": true}
	if !s.gate.Admit(t.Context(), pod("a")) || s.room.Holds("a") || len(s.making) != 0 {
		t.Error("it waits although there is room")
	}
}

func TestABurstOfCallsIsOne(t *testing.T) {
	s := squeeze()
	for range 3 {
		s.room.Call()
	}
	if n := len(s.room.Calls()); n != 1 {
		t.Errorf("%d calls are waiting", n)
	}
}

func TestFreeForgetsAtOnce(t *testing.T) {
	s := squeeze()
	s.gate.Admit(t.Context(), pod("a"))
	s.room.Free("a")
	if s.room.Holds("a") || len(s.room.Waiting()) != 0 {
		t.Error("it still waits")
	}
}

// TestReservations: what waiting pods ask for is taken for those that come later, and not for those that came earlier, nor for
// critical ones.
func TestReservations(t *testing.T) {
	s := squeeze()
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
		for _, p := range s.room.Beside(test.pod) {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s is admitted beside %v, want %s", test.pod.Name, got, test.want)
		}
	}
	if n := len(s.room.Without(active)); n != 3 || len(active) != 5 {
		t.Errorf("%d pods are left for eviction", n)
	}
	s.verdict = policy.Admitted
	s.gate.Admit(t.Context(), first)
	if got := strings.Join(s.beside, " "); got != "runs first newcomer critical" {
		t.Errorf("the chain saw %s", got)
	}
}
