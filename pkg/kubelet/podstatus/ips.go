package podstatus

import (
	"net"

	v1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"
)

// SortPodIPs returns the addresses of a pod that are reported: the first of the node's primary family, then the first
// of the other family, each in its canonical form. The primary family is that of the first node address, IPv4 if there
// is none. Strings that are not addresses are ignored.
func SortPodIPs(nodeIPs []net.IP, podIPs []string) []string {
	families := []utilnet.IPFamily{utilnet.IPv4, utilnet.IPv6}
	if len(nodeIPs) > 0 && utilnet.IPFamilyOf(nodeIPs[0]) != utilnet.IPv4 {
		families = []utilnet.IPFamily{utilnet.IPv6, utilnet.IPv4}
	}
	picked := make([]string, 0, len(families))
	for _, family := range families {
		if ip := firstOfFamily(podIPs, family); ip != nil {
			picked = append(picked, ip.String())
		}
	}
	return picked
}

func firstOfFamily(addresses []string, family utilnet.IPFamily) net.IP {
	for _, address := range addresses {
		if ip := utilnet.ParseIPSloppy(address); ip != nil && utilnet.IPFamilyOf(ip) == family {
			return ip
		}
	}
	return nil
}

// setPodIPs sets the addresses of the pod's sandbox.
func (g *generation) setPodIPs(out *v1.PodStatus) {
	for _, ip := range SortPodIPs(g.Network.NodeIPs, g.Runtime.IPs) {
		out.PodIPs = append(out.PodIPs, v1.PodIP{IP: ip})
	}
	if len(out.PodIPs) > 0 {
		out.PodIP = out.PodIPs[0].IP
	}
}

// setHostIPs sets the node's addresses. They are also the addresses of a pod in the host's network: its first address
// never changes once set, but a second one is added when the node becomes dual-stack (kubernetes/kubernetes#105320).
func (g *generation) setHostIPs(out *v1.PodStatus) {
	host := g.Network.HostIPs
	if len(host) == 0 {
		return
	}
	dualStack := len(host) == 2
	out.HostIP = host[0].String()
	out.HostIPs = []v1.HostIP{{IP: out.HostIP}}
	if dualStack {
		out.HostIPs = append(out.HostIPs, v1.HostIP{IP: host[1].String()})
	}
	if !g.Pod.Spec.HostNetwork {
		return
	}
	if out.PodIP == "" {
		out.PodIP = out.HostIP
		out.PodIPs = []v1.PodIP{{IP: out.HostIP}}
	}
	if dualStack && len(out.PodIPs) == 1 && utilnet.IPFamilyOfString(out.PodIPs[0].IP) != utilnet.IPFamilyOf(host[1]) {
		out.PodIPs = append(out.PodIPs, v1.PodIP{IP: host[1].String()})
	}
}
