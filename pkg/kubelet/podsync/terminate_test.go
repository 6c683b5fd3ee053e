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
	up   = kubecontainer.ContainerStateRunning
	down = kubecontainer.ContainerStateExited
)

var wholeTermination = []string{
	"generate terminal=false", "publish", "stop liveness", "get pod", "get status", "kill [a] grace=own", "qos",
	"remove probes", "get pod", "get status", "unprepare", "generate terminal=true", "publish",
}

func terminateOf(w *world) error {
	return New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime})
}

func TestTerminateDoesEverythingInOrder(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up), container("b", down))
	if err := terminateOf(w); err != nil {
		t.Fatal(err)
	}
	expect(t, w, wholeTermination...)
}

func TestTerminateFailures(t *testing.T) {
	for _, tc := range []struct {
		call    string
		nth     int
		after   int // how many calls follow the failed one, -1: all
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
			w.inRuntime = runtimeStatus(container("a", up))
			w.script[tc.call] = append(make([]error, tc.nth-1), errTest)
			err := terminateOf(w)
			if tc.ignored != (err == nil) {
				t.Errorf("error %v", err)
			}
			calls := w.take()
			if tc.ignored {
				if calls[len(calls)-2] != "generate terminal=true" {
					t.Errorf("stopped early: %q", calls)
				}
			} else if calls[len(calls)-1] != tc.call {
				t.Errorf("went on after the failure: %q", calls)
			}
			if tc.event == "" {
				expectEvents(t, w)
			} else {
				expectEvents(t, w, tc.event)
			}
			if err := terminateOf(w); err != nil {
				t.Errorf("second time: %v", err)
			}
		})
	}
}

// D28: a container the status does not know of is stopped all the same.
func TestTerminateKillsWhatRunsNow(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", down), container("new", up))
	old := runtimeStatus(container("a", up))
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: old}); err != nil {
		t.Fatal(err)
	}
	if got := w.take(); !slices.Contains(got, "kill [new] grace=own") {
		t.Errorf("got %q", got)
	}
}

func TestTerminateUsesTheGivenStatusWhenTheRuntimeDoesNotAnswer(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", down))
	w.script["get pod"] = []error{errTest}
	old := runtimeStatus(container("a", up))
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: old}); err != nil {
		t.Fatal(err)
	}
	if got := w.take(); !slices.Contains(got, "kill [a] grace=own") {
		t.Errorf("got %q", got)
	}
}

func TestTerminateOfPodTheRuntimeHasForgotten(t *testing.T) {
	w := newWorld()
	w.script["get pod"] = []error{kubecontainer.ErrPodNotFound, kubecontainer.ErrPodNotFound}
	if err := New(w.config()).Terminate(context.Background(), TerminateRequest{Pod: testPod()}); err != nil {
		t.Fatal(err)
	}
}

func TestTerminateWhenKillLies(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up))
	c := w.config()
	c.Runtime = liar{runtimeOf{w}}
	err := New(c).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime})
	if err == nil || !strings.Contains(err.Error(), "detected running containers after a successful KillPod, CRI violation: [fake://id-a]") {
		t.Errorf("got %v", err)
	}
	if got := w.take(); slices.Contains(got, "unprepare") || slices.Contains(got, "generate terminal=true") {
		t.Errorf("went on: %q", got)
	}
}

// liar says it has killed and has not.
type liar struct{ runtimeOf }

func (liar) KillPod(context.Context, *v1.Pod, kubecontainer.Pod, *int64) error { return nil }

// publishedStatuses notes the statuses beside the world's calls.
type publishedStatuses struct {
	StatusManager
	published []v1.PodStatus
}

func (p *publishedStatuses) SetPodStatus(logger klog.Logger, pod *v1.Pod, s v1.PodStatus) (v1.PodStatus, bool) {
	p.published = append(p.published, s)
	return p.StatusManager.SetPodStatus(logger, pod, s)
}

func TestTerminateAmendsTheFirstStatusAndKeepsAddresses(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up))
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
	if got := w.take(); !slices.Contains(got, "kill [a] grace=5") {
		t.Errorf("got %q", got)
	}
	last := w.generated[len(w.generated)-1]
	if !slices.Equal(last.IPs, []string{"10.0.0.7"}) || last.ContainerStatuses[0].State != down {
		t.Errorf("final status made from %+v", last)
	}
}

func TestTerminateWithoutDynamicResources(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.Features.DynamicResourceAllocation = false
	if err := New(c).Terminate(context.Background(), TerminateRequest{Pod: testPod(), Status: w.inRuntime}); err != nil {
		t.Fatal(err)
	}
	if got := w.take(); slices.Contains(got, "unprepare") {
		t.Errorf("got %q", got)
	}
}

func TestBrokenOffTerminationSendsNoEvent(t *testing.T) {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up))
	w.script["kill [a] grace=own"] = []error{context.Canceled}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := New(w.config()).Terminate(ctx, TerminateRequest{Pod: testPod(), Status: w.inRuntime}); !errors.Is(err, context.Canceled) {
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
	expect(t, w, "kill [a] grace=1", "qos")
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
	status := runtimeStatus(container("a", up), container("b", down), container("side", up), container("init", down))
	grace := int64(3)
	req := TerminateRequest{Pod: pod, Status: status, GracePeriod: &grace}

	w := newWorld()
	w.inRuntime = status
	if err := New(w.config()).Hasten(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	expect(t, w, "get pod", "get status", "stop id-a 3", "stop id-side 3")

	w.script["stop id-a 3"] = []error{errTest}
	if err := New(w.config()).Hasten(context.Background(), req); !errors.Is(err, errTest) {
		t.Errorf("got %v", err)
	}
	expect(t, w, "get pod", "get status", "stop id-a 3")

	c := w.config()
	c.Stopper = nil
	if err := New(c).Hasten(context.Background(), req); !errors.Is(err, errCannotHasten) {
		t.Errorf("got %v", err)
	}
}

func TestHastenGivesSidecarsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		always := v1.ContainerRestartPolicyAlways
		pod := testPod()
		pod.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}}
		w := newWorld()
		w.inRuntime = runtimeStatus(container("a", up), container("b", up), container("side", up))
		c := w.config()
		c.Stopper = slowStopper{w}
		grace := int64(10)
		if err := New(c).Hasten(context.Background(), TerminateRequest{Pod: pod, GracePeriod: &grace}); err != nil {
			t.Fatal(err)
		}
		got := w.take()[2:]
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

