package nodeshutdown

import (
	"context"
	"errors"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// ErrShutdownInProgress is the error of Logind.Inhibit if the shutdown of the machine has already begun.
var ErrShutdownInProgress = errors.New("the shutdown of the machine is already in progress")

// ErrDelayUnknown is the error of Logind.EnsureInhibitDelay if logind does not say for how long it waits.
var ErrDelayUnknown = errors.New("how long logind delays a shutdown is not known")

// Logind is a connection to logind, the login manager of systemd. It is used by one goroutine. Each method returns soon
// after its context has ended, and with an error if logind does not answer for some time.
type Logind interface {
	// EnsureInhibitDelay makes logind wait for delay locks for at least the given time. It returns how long logind waits,
	// also with an error, which is the reason why that is less, except with ErrDelayUnknown.
	EnsureInhibitDelay(ctx context.Context, minimum time.Duration) (time.Duration, error)
	// Inhibit takes a lock that delays the shutdown of the machine until the lock is closed. The error is
	// ErrShutdownInProgress if it is too late for that.
	Inhibit(ctx context.Context) (io.Closer, error)
	// Watch subscribes to the signal PrepareForShutdown until ctx ends. The channel is closed when the connection is lost.
	Watch(ctx context.Context) (<-chan Announcement, error)
	// ShuttingDown returns whether logind has announced a shutdown that is neither over nor cancelled.
	ShuttingDown(ctx context.Context) (bool, error)
}

// Announcement is a signal PrepareForShutdown.
type Announcement struct {
	// ShuttingDown is true for the announcement of a shutdown, false for its cancellation.
	ShuttingDown bool
	// ByLogind is true if logind has sent it. As for stock, everybody may: upstream's tests of the node do.
	ByLogind bool
}

// Pods are functions that return the pods of the node and act on them.
type Pods struct {
	// Active returns the pods that may have running containers, without those that wait for admission.
	Active func() []*v1.Pod
	// SourcesReady returns true when all sources have reported their pods.
	SourcesReady func() bool
	// Terminating returns true once the termination of the pod was requested.
	Terminating func(types.UID) bool
	// Readmitted returns true during the admission of a pod that ran here before the agent was started.
	Readmitted func(*v1.Pod) bool
	// Kill requests from the pod workers that they stop a pod.
	Kill podkill.Func
	// WaitForUnmount returns when no volume of the pods is mounted any more, or with an error when ctx ends.
	WaitForUnmount func(ctx context.Context, pods []*v1.Pod) error
	// Restart starts pods that were stopped for a cancelled shutdown. They may still be terminating.
	Restart func(ctx context.Context, pods []*v1.Pod)
}

// Config is the configuration of a Manager. All fields are required unless their comment says otherwise.
type Config struct {
	// Periods may be in any order. Without periods the manager does nothing and admits all pods.
	Periods []plan.Period
	// Connect connects to logind until ctx ends.
	Connect func(ctx context.Context) (Logind, error)
	Pods    Pods
	// SyncNode updates the status of the Node. It may block.
	SyncNode func(context.Context)
	Recorder record.EventRecorder
	// NodeRef is the object of events about the node.
	NodeRef *v1.ObjectReference
	// StateFile is the path of the file with the times of the last shutdown. If it is empty, the times are neither stored
	// nor published as metrics.
	StateFile string
	Clock     clock.Clock
}

// Features are the feature gates of this package.
type Features struct {
	// Graceful is the gate GracefulNodeShutdown: without it pods are not stopped before a shutdown.
	Graceful bool
	// ByPriority is the gate GracefulNodeShutdownBasedOnPodPriority: periods may be set by priority, and the times of the
	// last shutdown are stored and published.
	ByPriority bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	return Features{
		Graceful:   gates.Enabled(features.GracefulNodeShutdown),
		ByPriority: gates.Enabled(features.GracefulNodeShutdownBasedOnPodPriority),
	}
}

// Periods returns the periods in the configuration; none if pods are not to be stopped before a shutdown.
func Periods(c *kubeletconfig.KubeletConfiguration, f Features) []plan.Period {
	if !f.Graceful {
		return nil
	}
	byPriority := c.ShutdownGracePeriodByPodPriority
	if !f.ByPriority || len(byPriority) == 0 {
		return plan.Legacy(c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration)
	}
	periods := make([]plan.Period, 0, len(byPriority))
	for _, p := range byPriority {
		periods = append(periods, plan.Period{Priority: p.Priority, Seconds: p.ShutdownGracePeriodSeconds})
	}
	return periods
}
