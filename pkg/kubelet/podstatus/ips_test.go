package podstatus_test

import (
	"net"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

func ips(addresses ...string) []net.IP {
	var parsed []net.IP
	for _, a := range addresses {
		parsed = append(parsed, net.ParseIP(a))
	}
	return parsed
}

func TestSortPodIPs(t *testing.T) {
	for _, tt := range []struct {
		name       string
		node       []net.IP
		pod, wants []string
	}{
		{"none", nil, nil, []string{}},
		{"IPv4 first by default", nil, []string{"fd00::1", "10.0.0.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"IPv6 node", ips("fd00::9"), []string{"10.0.0.1", "fd00::1"}, []string{"fd00::1", "10.0.0.1"}},
		{
			"first of each family", ips("10.9.9.9"), []string{"10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"},
			[]string{"10.0.0.2", "fd00::2"},
		},
		{"canonical form", nil, []string{"FD00:0::1", "010.0.0.1"}, []string{"10.0.0.1", "fd00::1"}},
		{"not an address", nil, []string{"", "x", "fd00::1"}, []string{"fd00::1"}},
	} {
		if got := podstatus.SortPodIPs(tt.node, tt.pod); !slices.Equal(got, tt.wants) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.wants)
		}
	}
}

func TestHostNetworkAddresses(t *testing.T) {
	p := pod(container("a"))
	p.Spec.HostNetwork = true
	n := newSequence(t, p)
	if s := n.next(runtime()); s.HostIP != "" || s.PodIP != "" {
		t.Errorf("addresses before the node is registered: %q, %q", s.HostIP, s.PodIP)
	}
	n.in.Network.HostIPs = ips("10.0.0.1")
	s := n.next(runtime())
	if s.HostIP != "10.0.0.1" || s.PodIP != "10.0.0.1" || len(s.PodIPs) != 1 {
		t.Errorf("single stack: %+v", s)
	}
	n.in.Network.HostIPs = ips("10.0.0.1", "fd00::1")
	r := runtime()
	r.IPs = []string{"10.0.0.1"}
	s = n.next(r)
	if want := []v1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}; !slices.Equal(s.PodIPs, want) || len(s.HostIPs) != 2 {
		t.Errorf("dual stack: pod %v, host %v", s.PodIPs, s.HostIPs)
	}
}
