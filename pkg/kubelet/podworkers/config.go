package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// Syncer implements the operations of each phase. Calls for one pod do not overlap; calls for different pods are
// concurrent. A method that returns an error is called again after the back-off; one that returns context.Canceled is
// called again as soon as an update is pending.
type Syncer interface {
	// Sync sets the pod up. All calls for a pod have the same context, so that what Sync starts may run on after it
	// returns. The context ends when the pod's termination is requested; Sync should return then.
	Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error)
	// Terminate stops all containers of the pod. When it returns nil, no container runs. Its context ends when the call
	// has to be repeated with a shorter grace period, or when the agent stops.
	Terminate(ctx context.Context, request podsync.TerminateRequest) error
	// CleanUp releases the resources of the stopped pod. It is called until it returns nil.
	CleanUp(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error
}

// RuntimePodTerminator stops runtime pods: those that only the runtime has, without a specification.
type RuntimePodTerminator interface {
	TerminateRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error
}

// Hastener shortens the grace period of a termination in progress, without running preStop hooks again. Hasten is
// called while Terminate runs, possibly more than once, each time with a shorter grace period; its context ends when
// Terminate returns. If it returns an error, Terminate is cancelled and called again with the shorter grace period.
type Hastener interface {
	Hasten(ctx context.Context, request podsync.TerminateRequest) error
}

// StatusCache has the last known status of each pod in the runtime, which the PLEG updates. GetNewerThan blocks until
// there is a status newer than minTime.
type StatusCache interface {
	Get(uid types.UID) (*kubecontainer.PodStatus, error)
	GetNewerThan(uid types.UID, minTime time.Time) (*kubecontainer.PodStatus, error)
}

// WorkQueue has the pods that are due after a delay: the sync loop sends them again then, or calls Retry if no source
// has them. A later call for a pod replaces an earlier one.
type WorkQueue interface {
	Enqueue(uid types.UID, delay time.Duration)
}

// EventRecorder writes events about pods.
type EventRecorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFormat string, args ...any)
}

// Allocation returns pods with the resources that are allocated to them. UpdatePodFromAllocation is called with
// Workers.mu held, so it must not block on an admission or on disk I/O.
type Allocation interface {
	UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool)
}

// Config are the dependencies and settings of the workers. All fields are required unless marked optional.
type Config struct {
	Store        *podlifecycle.Store
	Syncer       Syncer
	Runtime      RuntimePodTerminator
	Hastener     Hastener
	PodCache     StatusCache
	Queue        WorkQueue
	Recorder     EventRecorder
	Allocation   Allocation
	Terminations Terminations
	// Overdue returns the pods that the runtime has not stopped in time, and the escalation of each. It must not block.
	Overdue           func() map[types.UID]escalation.Overdue
	EarlierStaticPods EarlierStaticPods
	// ResyncInterval is the time between two syncs of a healthy pod.
	ResyncInterval time.Duration
	// BackoffPeriod is the time before a failed operation is repeated.
	BackoffPeriod time.Duration
	// StatusWait limits how long a termination waits for a status newer than the last sync, which may just have started
	// containers. After that it uses the newest status there is, so that a kill does not depend on a working PLEG.
	// Optional: 2 s by default, twice the PLEG's period.
	StatusWait time.Duration
	// Clock is optional, the real one by default.
	Clock clock.Clock
}

const (
	jitterFactor       = 0.5
	networkRetryPeriod = time.Second
	defaultStatusWait  = 2 * time.Second
	minimumKillTimeout = 10 * time.Second
)

func (c Config) withDefaults() Config {
	if c.StatusWait == 0 {
		c.StatusWait = defaultStatusWait
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}
