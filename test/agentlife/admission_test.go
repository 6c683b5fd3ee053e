package agentlife

import (
	"context"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
)

// admit creates the gate of admission. No pod waits.
func (a *agent) admit(view *podview.View) *admission.WaitingPods {
	a.readmission = admission.NewReadmission(noAllocations{}, a.store)
	waiting := admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: noPressure{}, Victims: noPressure{}, Status: a.statuses, Recorder: &record.FakeRecorder{},
		Clock:  clock.RealClock{},
		Active: view.Active, ShuttingDown: func() bool { return a.shutdown.ShutdownStatus() != nil },
		MaxWait: func() time.Duration { return 0 },
	})
	a.gate = admission.NewGate(a, a.readmission, waiting, admission.NewRejector(&record.FakeRecorder{}, a.statuses))
	return waiting
}

// AddPod is the chain of admit handlers: pressure and node shutdown.
func (a *agent) AddPod(_ []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	a.w.mu.Lock()
	_, runs := a.w.running[pod.UID]
	pressure := a.w.pressure
	a.w.mu.Unlock()
	readmitted := a.readmission.Readmitted(pod)
	// A static pod that was dropped and is added again while the runtime does not respond may be admitted as a new one:
	// its worker was removed, and the pods of the runtime have not been listed since.
	if runs && !readmitted && !kubetypes.IsStaticPod(pod) {
		a.w.change(func() { a.w.fault("%s runs and is admitted as a new pod", pod.UID) })
	}
	if pressure && !readmitted && !kubetypes.IsStaticPod(pod) {
		return false, policy.ReasonEvicted, "The node had condition: [MemoryPressure]. "
	}
	result := a.shutdown.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	return result.Admit, result.Reason, result.Message
}

// shutdownManager returns the real shutdown manager. The agent itself is its login manager.
func (a *agent) shutdownManager(view *podview.View) *nodeshutdown.Manager {
	return nodeshutdown.New(nodeshutdown.Config{
		Periods: plan.Legacy(30*time.Second, 10*time.Second),
		Connect: func(context.Context) (nodeshutdown.Logind, error) { return a, nil },
		Pods: nodeshutdown.Pods{
			Active: view.Active, SourcesReady: a.ready.AllReady, Terminating: a.store.IsPodTerminationRequested,
			Readmitted: func(pod *v1.Pod) bool { return a.readmission.Readmitted(pod) }, Kill: a.workers.KillPod,
			WaitForUnmount: func(context.Context, []*v1.Pod) error { return nil },
			Restart:        func(ctx context.Context, stopped []*v1.Pod) { a.handlers.Restart(ctx, stopped) },
		},
		SyncNode: func(context.Context) {}, Recorder: &record.FakeRecorder{}, NodeRef: &v1.ObjectReference{},
		Clock: clock.RealClock{},
	})
}

// EnsureInhibitDelay, Inhibit, Watch and ShuttingDown implement nodeshutdown.Logind.
func (a *agent) EnsureInhibitDelay(_ context.Context, minimum time.Duration) (time.Duration, error) {
	return minimum, nil
}

func (a *agent) Inhibit(context.Context) (io.Closer, error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.w.goingDown {
		return nil, nodeshutdown.ErrShutdownInProgress
	}
	return noLock{}, nil
}

func (a *agent) Watch(context.Context) (<-chan nodeshutdown.Announcement, error) {
	return a.shutdownEvents, nil
}

func (a *agent) ShuttingDown(context.Context) (bool, error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return a.w.goingDown, nil
}

// announce announces the shutdown of the machine, or its cancellation.
func (a *agent) announce(goingDown bool) {
	a.w.change(func() { a.w.goingDown = goingDown })
	a.shutdownEvents <- nodeshutdown.Announcement{ShuttingDown: goingDown, ByLogind: true}
}

type noLock struct{}

func (noLock) Close() error { return nil }
