package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
)

const (
	firstRegistrationDelay = 100 * time.Millisecond
	maxRegistrationDelay   = 7 * time.Second
)

var errNoNodeReturned = errors.New("the API server returned no node")

// registerUntilDone tries to register, at growing distances, and reports false if ctx ended before it succeeded.
func (u *Updater) registerUntilDone(ctx context.Context) bool {
	for delay := firstRegistrationDelay; ctx.Err() == nil; delay = min(2*delay, maxRegistrationDelay) {
		u.syncing.Lock()
		err := u.register(ctx)
		u.syncing.Unlock()
		if err == nil {
			return true
		}
		klog.FromContext(ctx).Error(err, "Unable to register node with API server", "node", klog.KRef("", string(u.Name())))
		if !pause(ctx, delay) {
			return false
		}
	}
	return false
}

// register makes one attempt, unless an earlier one succeeded or registration is not ours. The caller holds syncing.
func (u *Updater) register(ctx context.Context) error {
	if u.report.registered || !u.cfg.Registration.Register {
		return nil
	}
	logger := klog.FromContext(ctx)
	u.cfg.Startup.RecordAttemptRegisterNode()
	node := u.initialNode(ctx, u.reported)
	logger.Info("Attempting to register node", "node", klog.KObj(node))
	if err := u.createOrReconcile(ctx, node); err != nil {
		return err
	}
	logger.Info("Successfully registered node", "node", klog.KObj(node))
	u.report.registered = true
	return nil
}

// createOrReconcile creates the node. If it is there already, what only this agent knows is put right in it.
func (u *Updater) createOrReconcile(ctx context.Context, initial *v1.Node) error {
	nodes := u.cfg.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, initial, metav1.CreateOptions{})
	if err == nil {
		u.nothingToRestore()
		u.cfg.Startup.RecordRegisteredNewNode()
		return nil
	}
	if !u.mayExist(err) {
		return fmt.Errorf("creating the node: %w", err)
	}
	existing, err := nodes.Get(ctx, string(u.Name()), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the existing node: %w", err)
	}
	if existing == nil {
		return errNoNodeReturned
	}
	klog.FromContext(ctx).Info("Node was previously registered", "node", klog.KObj(initial))
	return u.reconcile(ctx, initial, existing)
}

// mayExist reports whether a node could be there although it could not be created. Who may not create may still update,
// unless the gate says to take the refusal at its word.
func (u *Updater) mayExist(createErr error) bool {
	if apierrors.IsForbidden(createErr) {
		return !u.cfg.Registration.GetOnExistsOnly
	}
	return apierrors.IsAlreadyExists(createErr)
}

func (u *Updater) reconcile(ctx context.Context, initial, existing *v1.Node) error {
	wanted := reconciled(initial, existing, u.cfg.ContainerManager.ShouldResetExtendedResourceCapacity())
	if apiequality.Semantic.DeepEqual(existing, wanted) {
		return nil
	}
	_, patch, err := nodeutil.PatchNodeStatus(u.cfg.Client.CoreV1(), u.Name(), existing, wanted)
	if err != nil {
		return fmt.Errorf("reconciling the existing node: %w", err)
	}
	klog.FromContext(ctx).Info("Reconciled the existing node", "node", klog.KObj(existing), "patch", string(patch))
	return nil
}

// pause waits for d and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
