package housekeeping

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// remover records the removed containers.
type remover struct{ ids []string }

func (r *remover) DeleteContainer(_ context.Context, id kubecontainer.ContainerID) error {
	r.ids = append(r.ids, id.ID)
	return errTest
}

func exitedContainer(id, name string, created int64) *kubecontainer.Status {
	return &kubecontainer.Status{
		ID: kubecontainer.ContainerID{ID: id}, Name: name, CreatedAt: time.Unix(created, 0),
		State: kubecontainer.ContainerStateExited,
	}
}

func TestContainerDeletor(t *testing.T) {
	running := exitedContainer("a4", "a", 40)
	running.State = kubecontainer.ContainerStateRunning
	status := &kubecontainer.PodStatus{ContainerStatuses: []*kubecontainer.Status{
		exitedContainer("a1", "a", 10), exitedContainer("b1", "b", 15), running, exitedContainer("a3", "a", 30),
		exitedContainer("a2", "a", 20), exitedContainer("b2", "b", 25),
	}}
	for _, tc := range []struct {
		name   string
		keep   int
		exited string
		all    bool
		want   []string
	}{
		{name: "same name", keep: 1, exited: "a3", want: []string{"a2", "a1"}},
		{name: "a running container", keep: 1, exited: "a4", want: []string{"a2", "a1"}},
		{name: "one to remove", keep: 2, exited: "a3", want: []string{"a1"}},
		{name: "none to remove", keep: 3, exited: "a3"},
		{name: "any name", keep: 3, want: []string{"b1", "a1"}},
		{name: "unknown", keep: 0, exited: "zz"},
		{name: "all", keep: 3, exited: "a3", all: true, want: []string{"a3", "b2", "a2", "b1", "a1"}},
		{name: "all although unknown", keep: 1, exited: "zz", all: true, want: []string{"a3", "b2", "a2", "b1", "a1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &remover{}
				d := NewContainerDeletor(r, tc.keep)
				ctx, cancel := context.WithCancel(context.Background())
				go d.Run(ctx)
				d.Delete(ctx, status, tc.exited, tc.all)
				synctest.Wait()
				cancel()
				synctest.Wait()
				if !slices.Equal(r.ids, tc.want) {
					t.Errorf("got %q, want %q", r.ids, tc.want)
				}
			})
		})
	}
}

func TestContainerDeletorOrderIsTotal(t *testing.T) {
	status := &kubecontainer.PodStatus{
		ContainerStatuses: []*kubecontainer.Status{
			exitedContainer("c", "x", 1), exitedContainer("a", "x", 1), exitedContainer("b", "x", 1),
		},
	}
	for range 5 {
		got := deadContainers(status)
		if got[0].ID.ID != "a" || got[1].ID.ID != "b" || got[2].ID.ID != "c" {
			t.Fatalf("got %v", got)
		}
		slices.Reverse(status.ContainerStatuses)
	}
}

func TestContainerDeletorDoesNotBlock(t *testing.T) {
	d := NewContainerDeletor(&remover{}, 0)
	status := &kubecontainer.PodStatus{}
	for i := range 3 * deletorQueue {
		status.ContainerStatuses = append(status.ContainerStatuses, exitedContainer(fmt.Sprint(i), "x", int64(i)))
	}
	d.Delete(context.Background(), status, "", true)
	if len(d.queue) != deletorQueue {
		t.Errorf("%d are queued", len(d.queue))
	}
}

// cache and content are the fakes for DeadContainers.
type cache struct{ err error }

func (c cache) Get(types.UID) (*kubecontainer.PodStatus, error) {
	return &kubecontainer.PodStatus{
			ContainerStatuses: []*kubecontainer.Status{exitedContainer("a1", "a", 1), exitedContainer("a2", "a", 2)},
		},
		c.err
}

type content bool

func (c content) ShouldPodContentBeRemoved(types.UID) bool { return bool(c) }

func TestDeadContainers(t *testing.T) {
	for _, tc := range []struct {
		cache   cache
		content content
		want    int
	}{{content: false, want: 1}, {content: true, want: 2}, {cache: cache{errTest}, content: true, want: 0}} {
		d := NewContainerDeletor(&remover{}, 1)
		DeadContainers{Statuses: tc.cache, Lifecycle: tc.content, Deletor: d}.Exited(context.Background(), "uid", "a2")
		if len(d.queue) != tc.want {
			t.Errorf("%+v: %d queued", tc, len(d.queue))
		}
	}
}

func TestRemoveAll(t *testing.T) {
	for _, tc := range []struct {
		cache cache
		want  int
	}{{cache{}, 2}, {cache{errTest}, 0}} {
		d := NewContainerDeletor(&remover{}, 1)
		DeadContainers{Statuses: tc.cache, Lifecycle: content(false), Deletor: d}.RemoveAll(context.Background(), "uid")
		if len(d.queue) != tc.want {
			t.Errorf("%+v: %d queued", tc, len(d.queue))
		}
	}
}
