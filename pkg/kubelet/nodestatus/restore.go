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

// RestoreAtStart reads the Node from the API server and calls Restore with its conditions. It must be called before
// pods and the eviction manager are started. It returns true if nothing is left to restore: Restore was called, or the
// Node does not exist, or the agent is in standalone mode. If the API server does not answer, it retries until timeout;
// then it returns false, and the first successful heartbeat restores, possibly long after pods and the eviction manager
// were started.
func (u *Updater) RestoreAtStart(ctx context.Context, timeout time.Duration) bool {
	if u.cannotReport() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		node, err := u.cfg.Heartbeat.CoreV1().Nodes().Get(ctx, string(u.Name()), metav1.GetOptions{})
		switch {
		case err == nil:
			u.restoreFrom(node)
			return true
		case apierrors.IsNotFound(err):
			u.skipRestore()
			return true
		}
		if !pause(ctx, restoreRetryPeriod) {
			klog.FromContext(ctx).Error(err,
				"Failed to restore pressure conditions of an earlier run, will retry with heartbeats")
			return false
		}
	}
}

// restoreFrom calls Restore with the conditions of a Node, if that is the first Node that is read.
func (u *Updater) restoreFrom(node *v1.Node) {
	u.restore.Do(func() {
		if u.cfg.Restore != nil {
			u.cfg.Restore(node.DeepCopy().Status.Conditions)
		}
		u.restored.Store(true)
	})
}

// skipRestore prevents later calls of Restore. It is called if the Node was not created by an earlier run.
func (u *Updater) skipRestore() { u.restore.Do(func() { u.restored.Store(true) }) }

// Restored reports whether Restore has returned, or has nothing to restore since the Node did not exist. Before that,
// conditions of an earlier run of the agent are not yet known. It may be called at any time.
func (u *Updater) Restored() bool { return u.restored.Load() }
