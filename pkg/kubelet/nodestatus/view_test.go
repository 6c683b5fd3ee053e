package nodestatus

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func TestViewBeforeUpdater(t *testing.T) {
	v := NewView(ViewConfig{Name: testNode})
	if _, err := v.Node(t.Context()); !errors.Is(err, errNoInitialNode) {
		t.Errorf("error %v", err)
	}
	if _, err := v.HostIPs(t.Context()); !errors.Is(err, errNoInitialNode) {
		t.Errorf("error %v", err)
	}
	if got := v.LastObservedAddresses(t.Context()); got != nil {
		t.Errorf("addresses %v", got)
	}
}

func TestViewBeforeRegistration(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	if _, err := u.Lookup(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("error %v", err)
	}
	for name, get := range map[string]func() (*v1.Node, error){
		"Node":       func() (*v1.Node, error) { return u.Node(t.Context()) },
		"CachedNode": func() (*v1.Node, error) { return u.CachedNode(t.Context(), true) },
	} {
		node, err := get()
		if err != nil || node.Name != testNode || node.Status.Allocatable.Pods().Value() != 110 {
			t.Errorf("%s: %v, error %v", name, node, err)
		}
	}
	if ips, err := u.HostIPs(t.Context()); err != nil || len(ips) != 1 || ips[0].String() != testNode {
		t.Errorf("host IPs %v, error %v", ips, err)
	}
	if len(w.events) != 0 {
		t.Errorf("events about a Node that is not published: %v", w.events)
	}
}

func TestViewStandalone(t *testing.T) {
	u := newUpdater(t, newAPIServer(nil), newWorld(), func(c *Config) {
		c.View, c.Client, c.Heartbeat = NewView(ViewConfig{Name: testNode}), nil, nil
	})
	for _, useCache := range []bool{true, false} {
		if node, err := u.CachedNode(t.Context(), useCache); err != nil || node.Name != testNode {
			t.Errorf("cache %v: %v, error %v", useCache, node, err)
		}
	}
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: testNode}, {Type: v1.NodeHostName, Address: testNode}}
	if diff := cmp.Diff(want, u.LastObservedAddresses(t.Context())); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestCachedNodeIsTheNewestSeen(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	ctx := t.Context()
	u.SyncNow(ctx)
	version := func(useCache bool) string {
		t.Helper()
		node, err := u.CachedNode(ctx, useCache)
		if err != nil {
			t.Fatal(err)
		}
		return node.ResourceVersion
	}
	first := version(true)
	s.lagging = true
	s.edit(func(n *v1.Node) { n.Labels["x"] = "y" })
	if got := version(true); got != first {
		t.Errorf("asked the API server: %s", got)
	}
	fresh := version(false)
	if fresh == first {
		t.Error("did not ask the API server")
	}
	if got := version(true); got != fresh {
		t.Errorf("went back from %s to %s", fresh, got)
	}
	s.edit(func(n *v1.Node) { n.Labels["x"] = "z" })
	s.deliver()
	if got := version(true); got == fresh {
		t.Error("does not follow the lister")
	}
	s.listed = nil
	if got := version(true); got == first {
		t.Error("forgot the node that it has seen")
	}
	s.fail("get", errors.New("no"))
	if _, err := u.CachedNode(ctx, false); err == nil {
		t.Error("no error")
	}
}

func TestNewerNodeTrustsListerIfVersionsCannotBeCompared(t *testing.T) {
	listed, seen := &v1.Node{}, &v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "opaque"}}
	if got := newerNode(t.Context(), listed, seen); got != listed {
		t.Errorf("got %v", got)
	}
}

func TestHostIPsOfNodeWithoutAddress(t *testing.T) {
	s := newAPIServer(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode}})
	if _, err := newUpdater(t, s, newWorld()).HostIPs(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestNewLister(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	lister, synced, factories := NewLister(ctx, client, "a")
	for _, factory := range factories {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
	}
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), synced) {
		t.Fatal("not synced")
	}
	if _, err := lister.Get("a"); err != nil {
		t.Error(err)
	}
	lister, synced, factories = NewLister(ctx, nil, "a")
	if _, err := lister.Get("a"); !synced() || !apierrors.IsNotFound(err) || len(factories) > 0 {
		t.Errorf("synced %v, error %v, informers %v", synced(), err, factories)
	}
}
