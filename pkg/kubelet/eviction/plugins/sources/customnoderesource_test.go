package sources

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

const reclaimed = "resource.katalyst.kubewharf.io/reclaimed_memory"

var gvr = node.GroupVersionKind.GroupVersion().WithResource("customnoderesources")

// api is an API server with one object, and with an error if that is set.
type api struct {
	object *unstructured.Unstructured
	err    error
	reads  int
}

func (a *api) client() *fake.FakeDynamicClient {
	c := fake.NewSimpleDynamicClient(runtime.NewScheme())
	c.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		a.reads++
		if a.err != nil || a.object == nil {
			return true, nil, a.err
		}
		return true, a.object, nil
	})
	return c
}

func object(amount any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
		"status": map[string]any{"resources": map[string]any{"allocatable": map[string]any{reclaimed: amount}}},
	}}
}

func TestAllocatable(t *testing.T) {
	resource := schema.GroupResource{Group: gvr.Group, Resource: gvr.Resource}
	away := errors.New("connection refused")
	clock := clocktesting.NewFakePassiveClock(time.Now())
	a := &api{object: object("3Gi")}
	r := NewCustomNodeResource(a.client(), gvr, "n", clock)
	empty := object("1")
	delete(empty.Object, "status")
	for i, tc := range []struct {
		after time.Duration
		do    func()
		want  string // empty for absent, "stale" if it is unknown
		reads int
	}{
		{0, func() {}, "3Gi", 1},
		{14 * time.Second, func() { a.object = object("2Gi") }, "3Gi", 1},
		{time.Second, func() {}, "2Gi", 2},
		{15 * time.Second, func() { a.err = away }, "2Gi", 3},
		{30 * time.Second, func() {}, "2Gi", 4},
		{15 * time.Second, func() {}, "2Gi", 5},
		{time.Second, func() {}, "stale", 5},
		{15 * time.Second, func() { a.err = nil; a.object = object("0") }, "0", 6},
		{15 * time.Second, func() { a.object = object([]any{"broken"}) }, "0", 7},
		{15 * time.Second, func() { a.object = empty }, "", 8},
		{15 * time.Second, func() { a.err = apierrors.NewNotFound(resource, "n") }, "", 9},
		{299 * time.Second, func() { a.err, a.object = nil, object("1") }, "", 9},
		{time.Second, func() {}, "1", 10},
		{15 * time.Second, func() { a.err = apierrors.NewForbidden(resource, "n", away) }, "", 11},
		{time.Hour, func() {}, "", 12},
	} {
		clock.SetTime(clock.Now().Add(tc.after))
		tc.do()
		list, err := r.Allocatable(context.Background())
		if a.reads != tc.reads || errors.Is(err, ErrStale) != (tc.want == "stale") {
			t.Fatalf("%d: %d readings, want %d; %v", i, a.reads, tc.reads, err)
		}
		q, known := list[reclaimed]
		if known != (tc.want != "" && tc.want != "stale") || (known && q.String() != tc.want) {
			t.Errorf("%d: %v, want %q", i, list, tc.want)
		}
	}
	// Whether there is one is unknown until the API server has said so.
	a = &api{err: away}
	r = NewCustomNodeResource(a.client(), gvr, "n", clock)
	if list, err := r.Allocatable(context.Background()); list != nil || !errors.Is(err, ErrStale) {
		t.Errorf("never read: %v, %v", list, err)
	}
	a.err = apierrors.NewNotFound(resource, "n")
	clock.SetTime(clock.Now().Add(15 * time.Second))
	if list, err := r.Allocatable(context.Background()); list != nil || err != nil {
		t.Errorf("there is none: %v, %v", list, err)
	}
	a.err = away
	clock.SetTime(clock.Now().Add(5 * time.Minute))
	if list, err := r.Allocatable(context.Background()); list != nil || err != nil {
		t.Errorf("there was none, and it cannot be read: %v, %v", list, err)
	}
	if list, err := NewCustomNodeResource(nil, gvr, "n",
		clock).Allocatable(context.Background()); list != nil || err != nil {
		t.Errorf("without an API server: %v, %v", list, err)
	}
}
