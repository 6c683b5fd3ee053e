package syncloop

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

// forgetful is an allocation manager for tests in which nothing is resized; whatever else is called panics.
type forgetful struct{ allocation.Manager }

func (forgetful) RemovePod(types.UID) {}

// list is shared by a test and the loop that it watches.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *list[T]) add(items ...T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, items...)
}

// take returns and forgets what was added so far.
func (l *list[T]) take() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.items
	l.items = nil
	return out
}