var wholeCleanUp = []string{
	"generate terminal=true", "publish", "unmount", "volumes left=0", "unregister secrets", "unregister config maps",
	"destroy cgroup kubepods/poduid", "release userns", "final",
}

func TestCleanUpDoesEverythingInOrder(t *testing.T) {
	w := newWorld()
	if err := New(w.config()).CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
		t.Fatal(err)
	}
	expect(t, w, wholeCleanUp...)
}

func TestCleanUpFailures(t *testing.T) {
	for _, call := range []string{"unmount", "destroy cgroup kubepods/poduid"} {
		w := newWorld()
		w.script[call] = []error{errTest}
		s := New(w.config())
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); !errors.Is(err, errTest) {
			t.Errorf("%s: %v", call, err)
		}
		expect(t, w, wholeCleanUp[:slices.Index(wholeCleanUp, call)+1]...)
		w.volumesLeft = 0
		if err := s.CleanUp(context.Background(), testPod(), w.inRuntime); err != nil {
			t.Errorf("%s, second time: %v", call, err)
		}
		expect(t, w, wholeCleanUp...)
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
		if got := w.take(); slices.Contains(got, "final") || slices.Contains(got, "destroy cgroup kubepods/poduid") {
			t.Error("went on although volumes are left")
		}
	})
}

// Before all sources have reported nothing is unmounted. Only a static pod does not wait for that: the source that has not reported may be its
// own next life, or its successor.
func TestStaticPodDoesNotWaitForVolumesThatAreNotUnmounted(t *testing.T) {
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
			c.Unmounting = func() bool { return tc.unmounting }
			if err := New(c).CleanUp(t.Context(), tc.pod, w.inRuntime); err != nil {
				t.Fatal(err)
			}
			want := wholeCleanUp
			if !tc.waits {
				want = slices.Delete(slices.Clone(wholeCleanUp), 2, 4)
			}
			expect(t, w, want...)
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
	expect(t, w, slices.Delete(slices.Clone(wholeCleanUp), 6, 7)...)
}

// lockedRuntime is a runtime manager that waits, in whatever context, for a lock before it says how a pod is: stock's does
// while another pod's resources are written to disk.
type lockedRuntime struct {
	hardRuntime
	unlocked chan struct{}
}

func (r lockedRuntime) GetPodStatus(ctx context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	<-r.unlocked
	return r.hardRuntime.GetPodStatus(ctx, pod)
}

// hangingDisk returns a world in which the runtime manager waits for a disk, and what lets it go on.
func hangingDisk() (h *hardWorld, s *Syncer, goOn func()) {
	h = newHardWorld()
	r := lockedRuntime{hardRuntime{runtimeOf{h.world}, h}, make(chan struct{})}
	c := h.config()
	c.Runtime, c.Stopper, c.Processes = r, r, hardProcesses{h}
	return h, New(c), func() { close(r.unlocked) }
}

func TestAKillDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, goOn := hangingDisk()
		time.AfterFunc(12*time.Second, func() {
			h.leave()
			h.ends()
			goOn()
		})
		if err := s.Terminate(t.Context(), requestOf(h)); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s kill pod")
	})
}

// A termination that is hastened while the disk hangs is hastened by the status given.
func TestHasteningDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, goOn := hangingDisk()
		defer goOn()
		h.onStop = h.ends
		request := requestOf(h)
		request.GracePeriod = new(int64(1))
		if err := s.Hasten(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s stop id-a 1")
	})
}

// slowGenerator cannot say how a pod is before ready is closed: stock's managers of devices wait for a disk.
type slowGenerator struct {
	*world
	ready chan struct{}
}

func (g slowGenerator) Generate(ctx context.Context, pod *v1.Pod, s *kubecontainer.PodStatus, terminal bool) v1.PodStatus {
	<-g.ready
	return g.world.Generate(ctx, pod, s, terminal)
}

// A pod whose status cannot be computed is stopped all the same, and the reason of its termination is published with the
// status that it had.
func TestAKillDoesNotWaitForTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHardWorld()
		h.published["uid"] = v1.PodStatus{PodIP: "10.0.0.1"}
		generator := slowGenerator{h.world, make(chan struct{})}
		c := h.config()
		r := hardRuntime{runtimeOf{h.world}, h}
		c.Runtime, c.Stopper, c.Processes, c.Generator = r, r, hardProcesses{h}, generator
		statuses := &publishedStatuses{StatusManager: c.Statuses}
		c.Statuses = statuses
		time.AfterFunc(12*time.Second, func() {
			h.leave()
			h.ends()
			close(generator.ready)
		})
		request := requestOf(h)
		request.Disruption = &podkill.Disruption{Reason: "Evicted"}
		if err := New(c).Terminate(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		expectTimeline(t, h, "5s kill pod")
		// The last one is that of the end.
		if got := statuses.published; len(got) != 2 || got[0].Reason != "Evicted" || got[0].PodIP != "10.0.0.1" {
			t.Errorf("published before the kill: %+v", got)
		}
		synctest.Wait()
	})
}
