package v1alpha1

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDefaultsAreValid(t *testing.T) {
	if errs := Validate(Default()); len(errs) > 0 {
		t.Errorf("the defaults are refused: %v", errs)
	}
}

func TestDefaultingKeepsValues(t *testing.T) {
	c := Default()
	c.Eviction.Settling = &metav1.Duration{}
	c.Protection.MaxProtectedPods = new(int32(0))
	c.Memory.Available = "wrong"
	before := c.DeepCopy()
	SetDefaults(c)
	if !reflect.DeepEqual(c, before) {
		t.Errorf("defaulting has changed %+v to %+v", before, c)
	}
}

func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := scheme.New(SchemeGroupVersion.WithKind(Kind))
	if err != nil {
		t.Fatal(err)
	}
	scheme.Default(c)
	want := Default()
	want.TypeMeta = metav1.TypeMeta{}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("defaulted to %+v, want %+v", c, want)
	}
}

func TestDeepCopyIsIndependent(t *testing.T) {
	c := Default()
	c.DryRun = []ThresholdReference{{Signal: "memory.available"}}
	c.Protection.Namespaces = []string{"a"}
	c.Plugins.Directories = []string{"/a"}
	e := &c.Plugins.Eviction
	e.Remote, e.InTree, e.DryRun = []string{"a"}, []string{"*"}, []string{"a"}
	e.SkipAnnotationKeys, e.SkipLabelKeys, e.SkipOwnerKinds = []string{"a"}, []string{"a"}, []string{"A"}
	e.KillerByQoSLevel = map[string]Killer{"shared_cores": PodWorker}
	r := &c.Plugins.Reporter
	r.Remote, r.InTree, r.Publish, r.Fields = []string{"a"}, []string{"*"}, []ReportedKind{ReportedNode}, []string{"-a"}
	r.Labels, r.NodePrefixes = map[string]string{"a": "b"}, []string{"a.b"}
	d, ok := c.DeepCopyObject().(*NodePressureConfiguration)
	if !ok || !reflect.DeepEqual(c, d) {
		t.Fatalf("a copy of %+v is %+v", c, d)
	}
	for _, p := range pointers(reflect.ValueOf(c)) {
		for _, q := range pointers(reflect.ValueOf(d)) {
			if p == q {
				t.Errorf("%v is shared", p)
			}
		}
	}
	if (*NodePressureConfiguration)(nil).DeepCopy() != nil {
		t.Error("a copy of nothing is something")
	}
}

// pointers lists the addresses in a value, those of lists and maps included.
func pointers(v reflect.Value) (list []uintptr) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() {
			return nil
		}
		list = append(list, v.Pointer())
		if v.Kind() == reflect.Pointer {
			list = append(list, pointers(v.Elem())...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			list = append(list, pointers(v.Field(i))...)
		}
	default: // holds no address
	}
	return list
}

// An error has the path of its field, its value and the allowed values.
func TestValidate(t *testing.T) {
	seconds := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	tests := []struct {
		change func(*NodePressureConfiguration)
		says   []string
	}{
		{func(c *NodePressureConfiguration) { c.MonitoringPeriod = seconds(time.Millisecond) },
			[]string{"monitoringPeriod", `"1ms"`, "must be from 1s to 5m0s"}},
		{func(c *NodePressureConfiguration) { c.Memory.Available = "Free" },
			[]string{"memory.available", `"Free"`, `"WorkingSet", "Reclaimable"`}},
		{func(c *NodePressureConfiguration) { c.Memory.WorstGrowthPerSecond = new(resource.MustParse("-1")) },
			[]string{"memory.worstGrowthPerSecond", `"-1"`, "must be from 16Mi to 1Ti"}},
		{func(c *NodePressureConfiguration) { c.Eviction.Patience = seconds(2 * time.Second) },
			[]string{"eviction.patience", `"2s"`, "must be at least killTime, which is 3s"}},
		{func(c *NodePressureConfiguration) { c.Eviction.LocalStorageLimits = "On" },
			[]string{"eviction.localStorageLimits", `"On"`, `"Enforce", "DryRun", "Off"`}},
		{func(c *NodePressureConfiguration) { c.Eviction.Fence = "On" },
			[]string{"eviction.fence", `"On"`, `"Auto", "Off"`}},
		{func(c *NodePressureConfiguration) { c.DryRun = []ThresholdReference{{Signal: "memory"}} },
			[]string{"dryRun[0].signal", `"memory"`, `"allocatableMemory.available"`}},
		{func(c *NodePressureConfiguration) { c.DryRun = []ThresholdReference{{Kind: Hard}} },
			[]string{"dryRun[0].signal: Required value", "pid.available"}},
		{func(c *NodePressureConfiguration) {
			c.DryRun = []ThresholdReference{{Signal: "pid.available", Kind: "hard"}}
		}, []string{"dryRun[0].kind", `"hard"`, `"Hard", "Soft"`}},
		{func(c *NodePressureConfiguration) {
			c.DryRun = []ThresholdReference{{Signal: "pid.available"}, {Signal: "pid.available"}}
		}, []string{"dryRun[1]", "Duplicate value", "pid.available"}},
		{func(c *NodePressureConfiguration) { c.Protection.Namespaces = []string{"a", "team-[a"} },
			[]string{"protection.namespaces[1]", `"team-[a"`, "* stands for any characters"}},
		{func(c *NodePressureConfiguration) { c.Protection.Namespaces = []string{""} },
			[]string{"protection.namespaces[0]", `""`}},
		{func(c *NodePressureConfiguration) { c.Protection.Namespaces = []string{"a*", "a*"} },
			[]string{"protection.namespaces[1]", "Duplicate value"}},
		{func(c *NodePressureConfiguration) { c.Protection.MaxProtectedPods = new(int32(-1)) },
			[]string{"protection.maxProtectedPods", "-1", "must be from 0 to 1000"}},
		{func(c *NodePressureConfiguration) { c.Protection.MaxDelay = seconds(time.Hour) },
			[]string{"protection.maxDelay", `"1h0m0s"`, "must be from 0s to 5m0s"}},
	}
	for _, tc := range tests {
		c := Default()
		tc.change(c)
		errs := Validate(c)
		if len(errs) != 1 {
			t.Errorf("%d errors, want one that says %v: %v", len(errs), tc.says, errs)
			continue
		}
		for _, want := range tc.says {
			if text := errs[0].Error(); !strings.Contains(text, want) {
				t.Errorf("%s does not say %s", text, want)
			}
		}
	}
}

func TestValidateReturnsAllErrors(t *testing.T) {
	c := Default()
	c.MonitoringPeriod = &metav1.Duration{}
	c.Memory.Available = "x"
	c.Protection.Namespaces = []string{"UPPER"}
	if errs := Validate(c); len(errs) != 3 {
		t.Errorf("%d errors, want 3: %v", len(errs), errs)
	}
}
