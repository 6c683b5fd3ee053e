package nodestatus

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/version"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

func TestRegisterCreatesNode(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w, func(c *Config) {
		c.Registration.Labels = map[string]string{"mine": "1", v1.LabelOSStable: "plan9"}
		c.Registration.Taints = []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
		c.Registration.ProviderID = "cloud://x"
		c.Registration.ExternalCloudProvider = true
	})
	if err := u.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := s.current()
	wantLabels := map[string]string{
		"mine": "1", v1.LabelHostname: testNode, v1.LabelOSStable: "plan9", "beta.kubernetes.io/os": "linux",
		v1.LabelArchStable: "amd64", "beta.kubernetes.io/arch": "amd64",
	}
	if diff := cmp.Diff(wantLabels, node.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantTaints := []v1.Taint{
		{Key: "t", Effect: v1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule},
	}
	if diff := cmp.Diff(wantTaints, node.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if got := node.Spec.ProviderID; got != "cloud://x" {
		t.Errorf("provider ID %q", got)
	}
	if got := node.Annotations[volumeutil.ControllerManagedAttachAnnotation]; got != "true" {
		t.Errorf("attach/detach annotation %q", got)
	}
	if got := node.Status.NodeInfo.KubeletVersion; got != version.Get().GitVersion {
		t.Errorf("kubelet version %q", got)
	}
	if w.attempts != 1 || w.registered != 1 {
		t.Errorf("attempts %d, new nodes %d", w.attempts, w.registered)
	}
}

// TestRegisterKeepsConditionOrder: Ready must be the last one.
func TestRegisterKeepsConditionOrder(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	if err := newUpdater(t, s, w).register(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []v1.NodeConditionType
	for _, c := range s.current().Status.Conditions {
		got = append(got, c.Type)
	}
	want := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestRegisterOnlyOnce(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	for range 2 {
		if err := u.register(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if w.attempts != 1 {
		t.Errorf("%d attempts", w.attempts)
	}
}

func TestRegisterNotOurs(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w, func(c *Config) { c.Registration.Register = false })
	if err := u.register(t.Context()); err != nil || s.current() != nil || w.attempts != 0 {
		t.Errorf("error %v, node %v, attempts %d", err, s.current(), w.attempts)
	}
}

func TestRegisterWhenCreateFails(t *testing.T) {
	existing := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode}}
	forbidden := apierrors.NewForbidden(v1.Resource("nodes"), testNode, errors.New("no"))
	tests := []struct {
		name            string
		existing        *v1.Node
		create          error
		get             error
		getOnExistsOnly bool
		ok              bool
	}{
		{name: "exists", existing: existing, ok: true},
		{name: "forbidden, exists", existing: existing, create: forbidden, ok: true},
		{name: "forbidden, not read", existing: existing, create: forbidden, getOnExistsOnly: true},
		{name: "forbidden, does not exist", create: forbidden},
		{name: "exists, cannot be read", existing: existing, get: forbidden},
		{name: "server error", existing: existing, create: apierrors.NewInternalError(errors.New("oops"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, w := newAPIServer(tt.existing), newWorld()
			if tt.create != nil {
				s.fail("create", tt.create)
			}
			if tt.get != nil {
				s.fail("get", tt.get)
			}
			u := newUpdater(t, s, w, func(c *Config) { c.Registration.GetOnExistsOnly = tt.getOnExistsOnly })
			if err := u.register(t.Context()); (err == nil) != tt.ok || u.report.registered != tt.ok {
				t.Errorf("error %v, registered %v", err, u.report.registered)
			}
			if w.registered != 0 {
				t.Error("counted as new")
			}
		})
	}
}

func TestRegisterReconcilesExistingNode(t *testing.T) {
	existing := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        testNode,
			Labels:      map[string]string{v1.LabelHostname: "old", "theirs": "x", v1.LabelTopologyZone: "z"},
			Annotations: map[string]string{volumeutil.ControllerManagedAttachAnnotation: "true", "theirs": "y"},
		},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{"example.com/gpu": resource.MustParse("4"), "hugepages-1Gi": resource.MustParse("2Gi")},
		},
	}
	s, w := newAPIServer(existing), newWorld()
	w.zeroExtended = true
	u := newUpdater(t, s, w, func(c *Config) { c.Registration.ControllerAttachDetach = false })
	if err := u.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := s.current()
	if node.Labels[v1.LabelHostname] != testNode || node.Labels["theirs"] != "x" ||
		node.Labels[v1.LabelTopologyZone] != "z" {
		t.Errorf("labels %v", node.Labels)
	}
	if diff := cmp.Diff(map[string]string{"theirs": "y"}, node.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if q := node.Status.Capacity["example.com/gpu"]; q.Value() != 0 {
		t.Errorf("extended resource %v", q)
	}
	if _, found := node.Status.Capacity["hugepages-1Gi"]; found {
		t.Error("page size that the machine does not have is still there")
	}
	if len(s.sent()) != 1 {
		t.Errorf("patches %v", s.sent())
	}
}

func TestRegisterWithoutDifferenceSendsNothing(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	if err := newUpdater(t, s, w).register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := newUpdater(t, s, w).register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.sent()) != 0 {
		t.Errorf("patches %v", s.sent())
	}
}

func TestRegistrationBacksOffAndEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		oops := apierrors.NewInternalError(errors.New("oops"))
		s.fail("create", oops, oops, oops, oops, oops, oops, oops, oops, oops)
		u := newUpdater(t, s, w)
		start := time.Now()
		if !u.registerUntilDone(t.Context()) {
			t.Fatal("not registered")
		}
		// 0.1 + 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6.4 + 7 + 7
		if took := time.Since(start); took != 26700*time.Millisecond {
			t.Errorf("took %v", took)
		}
		s, w = newAPIServer(nil), newWorld()
		s.fail("create", oops, oops, oops, oops)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if newUpdater(t, s, w).registerUntilDone(ctx) {
			t.Error("registered")
		}
	})
}
