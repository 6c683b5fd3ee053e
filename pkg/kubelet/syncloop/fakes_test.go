package syncloop

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// noResizes is an allocation manager for tests without resizes. All other methods panic.
type noResizes struct{ allocation.Manager }

func (noResizes) RemovePod(types.UID) {}

// list is a list that a test and the loop share.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *list[T]) add(items ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, items...)
}

// take returns and removes all items.
func (l *list[T]) take() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.items
	l.items = nil
	return out
}
