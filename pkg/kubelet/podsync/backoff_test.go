package podsync

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The pauses of a crash loop follow gates and configuration as stock's do (KEP-4603).
func TestNewBackOff(t *testing.T) {
	tests := []struct {
		reduced, configurable bool
		configured            time.Duration
		first, most           time.Duration
	}{
		{false, false, time.Second, 10 * time.Second, 300 * time.Second},
		{true, false, 0, time.Second, 60 * time.Second},
		{false, true, 0, 10 * time.Second, 300 * time.Second},
		{false, true, 40 * time.Second, 10 * time.Second, 40 * time.Second},
		{false, true, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{true, true, 90 * time.Second, time.Second, 90 * time.Second},
	}
	for _, tc := range tests {
		var configured *metav1.Duration
		if tc.configured > 0 {
			configured = &metav1.Duration{Duration: tc.configured}
		}
		backOff := NewBackOff(configured, Features{
			ReduceDefaultCrashLoopBackOffDecay: tc.reduced, KubeletCrashLoopBackOffMax: tc.configurable,
		})
		now := time.Unix(1_000_000, 0)
		backOff.Next("pod", now)
		if got := backOff.Get("pod"); got != tc.first {
			t.Errorf("%+v: first pause %v", tc, got)
		}
		for i := range 20 {
			backOff.Next("pod", now.Add(time.Duration(i)*time.Second))
		}
		if got := backOff.Get("pod"); got != tc.most {
			t.Errorf("%+v: longest pause %v", tc, got)
		}
		for idle, want := range map[time.Duration]bool{10 * time.Minute: false, 10*time.Minute + 1: true} {
			if got := backOff.HasExpiredFunc(now.Add(idle), now, 0); got != want {
				t.Errorf("%+v: begins anew after %v: %t", tc, idle, got)
			}
		}
	}
}
