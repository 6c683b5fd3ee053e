package nodestatus

import (
	"context"
	goruntime "runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// draft is a status that is being computed.
type draft struct {
	// base is what the patch is made against; node is what it shall become. Neither is shared with the lister.
	base, node *v1.Node
	// dirty says that something besides the status calls for a patch.
	dirty bool
}

// newDraft sets everything but the conditions. It may ask the runtime and DNS; the caller must not hold writing.
func (u *Updater) newDraft(ctx context.Context, base *v1.Node) *draft {
	d := &draft{base: base.DeepCopy(), node: base.DeepCopy()}
	if cidrs := d.node.Spec.PodCIDRs; len(cidrs) > 0 {
		changed, err := u.UpdatePodCIDR(ctx, strings.Join(cidrs, ","))
		if err != nil {
			klog.FromContext(ctx).Error(err, "Error updating pod CIDR")
		}
		d.dirty = changed
	}
	// The scheduler and the endpoints of daemons select by these two; they may not be missing even for a heartbeat.
	osSet := setLabel(d.node, v1.LabelOSStable, goruntime.GOOS)
	archSet := setLabel(d.node, v1.LabelArchStable, goruntime.GOARCH)
	d.dirty = d.dirty || osSet || archSet
	apply(ctx, d.node, u.reported.facts)
	return d
}

// rebase takes over what may have been written since base was read: pressure, as whole statuses are written one after
// the other.
func (d *draft) rebase(onto *v1.Node) {
	d.base.Status.Conditions = slices.Clone(onto.Status.Conditions)
	d.node.Status.Conditions = slices.Clone(onto.Status.Conditions)
}

func (d *draft) changed() bool { return d.dirty || statusChanged(&d.base.Status, &d.node.Status) }

// ready is the node's Ready condition, nil if it has none.
func ready(node *v1.Node) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
