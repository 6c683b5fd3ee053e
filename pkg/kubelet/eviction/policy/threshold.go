package policy

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Threshold is an eviction threshold. It is met while less than Value of the signal is available.
type Threshold struct {
	Signal snapshot.Signal
	// Value is a quantity, or a fraction of the signal's capacity.
	Value evictionapi.ThresholdValue
	// Soft thresholds act only after GracePeriod, and victims have a grace period; hard ones act at once. A threshold with
	// Soft and a zero GracePeriod is still a soft one.
	Soft        bool
	GracePeriod time.Duration
	// MinReclaim is how much more than Value must be available until a threshold that was active counts as resolved.
	MinReclaim *evictionapi.ThresholdValue
	// DryRun: the threshold only reports what it would do.
	DryRun bool
}

// ThresholdID identifies a threshold: a signal has at most one of each kind.
type ThresholdID struct {
	Signal snapshot.Signal
	Soft   bool
}

// ID returns the identifier of the threshold.
func (t *Threshold) ID() ThresholdID { return ThresholdID{Signal: t.Signal, Soft: t.Soft} }

// Hard reports whether it is a hard threshold.
func (t *Threshold) Hard() bool { return !t.Soft }

// Quantity returns Value in the unit of the signal, formatted as it was configured.
func (t *Threshold) Quantity(capacity int64) *resource.Quantity {
	return evictionapi.GetThresholdQuantity(t.Value, resource.NewQuantity(capacity, t.Signal.Format()))
}

// floor returns the amount below which the threshold is met.
func (t *Threshold) floor(capacity int64) int64 { return amountOf(&t.Value, capacity) }

// target returns the amount from which on the threshold is resolved once it was active.
func (t *Threshold) target(capacity int64) int64 {
	if t.MinReclaim == nil {
		return t.floor(capacity)
	}
	return saturatingAdd(t.floor(capacity), amountOf(t.MinReclaim, capacity))
}

// left returns how much more than its target is available; it is negative below that.
func (t *Threshold) left(o snapshot.Observation) int64 {
	return saturatingAdd(o.Available, -t.target(o.Capacity))
}

// met reports whether the observation, which must be known, is below the threshold. A threshold that was active and is
// not yet resolved is met up to its target.
func (t *Threshold) met(o snapshot.Observation, unresolved bool) bool {
	if unresolved {
		return o.Available < t.target(o.Capacity)
	}
	return o.Available < t.floor(o.Capacity)
}

func amountOf(v *evictionapi.ThresholdValue, capacity int64) int64 {
	if v.Quantity != nil {
		return v.Quantity.Value()
	}
	return int64(float64(capacity) * float64(v.Percentage))
}

func saturatingAdd(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	if b < 0 && a < math.MinInt64-b {
		return math.MinInt64
	}
	return a + b
}
