package nodestatus

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const restoreRetryPeriod = 200 * time.Millisecond

// RestoreAtStart asks the API server for the Node and hands its conditions to Restore. It reports whether nothing is
// left to restore: that is done, or there is no such Node, or no API server by configuration. While the API server
// cannot be asked it tries again until patience has passed; then the first heartbeat that succeeds restores, which may
// be long after pods and the eviction manager have started. Call it before those.
func (u *Updater) RestoreAtStart(ctx context.Context, patience time.Duration) bool {
	if u.reportsNothing() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		node, err := u.cfg.Heartbeat.CoreV1().Nodes().Get(ctx, string(u.Name()), metav1.GetOptions{})
		switch {
		case err == nil:
			u.restoreFrom(node)
			return true
		case apierrors.IsNotFound(err):
			u.nothingToRestore()
			return true
		}
		if !pause(ctx, restoreRetryPeriod) {
			klog.FromContext(ctx).Error(err,
				"Pressure conditions of an earlier run are not known yet; the first heartbeat will take them over")
			return false
		}
	}
}

// restoreFrom hands over the conditions of the first Node that is read.
func (u *Updater) restoreFrom(node *v1.Node) {
	u.restore.Do(func() {
		if u.cfg.Restore != nil {
			u.cfg.Restore(node.DeepCopy().Status.Conditions)
		}
	})
}

// nothingToRestore is for a Node that comes into being while this process runs.
func (u *Updater) nothingToRestore() { u.restore.Do(func() {}) }
