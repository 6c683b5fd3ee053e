package nodestatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

// ownedLabels are the labels that are reset on an existing Node, if the agent has a value for them. Other labels are
// not changed.
var ownedLabels = []string{
	v1.LabelHostname,
	v1.LabelOSStable, kubeletapis.LabelOS,
	v1.LabelArchStable, kubeletapis.LabelArch,
	v1.LabelTopologyZone, v1.LabelFailureDomainBetaZone,
	v1.LabelTopologyRegion, v1.LabelFailureDomainBetaRegion,
	v1.LabelInstanceTypeStable, v1.LabelInstanceType,
	v1.LabelWindowsBuild,
}

// reconciled returns a copy of the existing Node with the corrections that a restarted agent makes before its first
// report. zeroExtended is true if extended resources are not available until the device plugins have registered again.
func reconciled(initial, existing *v1.Node, zeroExtended bool) *v1.Node {
	node := existing.DeepCopy()
	reconcileAttachDetach(initial, node)
	reconcileLabels(initial, node)
	if node.Status.Capacity == nil {
		node.Status.Capacity = copyOrEmpty(initial.Status.Capacity)
	}
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = copyOrEmpty(initial.Status.Allocatable)
	}
	if zeroExtended {
		zeroExtendedResources(&node.Status)
	}
	reconcileHugePages(&initial.Status, &node.Status)
	return node
}

func reconcileAttachDetach(initial, node *v1.Node) {
	wanted, set := initial.Annotations[volumeutil.ControllerManagedAttachAnnotation]
	if node.Annotations[volumeutil.ControllerManagedAttachAnnotation] == wanted {
		return
	}
	if !set {
		delete(node.Annotations, volumeutil.ControllerManagedAttachAnnotation)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[volumeutil.ControllerManagedAttachAnnotation] = wanted
}

// reconcileLabels sets the owned labels. It deletes a label whose value is empty.
func reconcileLabels(initial, node *v1.Node) {
	for _, key := range ownedLabels {
		wanted, known := initial.Labels[key]
		switch {
		case !known:
		case wanted == "":
			delete(node.Labels, key)
		default:
			setLabel(node, key, wanted)
		}
	}
}

// setLabel sets a label and returns whether it was missing or different.
func setLabel(node *v1.Node, key, value string) bool {
	if node.Labels[key] == value {
		return false
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[key] = value
	return true
}

func copyOrEmpty(list v1.ResourceList) v1.ResourceList {
	if list == nil {
		return v1.ResourceList{}
	}
	return list.DeepCopy()
}

func zeroExtendedResources(status *v1.NodeStatus) {
	for name := range status.Capacity {
		if v1helper.IsExtendedResourceName(name) {
			status.Capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
			status.Allocatable[name] = *resource.NewQuantity(0, resource.DecimalSI)
		}
	}
}

// reconcileHugePages sets the page sizes and amounts to those of the machine, which may have changed with a reboot.
func reconcileHugePages(machine, status *v1.NodeStatus) {
	for name := range status.Capacity {
		if _, supported := machine.Capacity[name]; v1helper.IsHugePageResourceName(name) && !supported {
			delete(status.Capacity, name)
			delete(status.Allocatable, name)
		}
	}
	for name, capacity := range machine.Capacity {
		if !v1helper.IsHugePageResourceName(name) {
			continue
		}
		_, known := status.Capacity[name]
		setQuantity(status.Capacity, name, capacity, known)
		setQuantity(status.Allocatable, name, machine.Allocatable[name], known)
	}
}

// setQuantity sets a quantity. It keeps the notation of an equal quantity, so that the patch does not contain it.
func setQuantity(list v1.ResourceList, name v1.ResourceName, amount resource.Quantity, known bool) {
	if old := list[name]; !known || old.Cmp(amount) != 0 {
		list[name] = amount.DeepCopy()
	}
}
