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

// ErrGoingDown is why there is no lock any more: the machine is going down already.
var ErrGoingDown = errors.New("the machine is going down already")

// Logind is a connection to the login manager. It is used by one goroutine.
type Logind interface {
	// Grant has the machine wait for locks for as long as wanted. What it returns is how long it will wait, also with an
	// error, which says why that is less; 0 when it cannot be told.
	Grant(ctx context.Context, wanted time.Duration) (time.Duration, error)
	// Inhibit takes a lock that delays the shutdown of the machine until it is closed. ErrGoingDown comes when it is too
	// late for that.
	Inhibit() (io.Closer, error)
	// Watch listens for announcements until ctx ends. To be called after Inhibit: who holds a lock misses nothing.
	Watch(ctx context.Context) (Announcements, error)
}

// Announcements are what the login manager says about the machine.
type Announcements struct {
	// Events is true when the machine goes down, false when it does not after all. Closed when the connection is lost.
	Events <-chan bool
	// Known is true when the login manager has said how things were when the listening began: GoingDown.
	Known, GoingDown bool
}

// Pods are the pods of the node and what can be done with them.
type Pods struct {
	// Active are the pods that may have running containers, without those that wait for their admission.
	Active func() []*v1.Pod
	// Ready is true when every source has told its pods.
	Ready func() bool
	// Terminating is true once somebody has asked for the end of the pod.
	Terminating func(types.UID) bool
	// Readmitted is true while the admission of a pod is under way that ran here before the agent was started.
	Readmitted func(*v1.Pod) bool
	// Kill has the pod workers stop a pod.
	Kill podkill.Func
	// Unmounted returns when no volume of the pods is mounted any more, or with an error when ctx ends.
	Unmounted func(ctx context.Context, pods []*v1.Pod) error
	// Restart starts pods again that were stopped for a shutdown that was cancelled. They may still be terminating.
	Restart func(ctx context.Context, pods []*v1.Pod)
}

// Config is what a Manager needs. Everything is required unless its comment says otherwise.
type Config struct {
	// Periods in any order. Without any the manager does nothing and admits everybody.
	Periods []plan.Period
	// Connect connects to the login manager.
	Connect func() (Logind, error)
	Pods    Pods
	// SyncNode publishes the state of the node.
	SyncNode func(context.Context)
	Recorder record.EventRecorder
	// NodeRef is what events about the node are about.
	NodeRef *v1.ObjectReference
	// StateFile is where the times of the last shutdown are kept for the metrics; empty if neither is wanted.
	StateFile string
	Clock     clock.Clock
}

// Features are the feature gates of this package.
type Features struct {
	// Graceful (gate GracefulNodeShutdown): pods are stopped in order at all.
	Graceful bool
	// ByPriority (gate GracefulNodeShutdownBasedOnPodPriority): periods may be set by priority, and the times of the last
	// shutdown are kept and shown.
	ByPriority bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	return Features{
		Graceful:   gates.Enabled(features.GracefulNodeShutdown),
		ByPriority: gates.Enabled(features.GracefulNodeShutdownBasedOnPodPriority),
	}
}

// Periods returns the periods that the configuration sets; none if pods are not to be stopped in order.
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
