package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

// Rules are encoded by package encoding/json, without loss: what Decide does with rules that were written and read
// again is the same as with the original. The names in the JSON stay as they are when fields of the program are
// renamed.

// rulesLimits are far above what rules can come to.
var rulesLimits = strictjson.Limits{
	Bytes: 4 << 20, String: 1 << 10, Depth: 5, Elements: 4 * int(snapshot.NumSignals), Total: 1 << 13,
	Fields: map[string]int{"namespaces": 1 << 12},
}

// DecodeRules decodes rules that may come from anywhere. An error names the field that is wrong, its value, and what is
// allowed.
func DecodeRules(data []byte) (Rules, error) {
	var r Rules
	if err := strictjson.Unmarshal(data, &r, rulesLimits); err != nil {
		return Rules{}, fmt.Errorf("rules: %w", err)
	}
	if err := r.validate(); err != nil {
		return Rules{}, fmt.Errorf("rules: %w", err)
	}
	return r, nil
}

func (r *Rules) validate() error {
	for i := range r.Thresholds {
		t := &r.Thresholds[i]
		same := func(o Threshold) bool { return o.ID() == t.ID() && o.DryRun == t.DryRun }
		switch j := slices.IndexFunc(r.Thresholds[:i], same); {
		case t.Signal == snapshot.NoSignal:
			return fmt.Errorf("thresholds[%d].signal: none: must be a signal", i)
		case j >= 0:
			return fmt.Errorf("thresholds[%d]: signal %s, soft %t, dryRun %t: must be unique; thresholds[%d] has them", i,
				t.Signal, t.Soft, t.DryRun, j)
		case t.GracePeriod < 0:
			return notNegative(fmt.Sprintf("thresholds[%d].gracePeriodNanoseconds", i), int64(t.GracePeriod))
		}
	}
	for i, pattern := range r.Protection.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("protection.namespaces[%d]: %q: must be a name, or a pattern of package path", i, pattern)
		}
	}
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"pressureTransitionPeriodNanoseconds", int64(r.PressureTransitionPeriod)},
		{"timing.periodNanoseconds", int64(r.Timing.Period)},
		{"timing.killTimeNanoseconds", int64(r.Timing.KillTime)},
		{"timing.settlingNanoseconds", int64(r.Timing.Settling)},
		{"timing.patienceNanoseconds", int64(r.Timing.Patience)},
		{"protection.maxPods", int64(r.Protection.MaxPods)},
		{"protection.maxMemoryBytes", int64(r.Protection.MaxMemory)},
		{"protection.maxDelayNanoseconds", int64(r.Protection.MaxDelay)},
	} {
		if field.value < 0 {
			return notNegative(field.name, field.value)
		}
	}
	return nil
}

func notNegative(field string, value int64) error {
	return fmt.Errorf("%s: %d: must not be negative", field, value)
}

// encodedRules has the fields of Rules, so that one converts to the other.
type encodedRules struct {
	Thresholds               []Threshold   `json:"thresholds,omitzero"`
	PressureTransitionPeriod time.Duration `json:"pressureTransitionPeriodNanoseconds"`
	MaxPodGracePeriodSeconds int64         `json:"maxPodGracePeriodSeconds"`
	LocalStorageLimits       bool          `json:"localStorageLimits"`
	LocalStorageDryRun       bool          `json:"localStorageDryRun,omitzero"`
	ReportMemoryGrowth       bool          `json:"reportMemoryGrowth,omitzero"`
	ReportOutlook            bool          `json:"reportOutlook,omitzero"`
	Fence                    bool          `json:"fence,omitzero"`
	Timing                   Timing        `json:"timing"`
	Protection               Protection    `json:"protection,omitzero"`

	// dryRun is set by split only.
	dryRun bool
}

// MarshalJSON implements json.Marshaler.
func (r Rules) MarshalJSON() ([]byte, error) { return json.Marshal(encodedRules(r)) }

// UnmarshalJSON implements json.Unmarshaler. DecodeRules validates the rules besides.
func (r *Rules) UnmarshalJSON(data []byte) error { return strictjson.Decode(data, (*encodedRules)(r)) }

// encodedTiming has the fields of Timing.
type encodedTiming struct {
	Period   time.Duration `json:"periodNanoseconds"`
	KillTime time.Duration `json:"killTimeNanoseconds"`
	Settling time.Duration `json:"settlingNanoseconds"`
	Patience time.Duration `json:"patienceNanoseconds"`
}

