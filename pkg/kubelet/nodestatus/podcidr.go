package nodestatus

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
)

// UpdatePodCIDR tells the runtime the pod CIDR, several joined by commas, if it differs from what it was told last. It
// reports whether it differs, also with an error: then the runtime may or may not have taken it. Call it once with the
// configured CIDR before Run; afterwards the CIDR follows the Node.
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
