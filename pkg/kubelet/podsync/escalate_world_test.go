package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// stuckWorld is a world whose containers do not stop, with a timeline of the calls. It is for bubbles of synctest.
type stuckWorld struct {
	*world
	begin time.Time

	lock      sync.Mutex
	timeline  []string
	processes []escalation.Process
	// queryError is the error of queries to the runtime.
	queryError error
	// stopError is the error of KillPod; if nil, KillPod blocks until stopped is closed or the request times out.
	stopError error
	stopped   chan struct{}
	// onStop is called by StopContainer, onCgroupKill by the kill of the cgroup.
	onStop, onCgroupKill func()
}

func newStuckWorld() *stuckWorld {
	w := newWorld()
	w.inRuntime = runtimeStatus(container("a", stateRunning))
	w.inRuntime.SandboxStatuses = []*runtimeapi.PodSandboxStatus{{Id: "sandbox"}}
	return &stuckWorld{
		world: w, begin: time.Now(), stopped: make(chan struct{}), onStop: func() {}, onCgroupKill: func() {},
		processes: []escalation.Process{
			{PID: 10, Name: "pause", State: 'S', Cgroup: "sandbox"}, {PID: 11, Name: "main", State: 'S', Cgroup: "id-a"},
		},
	}
}

func (h *stuckWorld) syncer() *Syncer {
	c := h.config()
	r := stuckRuntime{runtimeOf{h.world}, h}
	c.Runtime, c.Stopper, c.Processes = r, r, stuckProcesses{h}
	return New(c)
}

// record adds a call to the timeline, with the time since the beginning.
func (h *stuckWorld) record(format string, args ...any) {
	h.lock.Lock()
	defer h.lock.Unlock()
	elapsed := time.Since(h.begin).Round(time.Second)
	h.timeline = append(h.timeline, fmt.Sprintf("%v ", elapsed)+fmt.Sprintf(format, args...))
}

func (h *stuckWorld) recorded() []string {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.timeline
}

// exitContainers lets the containers exit: the runtime reports it.
func (h *stuckWorld) exitContainers() {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.inRuntime = runtimeStatus(container("a", stateExited))
	close(h.stopped)
}

// setErrors sets the errors of queries and of requests to stop; nil is none.
func (h *stuckWorld) setErrors(silent, refuses error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.queryError, h.stopError = silent, refuses
}

func (h *stuckWorld) errors() (silent, refuses error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.queryError, h.stopError
}

func (h *stuckWorld) setProcesses(processes ...escalation.Process) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.processes = processes
}

// stuckRuntime does not stop containers on request.
type stuckRuntime struct {
	runtimeOf
	h *stuckWorld
}

// requestTimeout is the time-out of requests to the runtime.
const requestTimeout = 2 * time.Minute

func (r stuckRuntime) GetPod(context.Context, types.UID) (*kubecontainer.Pod, error) {
	silent, _ := r.h.errors()
	return &kubecontainer.Pod{ID: "uid"}, silent
}

func (r stuckRuntime) GetPodStatus(context.Context, *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r.h.lock.Lock()
	defer r.h.lock.Unlock()
	out := *r.h.inRuntime
	return &out, r.h.queryError
}

func (r stuckRuntime) KillPod(ctx context.Context, pod *v1.Pod, _ kubecontainer.Pod, grace *int64) error {
	r.h.record("kill pod")
	if _, refuses := r.h.errors(); refuses != nil {
		return refuses
	}
	return r.await(ctx, graceOf(pod, grace)+requestTimeout)
}

func (r stuckRuntime) await(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-r.h.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r stuckRuntime) StopContainer(ctx context.Context, id string, timeout int64) error {
	r.h.record("stop %s %d", id, timeout)
	r.h.onStop()
	if _, refuses := r.h.errors(); refuses != nil {
		return refuses
	}
	return r.await(ctx, time.Duration(timeout)*time.Second+requestTimeout)
}

func (r stuckRuntime) StopPodSandbox(ctx context.Context, id string) error {
	r.h.record("stop sandbox %s", id)
	if _, refuses := r.h.errors(); refuses != nil {
		return refuses
	}
	return r.await(ctx, requestTimeout)
}

// stuckProcesses are processes that may survive the kill of their cgroup.
type stuckProcesses struct{ h *stuckWorld }

func (p stuckProcesses) Processes(cgroup string) ([]escalation.Process, error) {
	p.h.lock.Lock()
	defer p.h.lock.Unlock()
	if cgroup != "/kubepods/poduid" {
		return nil, fmt.Errorf("cgroup %q", cgroup)
	}
	return slices.Clone(p.h.processes), nil
}

func (p stuckProcesses) Kill(ctx context.Context, cgroup string) error {
	p.h.record("kill cgroup %s", cgroup)
	p.h.onCgroupKill()
	if left, _ := p.Processes(cgroup); len(left) > 0 {
		<-ctx.Done()
		return errors.New("processes remain")
	}
	return nil
}

// podWithGrace returns a pod that was deleted with that grace period.
func podWithGrace(seconds int64) *v1.Pod {
	pod := testPod()
	pod.DeletionGracePeriodSeconds = &seconds
	return pod
}

func expectTimeline(t *testing.T, h *stuckWorld, want ...string) {
	t.Helper()
	fixture.ExpectEqual(t, "timeline", h.recorded(), want)
}
