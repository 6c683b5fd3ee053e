package eviction

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// A soft eviction may leave a pod its own grace period, of which the API allows more than a time.Duration holds. That
// pod is not late.
func TestVeryLongGraceEndsInTheFuture(t *testing.T) {
	pod := snapshot.Pod{Facts: snapshot.NewFacts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, false)}
	l, now := newLedger(), time.Unix(1e9, 0)
	l.begin(&policy.Victim{Pod: &pod, GraceSeconds: math.MaxInt64}, 1, now)
	inFlight, _ := l.view()
	if end := inFlight[0].Deadline; !end.After(now) {
		t.Errorf("the grace period is over at %v, now is %v", end, now)
	}
}
