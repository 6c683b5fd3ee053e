package generator_test

import (
	"context"
	"net"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus/generator"
)

// The event is sent when the family of the node's address changes, and only then.
func TestHostAddressOfOtherFamily(t *testing.T) {
	tests := []struct {
		before, now string
		event       string
	}{
		{"10.0.0.1", "fd00::1",
			"Warning HostIPsIPFamilyMismatch Kubelet detected an IPv4 node IP (10.0.0.1), but the cloud provider selected " +
				"an IPv6 node IP (fd00::1); pass an explicit `--node-ip` to kubelet to fix this."},
		{"10.0.0.1", "10.0.0.2", ""},
		{"fd00::1", "fd00::1", ""},
		{"", "fd00::1", ""},
	}
	for _, tc := range tests {
		statuses, recorder := &fakeStatuses{}, record.NewFakeRecorder(1)
		g := generator.New(generator.Config{
			Statuses: statuses, Resizes: statuses, Reasons: podstatus.NewReasonCache(), Recorder: recorder,
			HostIPs: func(context.Context) ([]net.IP, error) { return []net.IP{net.ParseIP(tc.now)}, nil },
		})
		g.Generate(silentContext(), &v1.Pod{Status: v1.PodStatus{HostIP: tc.before}}, nil, false)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if got != tc.event {
			t.Errorf("from %q to %q: %q, want %q", tc.before, tc.now, got, tc.event)
		}
	}
}
