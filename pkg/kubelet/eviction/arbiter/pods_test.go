package arbiter

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestLevels: the annotation counts more than the label, and the label more than the priority class.
func TestLevels(t *testing.T) {
	configured := Levels{
		Label: "tier", LabelValues: map[string]string{"batch": ReclaimedCores, "node": SystemCores},
		PriorityClasses: map[string]string{"low": ReclaimedCores},
	}
	for _, tc := range []struct {
		annotation, label, class string
		byDefault, want          string
	}{
		{},
		{annotation: "shared_cores", label: "batch", class: "low", byDefault: "shared_cores", want: "shared_cores"},
		{label: "batch", want: ReclaimedCores},
		{label: "node", class: "low", want: SystemCores},
		{label: "other", class: "low", want: ReclaimedCores},
		{class: "low", want: ReclaimedCores},
		{class: "high"},
	} {
		pod := &v1.Pod{}
		if tc.annotation != "" {
			pod.Annotations = map[string]string{QoSLevelKey: tc.annotation}
		}
		if tc.label != "" {
			pod.Labels = map[string]string{"tier": tc.label, "": "batch"}
		}
		pod.Spec.PriorityClassName = tc.class
		if got := configured.Of(pod); got != tc.want {
			t.Errorf("%+v: level %q", tc, got)
		}
		if got := new(Levels).Of(pod); got != tc.byDefault {
			t.Errorf("%+v: level %q without configuration", tc, got)
		}
		want := NotExcluded
		if tc.want == SystemCores {
			want = SystemLevel
		}
		if got := (&Skip{Levels: configured}).Exclude(pod); got != want {
			t.Errorf("%+v: excluded for %q", tc, got)
		}
	}
}
