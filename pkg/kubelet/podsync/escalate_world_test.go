package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// hardWorld is a world in which pods are hard to stop, and which notes when what was done about it. It belongs into a bubble of synctest.
type hardWorld struct {
	*world
	begin time.Time

	hard      sync.Mutex
	timeline  []string
	processes []escalation.Process
	// silent is what the runtime answers to questions.
	silent error
	// refuses is what KillPod returns at once; without it KillPod hangs until stopped is closed or the request times out.
	refuses error
	stopped chan struct{}
	// onStop is called by StopContainer, onCgroupKill by the kill of the cgroup.
	onStop, onCgroupKill func()
}

func newHardWorld() *hardWorld {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", up))
	w.inRuntime.SandboxStatuses = []*runtimeapi.PodSandboxStatus{{Id: "sandbox"}}
	return &hardWorld{
		world: w, begin: time.Now(), stopped: make(chan struct{}), onStop: func() {}, onCgroupKill: func() {},
		processes: []escalation.Process{{PID: 10, Name: "pause", State: 'S', Cgroup: "sandbox"}, {PID: 11, Name: "main", State: 'S', Cgroup: "id-a"}},
	}
}

func (h *hardWorld) syncer() *Syncer {
	c := h.config()
	c.Runtime, c.Stopper, c.Processes = hardRuntime{runtimeOf{h.world}, h}, hardRuntime{runtimeOf{h.world}, h}, hardProcesses{h}
	return New(c)
}

// note writes down what is done, with the seconds since the beginning.
func (h *hardWorld) note(format string, args ...any) {
	h.hard.Lock()
	defer h.hard.Unlock()
	h.timeline = append(h.timeline, fmt.Sprintf("%v ", time.Since(h.begin).Round(time.Second))+fmt.Sprintf(format, args...))
}

func (h *hardWorld) noted() []string {
	h.hard.Lock()
	defer h.hard.Unlock()
	return h.timeline
}

// ends has the containers end, as the runtime sees it.
func (h *hardWorld) ends() {
	h.hard.Lock()
	defer h.hard.Unlock()
	h.inRuntime = runtimeStatus(container("a", down))
	close(h.stopped)
}

// answers sets what the runtime says to questions and to requests; nil is no error.
func (h *hardWorld) answers(silent, refuses error) {
	h.hard.Lock()
	defer h.hard.Unlock()
	h.silent, h.refuses = silent, refuses
}

func (h *hardWorld) answer() (silent, refuses error) {
	h.hard.Lock()
	defer h.hard.Unlock()
	return h.silent, h.refuses
}

func (h *hardWorld) leave(processes ...escalation.Process) {
	h.hard.Lock()
	defer h.hard.Unlock()
	h.processes = processes
}

// hardRuntime does not stop containers when it is told to.
type hardRuntime struct {
	runtimeOf
	h *hardWorld
}

// requestTimeout is that of requests to the runtime.
const requestTimeout = 2 * time.Minute

func (r hardRuntime) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	silent, _ := r.h.answer()
	return &kubecontainer.Pod{ID: "uid"}, silent
}

func (r hardRuntime) GetPodStatus(context.Context, *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r.h.hard.Lock()
	defer r.h.hard.Unlock()
	out := *r.h.inRuntime
	return &out, r.h.silent
}

func (r hardRuntime) KillPod(ctx context.Context, pod *v1.Pod, _ kubecontainer.Pod, grace *int64) error {
	r.h.note("kill pod")
	if _, refuses := r.h.answer(); refuses != nil {
		return refuses
	}
	return r.await(ctx, graceOf(pod, grace)+requestTimeout)
}

func (r hardRuntime) await(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-r.h.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r hardRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.h.note("stop %s %d", id, timeout)
	r.h.onStop()
	if _, refuses := r.h.answer(); refuses != nil {
		return refuses
	}
	return r.await(ctx, time.Duration(timeout)*time.Second+requestTimeout)
}

func (r hardRuntime) StopPodSandbox(ctx context.Context, id string) error {
	r.h.note("stop sandbox %s", id)
	if _, refuses := r.h.answer(); refuses != nil {
		return refuses
	}
	return r.await(ctx, requestTimeout)
}

// hardProcesses are in a cgroup that may not be killed.
type hardProcesses struct{ h *hardWorld }

func (p hardProcesses) Processes(cgroup string) ([]escalation.Process, error) {
	p.h.hard.Lock()
	defer p.h.hard.Unlock()
	if cgroup != "/kubepods/poduid" {
		return nil, fmt.Errorf("cgroup %q", cgroup)
	}
	return append([]escalation.Process(nil), p.h.processes...), nil
}

func (p hardProcesses) Kill(ctx context.Context, cgroup string) error {
	p.h.note("kill cgroup %s", cgroup)
	p.h.onCgroupKill()
	if left, _ := p.Processes(cgroup); len(left) > 0 {
		<-ctx.Done()
		return errors.New("processes are left")
	}
	return nil
}

// podWithGrace is a pod that is deleted with that grace period.
func podWithGrace(seconds int64) *v1.Pod {
	pod := testPod()
	pod.DeletionGracePeriodSeconds = &seconds
	return pod
}

func expectTimeline(t *testing.T, h *hardWorld, want ...string) {
	t.Helper()
	if got := fmt.Sprintf("%q", h.noted()); got != fmt.Sprintf("%q", want) {
		t.Errorf("timeline\n got %s\nwant %q", got, want)
	}
}
