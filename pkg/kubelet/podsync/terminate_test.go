package podsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

const (
	stateRunning = kubecontainer.ContainerStateRunning
	stateExited  = kubecontainer.ContainerStateExited
)

var allTerminateCalls = []string{
	"generate terminal=false", "publish", "stop liveness", "get pod", "get status", "kill [a] grace=own", "qos",
	"remove probes", "get pod", "get status", "unprepare", "generate terminal=true", "publish",
}

func terminatePod(w *world) error {
	return New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime})
}

func TestTerminateDoesEverythingInOrder(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning), container("b", stateExited))
	if err := terminatePod(w); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, allTerminateCalls...)
}

func TestTerminateFailures(t *testing.T) {
	for _, tc := range []struct {
		call    string
		nth     int
		after   int // the number of calls after the failed one, -1 for all
		ignored bool
		event   string
	}{
		{call: "get pod", nth: 1, ignored: true},
		{call: "get status", nth: 1, ignored: true},
		{call: "kill [a] grace=own", nth: 1, event: "Warning FailedKillPod error killing pod: oops"},
		{call: "qos", nth: 1, ignored: true},
		{call: "get pod", nth: 2},
		{call: "get status", nth: 2},
		{call: "unprepare", nth: 1},
	} {
		t.Run(tc.call, func(t *testing.T) {
			w := newWorld()
			w.inRuntime = runtimeStatus(container("a", stateRunning))
			w.script[tc.call] = append(make([]error, tc.nth-1), errTest)
			err := terminatePod(w)
			if tc.ignored != (err == nil) {
				t.Errorf("error %v", err)
			}
			calls := w.takeCalls()
			if tc.ignored {
				if calls[len(calls)-2] != "generate terminal=true" {
					t.Errorf("ended early: %q", calls)
				}
			} else if calls[len(calls)-1] != tc.call {
				t.Errorf("continued after the failure: %q", calls)
			}
			if tc.event == "" {
				expectEvents(t, w)
			} else {
				expectEvents(t, w, tc.event)
			}
			if err := terminatePod(w); err != nil {
				t.Errorf("second time: %v", err)
			}
		})
	}
}

// D28: a container that the given status does not list is stopped.
func TestTerminateKillsContainersMissingInTheGivenStatus(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateExited), container("new", stateRunning))
	old := runtimeStatus(container("a", stateRunning))
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: old}); err != nil {
		t.Fatal(err)
	}
	if got := w.takeCalls(); !slices.Contains(got, "kill [new] grace=own") {
		t.Errorf("got %q", got)
	}
}

func TestTerminateUsesTheGivenStatusWhenTheRuntimeDoesNotAnswer(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateExited))
	w.script["get pod"] = []error{errTest}
	old := runtimeStatus(container("a", stateRunning))
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: old}); err != nil {
		t.Fatal(err)
	}
	if got := w.takeCalls(); !slices.Contains(got, "kill [a] grace=own") {
		t.Errorf("got %q", got)
	}
}

func TestTerminateOfAPodWithoutContainers(t *testing.T) {
	w := newWorld()
	w.script["get pod"] = []error{kubecontainer.ErrPodNotFound, kubecontainer.ErrPodNotFound}
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod()}); err != nil {
		t.Fatal(err)
	}
}

func TestTerminateFailsIfContainersRunAfterKillPod(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning))
	c := w.config()
	c.Runtime = falseKiller{runtimeOf{w}}
	err := New(c).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime})
	const violation = "detected running containers after a successful KillPod, CRI violation: [fake://id-a]"
	if err == nil || !strings.Contains(err.Error(), violation) {
		t.Errorf("got %v", err)
	}
	if got := w.takeCalls(); slices.Contains(got, "unprepare") || slices.Contains(got, "generate terminal=true") {
		t.Errorf("later steps are executed: %q", got)
	}
}

// falseKiller returns success from KillPod without an effect.
type falseKiller struct{ runtimeOf }

func (falseKiller) KillPod(context.Context, *v1.Pod, kubecontainer.Pod, *int64) error { return nil }

// publishedStatuses records the published statuses.
type publishedStatuses struct {
	StatusManager
	published []v1.PodStatus
}

func (p *publishedStatuses) SetPodStatus(logger klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	p.published = append(p.published, s)
	return p.StatusManager.SetPodStatus(logger, pod, s)
}

