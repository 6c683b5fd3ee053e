package containerspec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
)

// maxHostname is the longest host name in bytes: the kernel's limit is 64 with the terminating NUL.
const maxHostname = 63

// GeneratePodHostNameAndDomain returns the pod's short host name, truncated to 63 bytes, and its DNS domain, which is
// empty unless the pod has a subdomain. With a hostnameOverride there is no domain. An invalid name is an error.
func (h *Helper) GeneratePodHostNameAndDomain(logger klog.Logger, pod *v1.Pod) (string, string, error) {
	if h.cfg.Features.HostnameOverride && pod.Spec.HostnameOverride != nil {
		name := *pod.Spec.HostnameOverride
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return "", "", fmt.Errorf("pod HostnameOverride %q is not a valid DNS subdomain: %s", name,
				strings.Join(problems, ";"))
		}
		name, err := truncateHostname(logger, pod.Name, name)
		return name, "", err
	}

	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
		if err := checkLabel("Hostname", name); err != nil {
			return "", "", err
		}
	}
	name, err := truncateHostname(logger, pod.Name, name)
	if err != nil {
		return "", "", err
	}
	if pod.Spec.Subdomain == "" {
		return name, "", nil
	}
	if err := checkLabel("Subdomain", pod.Spec.Subdomain); err != nil {
		return "", "", err
	}
	return name, strings.Join([]string{pod.Spec.Subdomain, pod.Namespace, "svc", h.cfg.ClusterDomain}, "."), nil
}

func checkLabel(field, value string) error {
	if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
		return fmt.Errorf("pod %s %q is not a valid DNS label: %s", field, value, strings.Join(problems, ";"))
	}
	return nil
}

// truncateHostname truncates a name that is too long, and removes characters with which a host name must not end.
func truncateHostname(logger klog.Logger, podName, name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	if cut == "" {
		return "", fmt.Errorf("hostname for pod %q was invalid: %q", podName, name)
	}
	logger.Error(nil, "Hostname for pod was too long, truncated it", "podName", podName, "hostnameMaxLen", maxHostname,
		"truncatedHostname", cut)
	return cut, nil
}