// MarshalJSON implements json.Marshaler.
func (t Timing) MarshalJSON() ([]byte, error) { return json.Marshal(encodedTiming(t)) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Timing) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedTiming)(t))
}

// encodedProtection has the fields of Protection.
type encodedProtection struct {
	Namespaces []string       `json:"namespaces,omitzero"`
	MaxPods    int            `json:"maxPods"`
	MaxMemory  snapshot.Bytes `json:"maxMemoryBytes"`
	MaxDelay   time.Duration  `json:"maxDelayNanoseconds"`
}

// MarshalJSON implements json.Marshaler.
func (p Protection) MarshalJSON() ([]byte, error) { return json.Marshal(encodedProtection(p)) }

// UnmarshalJSON implements json.Unmarshaler.
func (p *Protection) UnmarshalJSON(data []byte) error {
	return strictjson.Decode(data, (*encodedProtection)(p))
}

type encodedThreshold struct {
	Signal      snapshot.Signal `json:"signal"`
	Value       encodedAmount   `json:"value"`
	Soft        bool            `json:"soft,omitzero"`
	GracePeriod time.Duration   `json:"gracePeriodNanoseconds,omitzero"`
	MinReclaim  *encodedAmount  `json:"minReclaim,omitempty"`
	DryRun      bool            `json:"dryRun,omitzero"`
}

// MarshalJSON implements json.Marshaler.
func (t Threshold) MarshalJSON() ([]byte, error) {
	e := encodedThreshold{
		Signal: t.Signal, Value: encodeAmount(t.Value), Soft: t.Soft, GracePeriod: t.GracePeriod, DryRun: t.DryRun,
	}
	if t.MinReclaim != nil {
		e.MinReclaim = new(encodeAmount(*t.MinReclaim))
	}
	return json.Marshal(e)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Threshold) UnmarshalJSON(data []byte) error {
	var e encodedThreshold
	err := strictjson.Decode(data, &e)
	*t = Threshold{
		Signal: e.Signal, Value: e.Value.decode(), Soft: e.Soft, GracePeriod: e.GracePeriod, DryRun: e.DryRun,
	}
	if e.MinReclaim != nil {
		t.MinReclaim = new(e.MinReclaim.decode())
	}
	return err
}

// encodedAmount is a quantity, or a fraction of the capacity.
type encodedAmount struct {
	Quantity *encodedQuantity `json:"quantity,omitempty"`
	Fraction *float32         `json:"fraction,omitempty"`
}

// amountFields are the fields of encodedAmount without its methods.
type amountFields encodedAmount

// UnmarshalJSON implements json.Unmarshaler.
func (a *encodedAmount) UnmarshalJSON(data []byte) error {
	if err := strictjson.Decode(data, (*amountFields)(a)); err != nil {
		return err
	}
	switch {
	case (a.Quantity == nil) == (a.Fraction == nil):
		return errors.New("must have either quantity or fraction")
	case a.Fraction != nil && *a.Fraction < 0:
		return fmt.Errorf("fraction: %v: must not be negative", *a.Fraction)
	}
	return nil
}

func encodeAmount(v evictionapi.ThresholdValue) encodedAmount {
	if v.Quantity != nil {
		return encodedAmount{Quantity: &encodedQuantity{quantity: *v.Quantity}}
	}
	return encodedAmount{Fraction: &v.Percentage}
}

func (a *encodedAmount) decode() (v evictionapi.ThresholdValue) {
	if a.Quantity != nil {
		v.Quantity = &a.Quantity.quantity
	}
	if a.Fraction != nil {
		v.Percentage = *a.Fraction
	}
	return v
}

// encodedQuantity is a quantity as text, in its canonical form.
type encodedQuantity struct{ quantity resource.Quantity }

// MarshalText implements encoding.TextMarshaler.
func (q encodedQuantity) MarshalText() ([]byte, error) { return []byte(q.quantity.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It refuses exponents of more than two digits before the quantity
// is parsed: resource.ParseQuantity computes with all digits of 1e-999999999.
func (q *encodedQuantity) UnmarshalText(text []byte) error {
	parsed, err := resource.Quantity{}, error(nil)
	large := largeExponent.Match(text)
	if !large {
		parsed, err = resource.ParseQuantity(string(text))
	}
	if large || err != nil || parsed.Sign() < 0 {
		return fmt.Errorf("%.64q: must be a quantity that is not negative, such as 100Mi", text)
	}
	q.quantity = parsed
	return nil
}

var largeExponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)
