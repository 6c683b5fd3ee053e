package podsync

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
)

// A container that ends again and again is started after backOffInitial, doubled up to backOffMax; with the gate
// ReduceDefaultCrashLoopBackOffDecay after the shorter ones (KEP-4603).
const (
	backOffInitial, backOffMax               = 10 * time.Second, 300 * time.Second
	backOffReducedInitial, backOffReducedMax = time.Second, 60 * time.Second
	// backOffReset is how long a container has to run until its back-off begins anew.
	backOffReset = 10 * time.Minute
)

// NewBackOff returns the crash loop back-off of containers. configured is the field
// crashLoopBackOff.maxContainerRestartPeriod of the KubeletConfiguration, which may be nil.
func NewBackOff(configured *metav1.Duration, f Features) *flowcontrol.Backoff {
	initial, most := backOffInitial, backOffMax
	if f.ReduceDefaultCrashLoopBackOffDecay {
		initial, most = backOffReducedInitial, backOffReducedMax
	}
	if f.KubeletCrashLoopBackOffMax && configured != nil {
		most = configured.Duration
		initial = min(initial, most)
	}
	backOff := flowcontrol.NewBackOff(initial, most)
	backOff.HasExpiredFunc = func(now, last time.Time, _ time.Duration) bool { return now.Sub(last) > backOffReset }
	return backOff
}
