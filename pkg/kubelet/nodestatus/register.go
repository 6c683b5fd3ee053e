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

// registerUntilDone registers the node, with retries after increasing delays. It returns false if ctx ends before that.
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

// register makes one attempt to register the node, unless it is registered or the agent does not register it. The
// caller holds syncing.
func (u *Updater) register(ctx context.Context) error {
	if u.report.registered || !u.cfg.Registration.Register {
		return nil
	}
	logger := klog.FromContext(ctx)
	u.cfg.Startup.RecordAttemptRegisterNode()
	node := u.newNode(ctx, u.reported)
	logger.Info("Attempting to register node", "node", klog.KObj(node))
	if err := u.createOrReconcile(ctx, node); err != nil {
		return err
	}
	logger.Info("Successfully registered node", "node", klog.KObj(node))
	u.report.registered = true
	return nil
}

// createOrReconcile creates the Node. If it exists, it corrects the fields that the agent owns.
func (u *Updater) createOrReconcile(ctx context.Context, initial *v1.Node) error {
	nodes := u.cfg.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, initial, metav1.CreateOptions{})
	if err == nil {
		u.skipRestore()
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

// mayExist returns whether the Node may exist after a failed creation. If the creation is forbidden, the agent may
// still be allowed to update an existing Node; with GetOnExistsOnly it does not try that.
func (u *Updater) mayExist(createErr error) bool {
	if apierrors.IsForbidden(createErr) {
		return !u.cfg.Registration.GetOnExistsOnly
	}
	return apierrors.IsAlreadyExists(createErr)
}

func (u *Updater) reconcile(ctx context.Context, initial, existing *v1.Node) error {
	wanted := reconciled(initial, existing, u.cfg.ContainerManager.ShouldResetExtendedResourceCapacity())
	keepReported(existing, wanted, u.isReported(ctx, existing))
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

// pause waits for d. It returns false if ctx ends first.
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
