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
	utilnet "k8s.io/utils/net"
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

// podIPs returns the addresses from the runtime, the node's primary family first (kubernetes issue 97979). The pod's
// status may not have them yet.
func (b *envBuilder) podIPs() []string {
	return sortPodIPs(b.helper.cfg.NodeIPs, b.request.podIPs)
}

// sortPodIPs returns at most one address per family, that of the node's primary family first, in canonical form. It
// drops addresses that do not parse.
func sortPodIPs(nodeIPs []net.IP, podIPs []string) []string {
	primaryIsV6 := len(nodeIPs) > 0 && utilnet.IsIPv6(nodeIPs[0])
	var primary, secondary string
	for _, text := range podIPs {
		ip := utilnet.ParseIPSloppy(text)
		if ip == nil {
			continue
		}
		target := &secondary
		if utilnet.IsIPv6(ip) == primaryIsV6 {
			target = &primary
		}
		if *target == "" {
			*target = ip.String()
		}
	}
	sorted := make([]string, 0, 2)
	for _, ip := range []string{primary, secondary} {
		if ip != "" {
			sorted = append(sorted, ip)
		}
	}
	return sorted
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
	if b.withLimits == nil {
		node, err := b.helper.cfg.Node(ctx)
		if err != nil {
			return "", fmt.Errorf("failed to find node object, expected a node")
		}
		defaults := defaultLimits(b.request.pod, node.Status.Allocatable, b.helper.cfg.Features.PodLevelResources)
		b.withLimits = newPodWithLimits(b.request, defaults)
	}
	if ref.ContainerName == "" {
		return resource.ExtractContainerResourceValue(ref, b.withLimits.container)
	}
	return resource.ExtractResourceValueByContainerName(ref, b.withLimits.pod, ref.ContainerName)
}

// podWithLimits is a copy of a pod and of one of its containers in which every container has limits.
type podWithLimits struct {
	pod       *v1.Pod
	container *v1.Container
}

func newPodWithLimits(req request, defaults v1.ResourceList) *podWithLimits {
	p := podWithLimits{pod: req.pod.DeepCopy(), container: req.container.DeepCopy()}
	for i := range p.pod.Spec.Containers {
		resource.MergeContainerResourceLimits(&p.pod.Spec.Containers[i], defaults)
	}
	resource.MergeContainerResourceLimits(p.container, defaults)
	return &p
}

// defaultLimits returns the limits that the downward API reports for a container without limits: those of the pod, else
// the node's allocatable resources. The result must not be modified.
func defaultLimits(pod *v1.Pod, allocatable v1.ResourceList, podLevel bool) v1.ResourceList {
	if !podLevel || !resourcehelper.IsPodLevelLimitsSet(pod) {
		return allocatable
	}
	defaults := allocatable.DeepCopy()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		limit, hasLimit := pod.Spec.Resources.Limits[name]
		_, hasDefault := defaults[name]
		if hasLimit && hasDefault && !limit.IsZero() && resourcehelper.IsSupportedPodLevelResource(name) {
			defaults[name] = limit
		}
	}
	return defaults
}
