package nodestatus

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// minPressureInterval bounds how often pressure is published beside the heartbeat.
const minPressureInterval = time.Second

// PressureChanged asks for the pressure conditions to be published at once. It does not block; calls that come while
// one is being published, or less than a second later, become one. Before Run it is remembered. Meant for a condition
// that becomes true; one that becomes false can wait for the heartbeat, which keeps a flapping condition from flapping
// on the Node.
func (u *Updater) PressureChanged() {
	select {
	case u.bell <- struct{}{}:
	default:
	}
}

func (u *Updater) publishPressureWhenAsked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.bell:
		}
		if err := u.retry(ctx, u.tryPublishPressure); err != nil {
			klog.FromContext(ctx).Error(err, "Unable to publish pressure, leaving it to the next heartbeat")
		}
		if !pause(ctx, minPressureInterval) {
			return
		}
	}
}

// tryPublishPressure patches the three conditions and nothing else. It does not count as a report: the other conditions
// keep their heartbeat times.
func (u *Updater) tryPublishPressure(ctx context.Context, try int) error {
	listed, err := u.read(ctx, try)
	if err != nil {
		return err
	}
	u.writing.Lock()
	defer u.writing.Unlock()
	base := u.freshest(ctx, listed).DeepCopy()
	node := base.DeepCopy()
	apply(ctx, node, u.reported.pressure)
	if !conditionsChanged(base.Status.Conditions, node.Status.Conditions) {
		return nil
	}
	if _, err := u.patch(base, node); err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Published pressure", "node", klog.KObj(node))
	return nil
}
