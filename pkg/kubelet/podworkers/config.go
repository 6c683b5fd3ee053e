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

// Syncer does the work of each phase. For one pod its methods are called one after the other, for different pods side
// by side. A method that returns an error is called again later; one that returns context.Canceled is called again as
// soon as there is work.
type Syncer interface {
	// Sync sets the pod up. Its context lives as long as the pod is in this phase, over all calls, so that what Sync
	// starts may go on after it returns; the context ends when the pod's termination is requested, and Sync should return
	// then.
	Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error)
	// Terminate stops all containers of the pod; without an error none of them runs. Its context ends when the call has to
	// be repeated with a shorter grace period, or when the agent stops.
	Terminate(ctx context.Context, request podsync.TerminateRequest) error
	// CleanUp releases what the stopped pod held. It is called until it returns no error.
	CleanUp(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error
}

// RuntimePodTerminator stops pods of which nothing but their running containers is known.
type RuntimePodTerminator interface {
	TerminateRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error
}

// Hastener gives a termination that is in flight a shorter grace period, without running hooks a second time. It is
// called beside Terminate, possibly more than once, each time with a shorter grace period; its context ends when
// Terminate returns.
type Hastener interface {
	Hasten(ctx context.Context, request podsync.TerminateRequest) error
}

// StatusCache is what the runtime was last seen to do. GetNewerThan blocks until there is a status that is newer.
type StatusCache interface {
	Get(uid types.UID) (*kubecontainer.PodStatus, error)
	GetNewerThan(uid types.UID, minTime time.Time) (*kubecontainer.PodStatus, error)
}

// WorkQueue remembers pods that the sync loop has to send again after a delay, or to pass to Retry if no source names
// them then. A later call for a pod replaces an earlier one.
type WorkQueue interface {
	Enqueue(uid types.UID, delay time.Duration)
}

// EventRecorder writes events about pods.
type EventRecorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFormat string, args ...any)
}

// Allocation knows which resources a pod was given. UpdatePodFromAllocation must not wait, neither for an admission nor
// for a disk: it is called under a lock.
type Allocation interface {
	UpdatePodFromAllocation(pod *v1.Pod) (*v1.Pod, bool)
}

// Config is what the workers need. Everything is required unless said otherwise.
type Config struct {
	Store   *podlifecycle.Store
	Syncer  Syncer
	Runtime RuntimePodTerminator
	// Hastener is optional. Without it a running Terminate is cancelled and called again with the shorter grace period.
	Hastener Hastener
	PodCache StatusCache
	Queue    WorkQueue
	Recorder EventRecorder
	// Allocation is nil when pods are not resized in place.
	Allocation Allocation
	// Terminations is optional. Without it a termination that the agent has begun does not survive a restart.
	Terminations Terminations
	// Overdue is optional: the pods that the runtime has not stopped in time, and what was done about each. For those who
	// look (Views).
	Overdue func() map[types.UID]escalation.Overdue
	// EarlierStaticPods is optional. Without it a static pod may start while the one that it replaced is still running
	// from an earlier run of the agent.
	EarlierStaticPods EarlierStaticPods
	// ResyncInterval is the time between two syncs of a pod that is well.
	ResyncInterval time.Duration
	// BackoffPeriod is the time before a failed operation is repeated.
	BackoffPeriod time.Duration
	// StatusWait limits how long a termination waits for a status newer than the last sync, which may just have started
	// containers. Then the newest known status must do: a kill does not depend on a working PLEG. Default 2 s, twice the
	// PLEG's period.
	StatusWait time.Duration
	// Clock is optional.
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
