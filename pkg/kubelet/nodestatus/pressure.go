package nodestatus

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// minPressureInterval is the minimum time between two publications of pressure, apart from heartbeats.
const minPressureInterval = time.Second

// PressureChanged requests the publication of the pressure conditions and plugin conditions. It does not block. Calls
// during a publication, or less than a second after it, are merged into one; a call before Run takes effect in Run. It
// is for conditions that become true. A condition that becomes false can wait for the heartbeat, so that a condition
// that changes frequently does not change as often on the Node.
func (u *Updater) PressureChanged() {
	select {
	case u.pressureChanged <- struct{}{}:
	default:
	}
}

func (u *Updater) publishPressureOnRequest(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.pressureChanged:
		}
		if err := u.retry(ctx, u.tryPublishPressure); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to publish pressure, will retry with the next heartbeat")
		}
		if !pause(ctx, minPressureInterval) {
			return
		}
	}
}

// tryPublishPressure patches the three pressure conditions and the plugin conditions, and nothing else. It does not
// count as a report: the heartbeat times of the other conditions do not change.
func (u *Updater) tryPublishPressure(ctx context.Context, try int) error {
	listed, err := u.read(ctx, try)
	if err != nil {
		return err
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	base := u.newest(ctx, listed).DeepCopy()
	node := base.DeepCopy()
	apply(ctx, node, u.reported.pressure)
	if !conditionsChanged(base.Status.Conditions, node.Status.Conditions) {
		return nil
	}
	if _, err := u.patch(base, node); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Published conditions", "node", klog.KObj(node))
	return nil
}
