package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

const testGraceSeconds = 5

func terminateRequest(h *stuckWorld) TerminateRequest {
	h.lock.Lock()
	defer h.lock.Unlock()
	return TerminateRequest{Pod: podWithGrace(testGraceSeconds), Status: h.inRuntime}
}

// reasons returns the reasons of the events since the last call.
func reasons(w *world) []string {
	var out []string
	for _, e := range w.takeEvents() {
		out = append(out, strings.Fields(e)[1])
	}
	return out
}

func expectReasons(t *testing.T, w *world, want ...string) {
	t.Helper()
	if got := reasons(w); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestNoEscalationOfAPodThatStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		s := h.syncer()
		time.AfterFunc(17*time.Second, func() { h.setProcesses(); h.exitContainers() })
		if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectEvents(t, h.world)
	})
}

// Only the kill of the cgroup has an effect: the processes end, and the runtime reports that the containers have
// stopped.
func TestOverduePodIsKilledStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.onCgroupKill = func() { h.setProcesses(); h.exitContainers() }
		s := h.syncer()
		if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox", "28s kill cgroup /kubepods/poduid")
		const remaining = "running: a; 2 processes in the pod's cgroup, 0 in uninterruptible sleep; 10 (pause) S, 11 (main) S"
		expectEvents(t, h.world,
			"Warning ContainerStopOverdue The container runtime has not stopped the pod 13s after the end of its grace period: "+
				remaining,
			"Warning ContainerProcessesKilled Killing the processes in the pod's cgroup without the container runtime: "+
				remaining)
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("a stopped pod is overdue: %v", over)
		}
	})
}

func TestEscalationEndsWhenThePodStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.onStop = func() { h.setProcesses(); h.exitContainers() }
		if err := h.syncer().Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0")
	})
}

// The processes end, and the runtime does not report it because its shim hangs. The termination continues until the
// runtime reports it, and events are not repeated with each attempt.
func TestRuntimeMissesTheEndOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.onCgroupKill = func() { h.setProcesses() }
		s := h.syncer()
		if err := s.Terminate(t.Context(), terminateRequest(h)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox", "28s kill cgroup /kubepods/poduid")
		expectReasons(t, h.world, ContainerStopOverdue, ContainerProcessesKilled, ContainerStopStuck, "FailedKillPod")
		want := escalation.Overdue{
			Since: h.begin.Add(testGraceSeconds * time.Second), Step: escalation.Report,
			Facts: escalation.Facts{Running: []string{"a"}},
		}
		over, ok := s.Overdue()["uid"]
		if over.Seen = (time.Time{}); !ok || !cmp.Equal(over, want, cmpopts.EquateEmpty()) {
			t.Errorf("overdue: %+v", over)
		}
		if calls := h.takeCalls(); slices.Contains(calls, "generate terminal=true") {
			t.Errorf("the end of the containers is published: %q", calls)
		}
		time.AfterFunc(time.Minute, h.exitContainers)
		if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectReasons(t, h.world)
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("overdue: %v", over)
		}
	})
}

// A process in uninterruptible sleep causes one event. It is killed repeatedly, and ends when the kernel wakes it.
func TestProcessInUninterruptibleSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.setProcesses(escalation.Process{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a"})
		s := h.syncer()
		time.AfterFunc(100*time.Second, func() { h.setProcesses(); h.exitContainers() })
		if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		kills := 0
		for _, line := range h.recorded() {
			if strings.Contains(line, "kill cgroup") {
				kills++
			}
		}
		if kills != 4 {
			t.Errorf("%d kills: %q", kills, h.recorded())
		}
		const stuck = "1 in uninterruptible sleep; 11 (dd) D"
		sent := h.takeEvents()
		if len(sent) != 3 || !strings.Contains(sent[2], "ContainerStopStuck") || !strings.Contains(sent[2], stuck) {
			t.Errorf("events %q", sent)
		}
	})
}

