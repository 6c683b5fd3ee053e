package nodeshutdown

import (
	"slices"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

// The feature gates determine which fields of the configuration are used, as in stock.
func TestPeriods(t *testing.T) {
	legacy := func(c *kubeletconfig.KubeletConfiguration) {
		c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration = 30*time.Second, 10*time.Second
	}
	byPriority := func(c *kubeletconfig.KubeletConfiguration) {
		c.ShutdownGracePeriodByPodPriority = []kubeletconfig.ShutdownGracePeriodByPodPriority{
			{Priority: 7, ShutdownGracePeriodSeconds: 9},
		}
	}
	both := func(c *kubeletconfig.KubeletConfiguration) { legacy(c); byPriority(c) }
	legacyPeriods, ownPeriods := plan.Legacy(30*time.Second, 10*time.Second), []plan.Period{{Priority: 7, Seconds: 9}}
	for _, tc := range []struct {
		name     string
		change   func(*kubeletconfig.KubeletConfiguration)
		features Features
		want     []plan.Period
	}{
		{"nothing", func(*kubeletconfig.KubeletConfiguration) {}, Features{Graceful: true, ByPriority: true}, nil},
		{"legacy", legacy, Features{Graceful: true, ByPriority: true}, legacyPeriods},
		{"by priority", byPriority, Features{Graceful: true, ByPriority: true}, ownPeriods},
		{"by priority, without its gate", both, Features{Graceful: true}, legacyPeriods},
		{"without any gate", both, Features{}, nil},
	} {
		var c kubeletconfig.KubeletConfiguration
		tc.change(&c)
		if got := Periods(&c, tc.features); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
