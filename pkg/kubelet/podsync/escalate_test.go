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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

const graceOfTest = 5

func requestOf(h *hardWorld) TerminateRequest {
	return TerminateRequest{Pod: podWithGrace(graceOfTest), Status: h.inRuntime}
}

// reasons are those of the events since the last call.
func reasons(w *world) []string {
	var out []string
	for _, e := range w.sent() {
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

func TestPodThatStopsInTimeIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		s := h.syncer()
		time.AfterFunc(17*time.Second, func() { h.leave(); h.ends() })
		if err := s.Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectEvents(t, h.world)
	})
}

// Everything but the cgroup's own kill is in vain; that ends the processes, the runtime sees it, the pod has stopped.
func TestOverduePodIsKilledRungByRung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.onCgroupKill = func() { h.leave(); h.ends() }
		s := h.syncer()
		if err := s.Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox", "28s kill cgroup /kubepods/poduid")
		const left = "running: a; 2 processes in the pod's cgroup, 0 in uninterruptible sleep; 10 (pause) S, 11 (main) S"
		expectEvents(t, h.world,
			"Warning ContainerStopOverdue The container runtime has not stopped the pod 13s after the end of its grace period: "+left,
			"Warning ContainerProcessesKilled Killing what is in the pod's cgroup, past the container runtime: "+left)
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("a pod that has stopped is overdue: %v", over)
		}
	})
}

func TestOverduePodMayStopAtEachRung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.onStop = func() { h.leave(); h.ends() }
		if err := h.syncer().Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0")
	})
}

// The processes die, and the runtime does not notice: its helper hangs. The pod is not reported as stopped until the runtime has
// noticed, and what was told is not told again with each attempt.
func TestRuntimeThatDoesNotNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.onCgroupKill = func() { h.leave() }
		s := h.syncer()
		if err := s.Terminate(t.Context(), requestOf(h)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox", "28s kill cgroup /kubepods/poduid")
		expectReasons(t, h.world, ContainerStopOverdue, ContainerProcessesKilled, ContainerStopStuck, "FailedKillPod")
		over, ok := s.Overdue()["uid"]
		if !ok || over.Rung != escalation.Report || !over.Since.Equal(h.begin.Add(graceOfTest*time.Second)) || !slices.Equal(over.Facts.Running, []string{"a"}) || len(over.Facts.Processes) != 0 {
			t.Errorf("overdue: %+v", over)
		}
		if calls := h.take(); slices.Contains(calls, "generate terminal=true") {
			t.Errorf("reported as stopped: %q", calls)
		}
		time.AfterFunc(time.Minute, h.ends)
		if err := s.Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectReasons(t, h.world)
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("overdue: %v", over)
		}
	})
}

// What sleeps in the kernel is said once, signalled again and again, and gone when the kernel lets it.
func TestProcessStuckInTheKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.leave(escalation.Process{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a"})
		s := h.syncer()
		time.AfterFunc(100*time.Second, func() { h.leave(); h.ends() })
		if err := s.Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		kills := 0
		for _, line := range h.noted() {
			if strings.Contains(line, "kill cgroup") {
				kills++
			}
		}
		if kills != 4 {
			t.Errorf("%d kills: %q", kills, h.noted())
		}
		sent := h.sent()
		if len(sent) != 3 || !strings.Contains(sent[2], "ContainerStopStuck") || !strings.Contains(sent[2], "1 in uninterruptible sleep; 11 (dd) D") {
			t.Errorf("events %q", sent)
		}
	})
}

// A shorter grace period that is accepted meanwhile moves the ladder.
func TestHastenedPodIsOverdueSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.onCgroupKill = func() { h.leave(); h.ends() }
		s := h.syncer()
		request := requestOf(h)
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
		expectTimeline(t, h, "0s kill pod", "10s stop id-a 1", "24s stop id-a 0", "29s stop sandbox sandbox", "34s kill cgroup /kubepods/poduid")
	})
}

// The runtime answers, and refuses at once whenever it is asked to stop the pod. Attempts do not begin anew.
func TestRuntimeThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.answers(nil, errors.New("task is in a strange state"))
		h.onCgroupKill = func() { h.leave(); h.answers(nil, nil); h.ends() }
		s := h.syncer()
		attempts := 1
		for ; s.Terminate(t.Context(), requestOf(h)) != nil; attempts++ {
			<-time.After(10 * time.Second)
		}
		got := strings.Join(slices.Sorted(slices.Values(h.noted())), ", ")
		if want := "0s kill pod, 10s kill pod, 20s kill pod, 20s stop id-a 0, 30s kill cgroup /kubepods/poduid, 30s kill pod, 30s stop sandbox sandbox, 40s kill pod"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if attempts != 5 {
			t.Errorf("%d attempts", attempts)
		}
	})
}

// A runtime that has never answered has not sent the first signal either: its containers are told on, and not killed at once.
func TestRuntimeThatIsAway(t *testing.T) {
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("comes back %t", back), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHardWorld()
				away := errors.New("connection refused")
				h.answers(away, away)
				if back {
					time.AfterFunc(65*time.Second, func() { h.answers(nil, nil) })
					time.AfterFunc(75*time.Second, func() { h.leave(); h.ends() })
				}
				h.onCgroupKill = func() { h.leave(); h.answers(nil, nil); h.ends() }
				s := h.syncer()
				for s.Terminate(t.Context(), requestOf(h)) != nil {
					<-time.After(10 * time.Second)
				}
				var kills []string
				for _, line := range h.noted() {
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
				sent := h.sent()
				told := slices.ContainsFunc(sent, func(e string) bool {
					return strings.Contains(e, ContainerStopOverdue) && strings.Contains(e, "the runtime does not answer")
				})
				if !told {
					t.Errorf("events %q", sent)
				}
			})
		})
	}
}

