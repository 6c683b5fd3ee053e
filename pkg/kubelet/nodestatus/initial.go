package nodestatus

import (
	"context"
	"maps"
	goruntime "runtime"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// newNode returns the Node that the agent would create, with labels, taints and a complete status.
func (u *Updater) newNode(ctx context.Context, s setters) *v1.Node {
	r := &u.cfg.Registration
	node := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: string(u.Name()), Labels: r.nodeLabels(klog.FromContext(ctx))},
		Spec:       v1.NodeSpec{ProviderID: r.ProviderID, Taints: r.nodeTaints()},
	}
	if r.ControllerAttachDetach {
		node.Annotations = map[string]string{volumeutil.ControllerManagedAttachAnnotation: "true"}
	}
	apply(ctx, node, s.facts)
	s.applyConditions(ctx, node)
	return node
}

// nodeLabels returns the default labels, overridden by the configured ones.
func (r *Registration) nodeLabels(logger klog.Logger) map[string]string {
	labels := map[string]string{
		v1.LabelHostname:      r.Hostname,
		v1.LabelOSStable:      goruntime.GOOS,
		kubeletapis.LabelOS:   goruntime.GOOS,
		v1.LabelArchStable:    goruntime.GOARCH,
		kubeletapis.LabelArch: goruntime.GOARCH,
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if fallback, ok := labels[key]; ok {
			logger.Info("The node label will overwrite the default setting", "labelKey", key, "labelValue", r.Labels[key],
				"default", fallback)
		}
		labels[key] = r.Labels[key]
	}
	return labels
}

// nodeTaints returns the configured taints and, with an external cloud provider, the taint that its controller removes
// after it has initialized the node.
func (r *Registration) nodeTaints() []v1.Taint {
	taints := slices.Clone(r.Taints)
	if r.ExternalCloudProvider {
		taints = append(taints, v1.Taint{
			Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule,
		})
	}
	return taints
}
