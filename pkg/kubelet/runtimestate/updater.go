package runtimestate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// UpdatePeriod is the interval at which Run queries the runtime.
const UpdatePeriod = 5 * time.Second

// Runtime is the part of the runtime manager that returns the status of the runtime.
type Runtime interface {
	Status(ctx context.Context) (*kubecontainer.RuntimeStatus, error)
}

// UpdaterConfig is the configuration of an Updater.
type UpdaterConfig struct {
	Runtime Runtime
	State   *State
	// OnFirstReady, if not nil, is called once, when the runtime is ready for the first time, before that is recorded in
	// State. Further updates wait until it returns. It returns no error: it has to handle its failures itself.
	OnFirstReady func(context.Context)
}

// Updater queries the status of the runtime and records it in the State.
type Updater struct {
	cfg UpdaterConfig

	mu sync.Mutex
	// expectReady is true once a runtime that is not ready is logged at the default verbosity.
	expectReady bool
	// wasReady is true once the runtime was ready.
	wasReady bool
}

// listPeriod is the time between two attempts of AwaitPods.
const listPeriod = time.Second

// AwaitPods lists the pods of the runtime at the start of the agent. If the runtime returns an error, it retries every
// second until ctx ends. The error is that of ctx.
func AwaitPods(
	ctx context.Context, list func(context.Context) ([]*kubecontainer.Pod, error),
) (pods []*kubecontainer.Pod, err error) {
	err = wait.PollUntilContextCancel(ctx, listPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if pods, err = list(ctx); err != nil {
			klog.FromContext(ctx).Error(err,
				"Failed to list pods of the runtime at the start of the agent, will retry")
		}
		return err == nil, nil
	})
	return pods, err
}

// NewUpdater returns an updater. It starts no goroutine.
func NewUpdater(cfg UpdaterConfig) *Updater { return &Updater{cfg: cfg} }

// Run updates the state immediately and then every UpdatePeriod, until ctx ends.
func (u *Updater) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, u.Update, UpdatePeriod)
}

// ExpectReady is called when the start of the agent is over. From then on, a runtime that is not ready is logged at the
// default verbosity.
func (u *Updater) ExpectReady() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expectReady = true
}

// Update queries the runtime once. It may be called concurrently; the queries are serialized. If the query fails, the
// state does not change, so that the runtime counts as down after the time given to New.
func (u *Updater) Update(ctx context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	logger := klog.FromContext(ctx)
	status, err := u.cfg.Runtime.Status(ctx)
	if err != nil {
		logger.Error(err, "Container runtime sanity check failed")
		return
	}
	if status == nil {
		logger.Error(nil, "Container runtime status is nil")
		return
	}
	logger.V(4).Info("Container runtime status", "status", status)
	u.cfg.State.SetNetworkError(u.check(logger, status, kubecontainer.NetworkReady, "container runtime network not ready"))
	notReady := u.check(logger, status, kubecontainer.RuntimeReady, "container runtime not ready")
	u.cfg.State.SetRuntimeError(notReady)
	if notReady == nil {
		u.ready(ctx, status)
	}
}

// check returns an error if the runtime does not report the condition as true. Its text has the reported condition,
// since it becomes part of the message of the node's Ready condition.
func (u *Updater) check(
	logger klog.Logger, status *kubecontainer.RuntimeStatus, t kubecontainer.RuntimeConditionType, text string,
) error {
	condition := status.GetRuntimeCondition(t)
	if condition != nil && condition.Status {
		return nil
	}
	if !u.expectReady {
		logger = logger.V(4)
	}
	logger.Info("Container runtime condition is not true", "type", t, "condition", condition)
	return fmt.Errorf("%s: %v", text, condition)
}

// ready records an answer as ready.
func (u *Updater) ready(ctx context.Context, status *kubecontainer.RuntimeStatus) {
	u.cfg.State.SetRuntimeHandlers(status.Handlers)
	u.cfg.State.SetRuntimeFeatures(status.Features)
	if !u.wasReady {
		u.wasReady = true
		if u.cfg.OnFirstReady != nil {
			u.cfg.OnFirstReady(ctx)
		}
	}
	u.cfg.State.SetRuntimeSync(time.Now())
}