func TestTerminatePublishesDisruptionAndKeepsAddresses(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning))
	given := *w.inRuntime
	given.IPs = []string{"10.0.0.7"}
	grace := int64(5)
	statuses := &publishedStatuses{StatusManager: w}
	c := w.config()
	c.Statuses = statuses
	err := New(c).Terminate(context.Background(), TerminateRequest{
		Pod: testPod(), Status: &given, GracePeriod: &grace, Disruption: &podkill.Disruption{Reason: "Evicted"},
	})
	if err != nil || len(statuses.published) == 0 || statuses.published[0].Reason != "Evicted" {
		t.Fatalf("got %v, %+v", err, statuses.published)
	}
	if got := w.takeCalls(); !slices.Contains(got, "kill [a] grace=5") {
		t.Errorf("got %q", got)
	}
	last := w.generated[len(w.generated)-1]
	if !slices.Equal(last.IPs, []string{"10.0.0.7"}) || last.ContainerStatuses[0].State != stateExited {
		t.Errorf("the final status is generated from %+v", last)
	}
}

func TestTerminateWithoutDynamicResources(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.Features.DynamicResourceAllocation = false
	if err := New(c).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime}); err != nil {
		t.Fatal(err)
	}
	if got := w.takeCalls(); slices.Contains(got, "unprepare") {
		t.Errorf("got %q", got)
	}
}

func TestCancelledTerminationSendsNoEvent(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning))
	w.script["kill [a] grace=own"] = []error{context.Canceled}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := New(w.config()).Terminate(ctx, TerminateRequest{Pod: testPod(), Status: w.inRuntime})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	expectEvents(t, w)
}

func TestTerminateRuntimePod(t *testing.T) {
	w := newWorld()
	pod := &kubecontainer.Pod{ID: "uid", Name: "pod", Namespace: "ns", Containers: []*kubecontainer.Container{{Name: "a"}}}
	s := New(w.config())
	if err := s.TerminateRuntimePod(context.Background(), pod); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, "kill [a] grace=1", "qos")
	w.script["kill [a] grace=1"] = []error{errTest}
	if err := s.TerminateRuntimePod(context.Background(), pod); !errors.Is(err, errTest) {
		t.Errorf("got %v", err)
	}
	expectEvents(t, w, "Warning FailedKillPod error killing pod: oops")
}

func TestHasten(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	pod := testPod()
	pod.Spec.InitContainers = []v1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}
	status := runtimeStatus(container("a", stateRunning), container("b", stateExited), container("side", stateRunning),
		container("init", stateExited))
	grace := int64(3)
	req := TerminateRequest{Pod: pod, Status: status, GracePeriod: &grace}

	w := newWorld()
	w.inRuntime = status
	if err := New(w.config()).Hasten(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, "get pod", "get status", "stop id-a 3", "stop id-side 3")

	w.script["stop id-a 3"] = []error{errTest}
	if err := New(w.config()).Hasten(context.Background(), req); !errors.Is(err, errTest) {
		t.Errorf("got %v", err)
	}
	expectCalls(t, w, "get pod", "get status", "stop id-a 3")
}

func TestHastenGivesSidecarsTheRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := v1.ContainerRestartPolicyAlways
		pod := testPod()
		pod.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}}
		w := newWorld()
		w.inRuntime = runtimeStatus(container("a", stateRunning), container("b", stateRunning),
			container("side", stateRunning))
		c := w.config()
		c.Stopper = slowStopper{w}
		grace := int64(10)
		if err := New(c).Hasten(context.Background(), TerminateRequest{Pod: pod, GracePeriod: &grace}); err != nil {
			t.Fatal(err)
		}
		got := w.takeCalls()[2:]
		slices.Sort(got[:2])
		if want := []string{"stop id-a 10", "stop id-b 10", "stop id-side 3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// slowStopper takes seven seconds per container.
type slowStopper struct{ *world }

func (s slowStopper) StopContainer(ctx context.Context, id string, timeout int64) error {
	err := s.world.StopContainer(ctx, id, timeout)
	<-time.After(7 * time.Second)
	return err
}

var allCleanUpCalls = []string{
	"generate terminal=true", "publish", "unmount", "volumes left=0", "unregister secrets", "unregister config maps",
	"destroy cgroup kubepods/poduid", "release userns", "final",
}

func TestCleanUpDoesEverythingInOrder(t *testing.T) {
	w := newWorld()
	if err := New(w.config()).CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, allCleanUpCalls...)
}

func TestCleanUpFailures(t *testing.T) {
	for _, call := range []string{"unmount", "destroy cgroup kubepods/poduid"} {
		w := newWorld()
		w.script[call] = []error{errTest}
		s := New(w.config())
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); !errors.Is(err, errTest) {
			t.Errorf("%s: %v", call, err)
		}
		expectCalls(t, w, allCleanUpCalls[:slices.Index(allCleanUpCalls, call)+1]...)
		w.volumesLeft = 0
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
			t.Errorf("%s, second time: %v", call, err)
		}
		expectCalls(t, w, allCleanUpCalls...)
	}
}

func TestCleanUpWaitsForVolumePaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.volumesLeft = 3
		begin := time.Now()
		if err := New(w.config()).CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 3*volumePathsPeriod {
			t.Errorf("took %v", took)
		}
	})
}

func TestCleanUpStopsWaitingWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.volumesLeft = 1 << 30
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := New(w.config()).CleanUp(ctx, testPod(), w.inRuntime); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if got := w.takeCalls(); slices.Contains(got, "final") || slices.Contains(got, "destroy cgroup kubepods/poduid") {
			t.Error("later steps are executed although volumes are mounted")
		}
	})
}

// Before all sources have reported no volume is unmounted. Only a static pod does not wait for that: its next instance,
// or another static pod with the same name, may be the API server, which is the missing source.
func TestStaticPodDoesNotWaitForUnmountBeforeAllSourcesReported(t *testing.T) {
	for name, tc := range map[string]struct {
		pod        *v1.Pod
		unmounting bool
		waits      bool
	}{
		"static, not all sources have reported":   {staticPod(), false, false},
		"static, all sources have reported":       {staticPod(), true, true},
		"ordinary, not all sources have reported": {testPod(), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			c := w.config()
			c.UnmountsVolumes = func() bool { return tc.unmounting }
			if err := New(c).CleanUp(t.Context(), tc.pod, w.inRuntime); err != nil {
				t.Fatal(err)
			}
			want := allCleanUpCalls
			if !tc.waits {
				want = slices.Delete(slices.Clone(allCleanUpCalls), 2, 4)
			}
			expectCalls(t, w, want...)
		})
	}
}

func TestCleanUpWithoutPodCgroups(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.CgroupsPerQOS = false
	if err := New(c).CleanUp(context.Background(), testPod(), nil); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, slices.Delete(slices.Clone(allCleanUpCalls), 6, 7)...)
}

// lockedRuntime is a runtime manager that waits for a lock before it returns the status of a pod, as stock's does while
// the resources of another pod are written to disk.
type lockedRuntime struct {
	stuckRuntime
	unlocked chan struct{}
}

func (r lockedRuntime) GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	<-r.unlocked
	return r.stuckRuntime.GetPodStatus(ctx, pod)
}

// hangingDisk returns a world in which the runtime manager waits for a disk, and a function that ends the wait.
func hangingDisk() (h *stuckWorld, s *Syncer, goOn func()) {
	h = newStuckWorld()
	r := lockedRuntime{stuckRuntime{runtimeOf{h.world}, h}, make(chan struct{})}
	c := h.config()
	c.Runtime, c.Stopper, c.Processes = r, r, stuckProcesses{h}
	return h, New(c), func() { close(r.unlocked) }
}

func TestKillDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, goOn := hangingDisk()
		time.AfterFunc(12*time.Second, func() {
			h.setProcesses()
			h.exitContainers()
			goOn()
		})
		if err := s.Terminate(t.Context(), terminateRequest(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s kill pod")
	})
}

// While the disk hangs, Hasten uses the given status.
func TestHastenDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, goOn := hangingDisk()
		defer goOn()
		h.onStop = h.exitContainers
		request := terminateRequest(h)
		request.GracePeriod = new(int64(1))
		if err := s.Hasten(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s stop id-a 1")
	})
}

// slowGenerator blocks until ready is closed, like stock's managers of devices while they wait for a disk.
type slowGenerator struct {
	*world
	ready chan struct{}
}

func (g slowGenerator) Generate(
	ctx context.Context, pod *v1.Pod, s *kubecontainer.PodStatus, terminal bool,
) v1.PodStatus {
	<-g.ready
	return g.world.Generate(ctx, pod, s, terminal)
}

// A pod whose status cannot be computed is stopped nevertheless, and the disruption is published with its last status.
func TestKillDoesNotWaitForTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStuckWorld()
		h.published["uid"] = v1.PodStatus{PodIP: "10.0.0.1"}
		generator := slowGenerator{h.world, make(chan struct{})}
		c := h.config()
		r := stuckRuntime{runtimeOf{h.world}, h}
		c.Runtime, c.Stopper, c.Processes, c.Generator = r, r, stuckProcesses{h}, generator
		statuses := &publishedStatuses{StatusManager: c.Statuses}
		c.Statuses = statuses
		time.AfterFunc(12*time.Second, func() {
			h.setProcesses()
			h.exitContainers()
			close(generator.ready)
		})
		request := terminateRequest(h)
		request.Disruption = &podkill.Disruption{Reason: "Evicted"}
		if err := New(c).Terminate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s kill pod")
		// The last status is that of the end.
		if got := statuses.published; len(got) != 2 || got[0].Reason != "Evicted" || got[0].PodIP != "10.0.0.1" {
			t.Errorf("published before the kill: %+v", got)
		}
		synctest.Wait()
	})
}
