package nodestatus

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
)

const (
	// maxTries is the maximum number of attempts of one round. All but the first read the Node from the API server.
	maxTries = 5
	// maxOwnWriteAge is how long the response to an own write is preferred to an older Node of the lister. If the lister
	// lags for longer, it has lost its watch, or the API server was restored from a backup with older resource versions.
	maxOwnWriteAge = 30 * time.Second
)

// ownWrite is the Node in the response to the last patch of the status.
type ownWrite struct {
	node *v1.Node
	at   time.Time
}

// retry runs one round of updates.
func (u *Updater) retry(ctx context.Context, attempt func(ctx context.Context, try int) error) error {
	var err error
	for try := range maxTries {
		if err = attempt(ctx, try); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if try > 0 && u.cfg.OnHeartbeatFailure != nil {
			u.cfg.OnHeartbeatFailure()
		}
		klog.FromContext(ctx).Error(err, "Error updating node status, will retry")
	}
	return fmt.Errorf("update node status exceeds retry count: %w", err)
}

// read returns the Node from which the status is computed: that of the lister in the first attempt, since reads of all
// nodes would be most of the load of the API server; that of the API server in retries. The first Node that is read is
// passed to Restore. The caller must not hold writing.
func (u *Updater) read(ctx context.Context, try int) (*v1.Node, error) {
	node, err := u.readFrom(ctx, try)
	if err != nil {
		return nil, fmt.Errorf("error getting node %q: %w", u.Name(), err)
	}
	if node == nil {
		return nil, fmt.Errorf("nil %q node object", u.Name())
	}
	u.restoreFrom(node)
	return u.lockedNewest(ctx, node), nil
}

func (u *Updater) readFrom(ctx context.Context, try int) (*v1.Node, error) {
	if try == 0 {
		if node, err := u.Lookup(ctx); err == nil {
			return node, nil
		}
	}
	return u.cfg.Heartbeat.CoreV1().Nodes().Get(ctx, string(u.Name()), metav1.GetOptions{})
}

// lockedNewest is newest for callers that do not hold writing. With a stale Node, a field that has changed back would
// not be patched.
func (u *Updater) lockedNewest(ctx context.Context, node *v1.Node) *v1.Node {
	u.writing.Lock()
	defer u.writing.Unlock()
	return u.newest(ctx, node)
}

// newest returns the response to the last own write if it is newer than node, else node. The caller holds writing.
func (u *Updater) newest(ctx context.Context, node *v1.Node) *v1.Node {
	own := u.own.node
	if own == nil || own.UID != node.UID || u.cfg.Clock.Since(u.own.at) > maxOwnWriteAge {
		return node
	}
	return newerNode(ctx, node, own)
}

// patch sends the differences between base and node. The caller holds writing.
func (u *Updater) patch(base, node *v1.Node) (*v1.Node, error) {
	updated, _, err := nodeutil.PatchNodeStatus(u.cfg.Heartbeat.CoreV1(), u.Name(), base, node)
	if err != nil {
		return nil, err
	}
	u.own = ownWrite{node: updated, at: u.cfg.Clock.Now()}
	if c := ready(updated); c != nil && c.Status == v1.ConditionTrue {
		u.cfg.Startup.RecordNodeReady()
	}
	return updated, nil
}
