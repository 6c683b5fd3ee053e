package nodestatus

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// UpdatePodCIDR sends the pod CIDR to the runtime if it differs from the last one; several are joined by commas. It
// returns whether it differs. With an error, the runtime may or may not use the new one. It must be called once with
// the configured CIDR before Run; later the CIDR is that of the Node.
func (u *Updater) UpdatePodCIDR(ctx context.Context, cidr string) (bool, error) {
	u.cidr.Lock()
	defer u.cidr.Unlock()
	old := u.cfg.State.PodCIDR()
	if old == cidr {
		return false, nil
	}
	if err := u.cfg.Runtime.UpdatePodCIDR(ctx, cidr); err != nil {
		return true, fmt.Errorf("failed to update pod CIDR: %w", err)
	}
	klog.FromContext(ctx).Info("Updating Pod CIDR", "originalPodCIDR", old, "newPodCIDR", cidr)
	u.cfg.State.SetPodCIDR(cidr)
	return true, nil
}
