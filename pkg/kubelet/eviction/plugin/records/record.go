package records

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Record is the eviction record of a pod. It must not be modified.
type Record struct {
	// UID is that of the pod.
	UID types.UID
	// Buckets are the evictions of pods of the same owner on this node, the oldest first. Hours without an eviction have
	// none.
	Buckets []Bucket
	// Budget is the disruption budget that counts for the pod, nil if there is none or if that is unknown.
	Budget *Budget
}

// BucketDuration is the time that a bucket covers.
const BucketDuration = time.Hour

// Bucket is the number of evictions in an hour.
type Bucket struct {
	// Start is when the hour begins, on the wall clock and in UTC.
	Start time.Time
	Count int64
}

// Budget has the values of a disruption budget, from its status.
type Budget struct {
	DisruptionsAllowed, CurrentHealthy, DesiredHealthy, ExpectedPods int32
}

// OwnerOf returns the UID by which evictions of a pod are counted: that of its controller, or its own if it has none.
func OwnerOf(pod *v1.Pod) types.UID {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil && controller.UID != "" {
		return controller.UID
	}
	return pod.UID
}
