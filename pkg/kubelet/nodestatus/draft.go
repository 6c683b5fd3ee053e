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
	// base is the Node to be patched, node the desired Node. They are copies that are not shared with the lister.
	base, node *v1.Node
	// dirty is true if a patch is needed for something other than the status.
	dirty bool
}

// newDraft sets the status except for the conditions. It may query the runtime and DNS, so the caller must not hold
// writing.
func (u *Updater) newDraft(ctx context.Context, base *v1.Node) *draft {
	d := &draft{base: base.DeepCopy(), node: base.DeepCopy()}
	if cidrs := d.node.Spec.PodCIDRs; len(cidrs) > 0 {
		changed, err := u.UpdatePodCIDR(ctx, strings.Join(cidrs, ","))
		if err != nil {
			klog.FromContext(ctx).Error(err, "Error updating pod CIDR")
		}
		d.dirty = changed
	}
	// Schedulers and DaemonSets select nodes by these two labels. They must not be missing even until the next heartbeat.
	osSet := setLabel(d.node, v1.LabelOSStable, goruntime.GOOS)
	archSet := setLabel(d.node, v1.LabelArchStable, goruntime.GOARCH)
	d.dirty = d.dirty || osSet || archSet
	apply(ctx, d.node, u.reported.facts)
	keepReported(d.base, d.node, u.isReported(ctx, d.base))
	return d
}

// rebase sets the conditions to those of a newer Node: pressure may have been published since base was read. Other
// writes of the status are serialized by syncing.
func (d *draft) rebase(onto *v1.Node) {
	d.base.Status.Conditions = slices.Clone(onto.Status.Conditions)
	d.node.Status.Conditions = slices.Clone(onto.Status.Conditions)
}

func (d *draft) changed() bool { return d.dirty || statusChanged(&d.base.Status, &d.node.Status) }

// ready returns the Ready condition of a Node, nil if it has none.
func ready(node *v1.Node) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == v1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