// A shorter grace period makes the steps of a termination in progress due earlier.
func TestEscalationFollowsAShorterGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.onCgroupKill = func() { h.setProcesses(); h.exitContainers() }
		s := h.syncer()
		request := terminateRequest(h)
		request.Pod = podWithGrace(600)
		hastened := make(chan error)
		go func() {
			<-time.After(10 * time.Second)
			shorter := request
			shorter.GracePeriod = new(int64(1))
			hastened <- s.Hasten(t.Context(), shorter)
		}()
		if err := s.Terminate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if err := <-hastened; err != nil {
			t.Error(err)
		}
		expectTimeline(t, h, "0s kill pod", "10s stop id-a 1", "24s stop id-a 0", "29s stop sandbox sandbox",
			"34s kill cgroup /kubepods/poduid")
	})
}

// KillPod returns an error at once. The escalation does not begin again with each attempt.
func TestEscalationContinuesOverAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.setErrors(nil, errors.New("task is in a strange state"))
		h.onCgroupKill = func() {
			h.setProcesses()
			// Later, so that the attempt that begins at the time of the kill fails.
			time.AfterFunc(time.Second, func() { h.setErrors(nil, nil); h.exitContainers() })
		}
		s := h.syncer()
		attempts := 1
		for ; s.Terminate(t.Context(), terminateRequest(h)) != nil; attempts++ {
			<-time.After(10 * time.Second)
		}
		got := slices.Sorted(slices.Values(h.recorded()))
		fixture.ExpectEqual(t, "timeline", got, []string{
			"0s kill pod", "10s kill pod", "20s kill pod", "20s stop id-a 0", "30s kill cgroup /kubepods/poduid",
			"30s kill pod", "30s stop sandbox sandbox", "40s kill pod",
		})
		if attempts != 5 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

// A runtime that has not answered has not signalled the containers either: there is an event, and the kill comes later.
func TestEscalationWaitsForAnUnreachableRuntime(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("available again %t", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStuckWorld()
				away := errors.New("connection refused")
				h.setErrors(away, away)
				if back {
					time.AfterFunc(65*time.Second, func() { h.setErrors(nil, nil) })
					time.AfterFunc(75*time.Second, func() { h.setProcesses(); h.exitContainers() })
				}
				h.onCgroupKill = func() { h.setProcesses(); h.setErrors(nil, nil); h.exitContainers() }
				s := h.syncer()
				for s.Terminate(t.Context(), terminateRequest(h)) != nil {
					<-time.After(10 * time.Second)
				}
				var kills []string
				for _, line := range h.recorded() {
					if !strings.HasSuffix(line, "kill pod") {
						kills = append(kills, line)
					}
				}
				want := []string{"2m20s stop id-a 0", "2m30s kill cgroup /kubepods/poduid", "2m30s stop sandbox sandbox"}
				if back {
					want = nil
				}
				if slices.Sort(kills); !slices.Equal(kills, want) {
					t.Errorf("got %q, want %q", kills, want)
				}
				sent := h.takeEvents()
				overdue := slices.ContainsFunc(sent, func(e string) bool {
					return strings.Contains(e, ContainerStopOverdue) && strings.Contains(e, "the runtime does not answer")
				})
				if !overdue {
					t.Errorf("events %q", sent)
				}
			})
		})
	}
}

func TestCgroupOfAVirtualMachineIsNotKilled(t *testing.T) {
	withOverhead := podWithGrace(testGraceSeconds)
	withOverhead.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("128Mi")}
	machine := escalation.Process{PID: 10, Name: "qemu", State: 'S', Cgroup: "sandbox"}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		left []escalation.Process
	}{
		"specification": {withOverhead, []escalation.Process{machine, {PID: 11, Cgroup: "id-a"}}},
		"cgroup":        {podWithGrace(testGraceSeconds), []escalation.Process{machine}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStuckWorld()
				h.setProcesses(tc.left...)
				time.AfterFunc(100*time.Second, h.exitContainers)
				if err := h.syncer().Terminate(t.Context(), TerminateRequest{Pod: tc.pod, Status: h.inRuntime}); err != nil {
					t.Fatal(err)
				}
				expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox")
				expectReasons(t, h.world, ContainerStopOverdue, ContainerStopStuck)
			})
		})
	}
}

// If only the sandbox is not stopped in time, there is an event, and no kill: it is being stopped already.
func TestSlowSandboxGetsAnEventOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.inRuntime = runtimeStatus(container("a", stateExited))
		h.setProcesses()
		time.AfterFunc(25*time.Second, func() { close(h.stopped) })
		if err := h.syncer().Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectReasons(t, h.world, SandboxStopOverdue)
	})
}

func TestEscalationOfARuntimePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.cgroup = true
		h.onCgroupKill = func() { h.setProcesses(); h.exitContainers() }
		s := h.syncer()
		orphan := &kubecontainer.Pod{
			ID: "uid", Name: "pod", Namespace: "ns",
			Containers: []*kubecontainer.Container{
				{ID: kubecontainer.ContainerID{ID: "id-a"}, Name: "a", State: stateRunning},
			},
		}
		if err := s.TerminateRuntimePod(t.Context(), orphan); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "14s stop id-a 0", "19s stop sandbox sandbox", "24s kill cgroup /kubepods/poduid")
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("overdue: %v", over)
		}
	})
}

func TestCancelledTerminationEndsTheEscalation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := h.syncer().Terminate(ctx, terminateRequest(h)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		<-time.After(time.Hour)
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0")
	})
}

// The runtime reports that all containers have stopped, while processes of them still exist.
func TestProcessesThatTheRuntimeDoesNotReport(t *testing.T) {
	for _, killable := range []bool{true, false} {
		t.Run(fmt.Sprintf("killable %t", killable), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newStuckWorld()
				h.exitContainers()
				lost := escalation.Process{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a/nested"}
				// A process of the sandbox of a virtual machine may exist until the sandbox is removed.
				h.setProcesses(lost, escalation.Process{PID: 10, Cgroup: "sandbox"})
				if killable {
					h.onCgroupKill = func() { h.setProcesses() }
				}
				s := h.syncer()
				err := s.Terminate(t.Context(), terminateRequest(h))
				expectTimeline(t, h, "0s kill pod", "0s kill cgroup /kubepods/poduid")
				if killable {
					if err != nil || len(s.Overdue()) != 0 {
						t.Errorf("got %v, overdue %v", err, s.Overdue())
					}
					return
				}
				const remaining = "processes remain: all containers have stopped; 1 process in the pod's cgroup, " +
					"1 in uninterruptible sleep; 11 (dd) D"
				if err == nil || !strings.Contains(err.Error(), remaining) {
					t.Errorf("got %v", err)
				}
				if calls := h.takeCalls(); slices.Contains(calls, "generate terminal=true") || slices.Contains(calls, "unprepare") {
					t.Errorf("later steps are executed: %q", calls)
				}
				stuck := []escalation.Process{{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a/nested", Container: true}}
				if over := s.Overdue()["uid"]; over.Step != escalation.Report || !slices.Equal(over.Facts.Stuck(), stuck) {
					t.Errorf("overdue: %+v", over)
				}
				_ = s.Terminate(t.Context(), terminateRequest(h))
				expectReasons(t, h.world, ContainerStopStuck)
				h.setProcesses()
				if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil || len(s.Overdue()) != 0 {
					t.Errorf("got %v, overdue %v", err, s.Overdue())
				}
			})
		})
	}
}

func TestSandboxProcessesDoNotBlockTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.exitContainers()
		h.setProcesses(escalation.Process{PID: 10, Cgroup: "sandbox"}, escalation.Process{PID: 9})
		if err := h.syncer().Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Error(err)
		}
		expectTimeline(t, h, "0s kill pod")
	})
}

func TestGraceOf(t *testing.T) {
	pod := testPod()
	expect := func(override *int64, want time.Duration) {
		t.Helper()
		if got := graceOf(pod, override); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	expect(nil, 0)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	expect(nil, 30*time.Second)
	pod.DeletionGracePeriodSeconds = new(int64(20))
	expect(nil, 20*time.Second)
	expect(new(int64(1)), time.Second)
	expect(new(int64(-1)), 0)
}

// The processes in the cgroup are killed before the stock container manager removes it, since that kills by PID.
func TestCleanUpKillsRemainingProcesses(t *testing.T) {
	for _, killable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newStuckWorld()
			if killable {
				h.onCgroupKill = func() { h.setProcesses() }
			}
			err := h.syncer().CleanUp(t.Context(), testPod(), h.inRuntime)
			expectTimeline(t, h, "0s kill cgroup /kubepods/poduid")
			destroyed := slices.Contains(h.takeCalls(), "destroy cgroup kubepods/poduid")
			if destroyed != killable || (err == nil) != killable {
				t.Errorf("killable %t: destroyed %t, %v", killable, destroyed, err)
			}
		})
	}
}
