package reporter

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

func TestOptionsFrom(t *testing.T) {
	c := v1alpha1.Default()
	for _, name := range append(v1alpha1.InTreeReporterPlugins(), "a", "*") {
		if o := OptionsFrom(c); o.Remote(name) || o.InTree(name) {
			t.Errorf("%s is enabled by default", name)
		}
	}
	r := &c.Plugins.Reporter
	r.Remote, r.InTree = []string{"*", "-b"}, []string{"pressure"}
	r.Period = &metav1.Duration{Duration: time.Second}
	r.CallTimeout = &metav1.Duration{Duration: 2 * time.Second}
	r.StopGracePeriod = &metav1.Duration{Duration: 3 * time.Second}
	o := OptionsFrom(c)
	if !o.Remote("a") || o.Remote("b") || !o.InTree("pressure") || o.InTree("a") {
		t.Error("the lists of plugins select others")
	}
	if o.Period != time.Second || o.CallTimeout != 2*time.Second || o.StopGracePeriod != 3*time.Second {
		t.Errorf("%+v", o)
	}
}

func TestMergeOptionsFrom(t *testing.T) {
	c := v1alpha1.Default()
	r := &c.Plugins.Reporter
	r.Fields, r.NodePrefixes = []string{"-status.topologyZone", "-spec.taints"}, []string{"example.com"}
	want := merge.Options{
		LeaveOut:       []string{"spec.taints", "status.topologyZone"},
		NodePrefixes:   []string{"example.com"},
		PluginPrefixes: map[string][]string{"pressure": {"pressure.plimsoll.dev"}},
	}
	if diff := cmp.Diff(want, MergeOptionsFrom(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The configuration and the merge have the same fields that can be left out.
func TestFieldsOfConfigurationAreThoseOfMerge(t *testing.T) {
	_, err := merge.ParseFields([]string{""})
	want := `fields[0]: "": must be - and one of `
	for i, path := range v1alpha1.ReportedFields() {
		if i > 0 {
			want += ", "
		}
		want += path
	}
	if err == nil || err.Error() != want {
		t.Errorf("the merge says %v, want %s", err, want)
	}
}
