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

// UpdatePeriod is how often Run asks the runtime.
const UpdatePeriod = 5 * time.Second

// Runtime is asked for its status.
type Runtime interface {
	Status(ctx context.Context) (*kubecontainer.RuntimeStatus, error)
}

// UpdaterConfig is what an Updater works with.
type UpdaterConfig struct {
	Runtime Runtime
	State   *State
	// OnFirstReady, if not nil, is called once, when the runtime is ready for the first time, before that is recorded in
	// State. It holds up further updates until it returns. What the agent cannot live without it must report by its own
	// means.
	OnFirstReady func(context.Context)
}

// Updater asks the runtime how it is and records the answer.
type Updater struct {
	cfg UpdaterConfig

	mu sync.Mutex
	// expectReady is true once an unready runtime is worth a line in the log.
	expectReady bool
	wasReady    bool
}

// listPeriod is the time between two attempts of AwaitPods.
const listPeriod = time.Second

// AwaitPods lists the pods of the runtime at the start of the agent, again after a second as long as the runtime does
// not answer. The error is that of ctx.
func AwaitPods(
	ctx context.Context, list func(context.Context) ([]*kubecontainer.Pod, error),
) (pods []*kubecontainer.Pod, err error) {
	err = wait.PollUntilContextCancel(ctx, listPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if pods, err = list(ctx); err != nil {
			klog.FromContext(ctx).Error(err,
				"Failed to list the pods that run since before the start of the agent, trying again")
		}
		return err == nil, nil
	})
	return pods, err
}

// NewUpdater returns an updater. It starts nothing.
func NewUpdater(cfg UpdaterConfig) *Updater { return &Updater{cfg: cfg} }

// Run updates the state at once and then every UpdatePeriod, until ctx ends.
func (u *Updater) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, u.Update, UpdatePeriod)
}

// ExpectReady says that start-up is over: from now on an unready runtime is logged at the default verbosity.
func (u *Updater) ExpectReady() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expectReady = true
}

// Update asks the runtime once. It may be called from several goroutines; calls take turns. When the runtime gives no
// answer the state stays as it is, and the runtime counts as down once it has been silent for too long.
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

// check returns an error when the runtime does not report the condition as true. The text ends in the condition as the
// runtime reports it, because it becomes part of the node's Ready condition.
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