func TestVirtualMachinesAreLeftToTheRuntime(t *testing.T) {
	withOverhead := podWithGrace(graceOfTest)
	withOverhead.Spec.Overhead = v1.ResourceList{v1.ResourceMemory: resource.MustParse("128Mi")}
	machine := escalation.Process{PID: 10, Name: "qemu", State: 'S', Cgroup: "sandbox"}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		left []escalation.Process
	}{
		"specification": {withOverhead, []escalation.Process{machine, {PID: 11, Cgroup: "id-a"}}},
		"cgroup":        {podWithGrace(graceOfTest), []escalation.Process{machine}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHardWorld()
				h.leave(tc.left...)
				time.AfterFunc(100*time.Second, h.ends)
				if err := h.syncer().Terminate(t.Context(), TerminateRequest{Pod: tc.pod, Status: h.inRuntime}); err != nil {
					t.Fatal(err)
				}
				expectTimeline(t, h, "0s kill pod", "18s stop id-a 0", "23s stop sandbox sandbox")
				expectReasons(t, h.world, ContainerStopOverdue, ContainerStopStuck)
			})
		})
	}
}

// The network of the sandbox takes its time; nothing is to be killed for that, and the sandbox is being stopped already.
func TestSlowSandboxIsToldAndLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.inRuntime = runtimeStatus(container("a", down))
		h.leave()
		time.AfterFunc(25*time.Second, func() { close(h.stopped) })
		if err := h.syncer().Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod")
		expectReasons(t, h.world, SandboxStopOverdue)
	})
}

func TestOrphanIsKilledToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.cgroup = true
		h.onCgroupKill = func() { h.leave(); h.ends() }
		s := h.syncer()
		orphan := &kubecontainer.Pod{ID: "uid", Name: "pod", Namespace: "ns", Containers: []*kubecontainer.Container{{ID: kubecontainer.ContainerID{ID: "id-a"}, Name: "a", State: up}}}
		if err := s.TerminateRuntimePod(t.Context(), orphan); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "0s kill pod", "14s stop id-a 0", "19s stop sandbox sandbox", "24s kill cgroup /kubepods/poduid")
		if over := s.Overdue(); len(over) != 0 {
			t.Errorf("overdue: %v", over)
		}
	})
}

func TestCancelledTerminationStopsKilling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := h.syncer().Terminate(ctx, requestOf(h)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		<-time.After(time.Hour)
		expectTimeline(t, h, "0s kill pod", "18s stop id-a 0")
	})
}

// The runtime says that everything has stopped, and there are processes.
func TestProcessesThatTheRuntimeHasLost(t *testing.T) {
	for _, killable := range []bool{true, false} {
		t.Run(fmt.Sprintf("killable %t", killable), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHardWorld()
				h.ends()
				lost := escalation.Process{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a/nested"}
				// The sandbox of a virtual machine may stay until it is removed.
				h.leave(lost, escalation.Process{PID: 10, Cgroup: "sandbox"})
				if killable {
					h.onCgroupKill = func() { h.leave() }
				}
				s := h.syncer()
				err := s.Terminate(t.Context(), requestOf(h))
				expectTimeline(t, h, "0s kill pod", "0s kill cgroup /kubepods/poduid")
				if killable {
					if err != nil || len(s.Overdue()) != 0 {
						t.Errorf("got %v, overdue %v", err, s.Overdue())
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), "processes are left: all containers have stopped; 1 process in the pod's cgroup, 1 in uninterruptible sleep; 11 (dd) D") {
					t.Errorf("got %v", err)
				}
				if calls := h.take(); slices.Contains(calls, "generate terminal=true") || slices.Contains(calls, "unprepare") {
					t.Errorf("went on: %q", calls)
				}
				if over := s.Overdue()["uid"]; over.Rung != escalation.Report || !slices.Equal(over.Facts.Stuck(), []escalation.Process{{PID: 11, Name: "dd", State: 'D', Cgroup: "id-a/nested", Container: true}}) {
					t.Errorf("overdue: %+v", over)
				}
				_ = s.Terminate(t.Context(), requestOf(h))
				expectReasons(t, h.world, ContainerStopStuck)
				h.leave()
				if err := s.Terminate(t.Context(), requestOf(h)); err != nil || len(s.Overdue()) != 0 {
					t.Errorf("got %v, overdue %v", err, s.Overdue())
				}
			})
		})
	}
}

func TestSandboxProcessesDoNotHoldAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.ends()
		h.leave(escalation.Process{PID: 10, Cgroup: "sandbox"}, escalation.Process{PID: 9})
		if err := h.syncer().Terminate(t.Context(), requestOf(h)); err != nil {
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

// The cgroup is emptied before the stock container manager removes it, since that kills by bare PIDs.
func TestCleanUpKillsWhatIsLeftInTheCgroup(t *testing.T) {
	for _, killable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHardWorld()
			if killable {
				h.onCgroupKill = func() { h.leave() }
			}
			err := h.syncer().CleanUp(t.Context(), testPod(), h.inRuntime)
			expectTimeline(t, h, "0s kill cgroup /kubepods/poduid")
			destroyed := slices.Contains(h.take(), "destroy cgroup kubepods/poduid")
			if destroyed != killable || (err == nil) != killable {
				t.Errorf("killable %t: destroyed %t, %v", killable, destroyed, err)
			}
		})
	}
}
