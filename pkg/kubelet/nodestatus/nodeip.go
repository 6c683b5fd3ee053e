package nodestatus

import (
	"errors"
	"fmt"
	"net"
)

// ValidateNodeIP returns an error if ip cannot be this node's address: it is not an address, or of a kind that cannot
// be reached from other nodes, or not an address of this machine.
func ValidateNodeIP(ip net.IP) error {
	if ip.To16() == nil {
		return errors.New("nodeIP must be a valid IP address")
	}
	unfit := []struct {
		is   bool
		kind string
	}{
		{ip.IsLoopback(), "loopback address"},
		{ip.IsMulticast(), "a multicast address"},
		{ip.IsLinkLocalUnicast(), "a link-local unicast address"},
		{ip.IsUnspecified(), "an all zeros address"},
	}
	for _, u := range unfit {
		if u.is {
			return fmt.Errorf("nodeIP can't be %s", u.kind)
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, addr := range addrs {
		if onInterface, ok := addr.(*net.IPNet); ok && onInterface.IP.Equal(ip) {
			return nil
		}
	}
	return fmt.Errorf("node IP: %q not found in the host's network interfaces", ip.String())
}
