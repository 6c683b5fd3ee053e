package containerspec

import (
	"net"

	utilnet "k8s.io/utils/net"
)

// sortPodIPs returns at most one address per family, that of the node's primary family first, in canonical spelling.
// Addresses that do not parse are dropped.
func sortPodIPs(nodeIPs []net.IP, podIPs []string) []string {
	primaryIsV6 := len(nodeIPs) > 0 && utilnet.IsIPv6(nodeIPs[0])
	var primary, secondary string
	for _, text := range podIPs {
		ip := utilnet.ParseIPSloppy(text)
		if ip == nil {
			continue
		}
		slot := &secondary
		if utilnet.IsIPv6(ip) == primaryIsV6 {
			slot = &primary
		}
		if *slot == "" {
			*slot = ip.String()
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
