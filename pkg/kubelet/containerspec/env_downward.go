package containerspec

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	podshelper "k8s.io/kubernetes/pkg/apis/core/pods"
	"k8s.io/kubernetes/pkg/fieldpath"
)

// field returns the value of a field of the pod, for the downward API.
func (b *envBuilder) field(ctx context.Context, ref *v1.ObjectFieldSelector) (string, error) {
	path, _, err := podshelper.ConvertDownwardAPIFieldLabel(ref.APIVersion, ref.FieldPath, "")
	if err != nil {
		return "", err
	}
	pod := b.request.pod
	switch path {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return b.hostIPs(ctx, path == "status.hostIP")
	case "status.podIP":
		if ips := b.podIPs(); len(ips) > 0 {
			return ips[0], nil
		}
		return b.request.podIP, nil
	case "status.podIPs":
		return strings.Join(b.podIPs(), ","), nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, path)
}

// podIPs are the addresses from the runtime, the node's primary family first (issue 97979). The pod's status may not
// have them yet.
func (b *envBuilder) podIPs() []string {
	return sortPodIPs(b.helper.cfg.NodeIPs, b.request.podIPs)
}

func (b *envBuilder) hostIPs(ctx context.Context, firstOnly bool) (string, error) {
	ips, err := b.helper.cfg.HostIPs(ctx)
	if err != nil {
		return "", err
	}
	if len(ips) == 0 {
		return "", errors.New("host IP unknown")
	}
	if firstOnly {
		return ips[0].String(), nil
	}
	return joinIPs(ips), nil
}

func joinIPs(ips []net.IP) string {
	texts := make([]string, len(ips))
	for i, ip := range ips {
		texts[i] = ip.String()
	}
	return strings.Join(texts, ",")
}

// resource returns a request or limit of a container, for the downward API.
func (b *envBuilder) resource(ctx context.Context, ref *v1.ResourceFieldSelector) (string, error) {
	if b.limited == nil {
		node, err := b.helper.cfg.Node(ctx)
		if err != nil {
			return "", fmt.Errorf("failed to find node object, expected a node")
		}
		defaults := defaultLimits(b.request.pod, node.Status.Allocatable, b.helper.cfg.Features.PodLevelResources)
		b.limited = newLimitedPod(b.request, defaults)
	}
	if ref.ContainerName == "" {
		return resource.ExtractContainerResourceValue(ref, b.limited.container)
	}
	return resource.ExtractResourceValueByContainerName(ref, b.limited.pod, ref.ContainerName)
}

// limitedPod is a copy of a pod and one of its containers in which every container has limits.
type limitedPod struct {
	pod       *v1.Pod
	container *v1.Container
}

func newLimitedPod(req request, defaults v1.ResourceList) *limitedPod {
	limited := limitedPod{pod: req.pod.DeepCopy(), container: req.container.DeepCopy()}
	for i := range limited.pod.Spec.Containers {
		resource.MergeContainerResourceLimits(&limited.pod.Spec.Containers[i], defaults)
	}
	resource.MergeContainerResourceLimits(limited.container, defaults)
	return &limited
}

// defaultLimits is what the downward API shows as the limits of a container that has none: those of the pod, else what
// the node can allocate. The result must not be modified.
func defaultLimits(pod *v1.Pod, allocatable v1.ResourceList, podLevel bool) v1.ResourceList {
	if !podLevel || !resourcehelper.IsPodLevelLimitsSet(pod) {
		return allocatable
	}
	defaults := allocatable.DeepCopy()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		limit, limited := pod.Spec.Resources.Limits[name]
		_, offered := defaults[name]
		if limited && offered && !limit.IsZero() && resourcehelper.IsSupportedPodLevelResource(name) {
			defaults[name] = limit
		}
	}
	return defaults
}
