package collect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

const (
	// readTimeout is the longest time for which records wait for disruption budgets.
	readTimeout = time.Second
	// budgetsKept is for how long the budgets of a namespace count, and for how long they are not read again if they
	// could not be read.
	budgetsKept = 30 * time.Second
	// forbiddenPause is for how long no budgets are read after the API server has refused it.
	forbiddenPause = 10 * time.Minute
	// maxNamespaces is how many namespaces are cached, and so how many are read within budgetsKept; maxReads how many
	// are read at a time for one question.
	maxNamespaces, maxReads = 64, 4
)

// budgets reads the disruption budgets of namespaces. It starts no goroutine that outlives a call.
type budgets struct {
	// client is nil if no budget can be read.
	client policyclient.PolicyV1Interface
	clock  clock.PassiveClock
	// timeout is readTimeout, or what a test sets before the first call.
	timeout time.Duration

	mu         sync.Mutex
	namespaces map[string]*namespace
	// resume is when budgets are read again after the API server has refused it; zero unless it has. logged is true from
	// then until they could be read.
	resume time.Time
	logged bool
}

// namespace are the disruption budgets of a namespace.
type namespace struct {
	name string
	// done is closed when the read has ended. What follows is set before.
	done chan struct{}
	// budgets are nil if they could not be read. until is when they are read again.
	budgets []records.SelectingBudget
	until   time.Time
}

func newBudgets(client policyclient.PolicyV1Interface, c clock.PassiveClock) *budgets {
	return &budgets{client: client, clock: c, timeout: readTimeout, namespaces: map[string]*namespace{}}
}

// namespacesOf returns the namespaces of pods, in order.
func namespacesOf(pods []*v1.Pod) []string {
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Namespace] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// of returns the budgets of namespaces, without those that are unknown. It waits at most readTimeout for those that are
// not cached.
func (b *budgets) of(ctx context.Context, names []string) map[string][]records.SelectingBudget {
	if b.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	wanted, unread := b.find(names)
	next := make(chan *namespace, len(unread))
	for _, n := range unread {
		next <- n
	}
	close(next)
	var reads sync.WaitGroup
	for range min(maxReads, len(unread)) {
		reads.Go(func() {
			for n := range next {
				b.read(ctx, n)
			}
		})
	}
	reads.Wait()
	known := map[string][]records.SelectingBudget{}
	for _, n := range wanted {
		select {
		case <-n.done:
			known[n.name] = n.budgets
		case <-ctx.Done():
		}
	}
	return known
}

// find returns the entries of namespaces, those that another call reads included, and which of them this call has to
// read. When as many namespaces as possible are cached, further ones are unknown until the entry of another expires.
func (b *budgets) find(names []string) (wanted, unread []*namespace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	maps.DeleteFunc(b.namespaces, func(_ string, n *namespace) bool { return n.expired(now) })
	for _, name := range names {
		n := b.namespaces[name]
		switch {
		case n != nil:
		case len(b.namespaces) >= maxNamespaces:
			continue
		default:
			n = &namespace{name: name, done: make(chan struct{})}
			b.namespaces[name] = n
			unread = append(unread, n)
		}
		wanted = append(wanted, n)
	}
	return wanted, unread
}

// expired reports whether the entry is to be read again. One that is being read is not.
func (n *namespace) expired(now time.Time) bool {
	select {
	case <-n.done:
		return !now.Before(n.until)
	default:
		return false
	}
}

// read reads the budgets of a namespace. If that was not tried, or is cancelled, the next call tries it.
func (b *budgets) read(ctx context.Context, n *namespace) {
	var list policyv1.PodDisruptionBudgetList
	tried, err := false, ctx.Err()
	if err == nil && !b.refused() {
		tried, err = true, b.list(ctx, n.name, &list)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(n.done)
	now := b.clock.Now()
	n.until = now.Add(budgetsKept)
	switch {
	case !tried || errors.Is(ctx.Err(), context.Canceled):
		delete(b.namespaces, n.name)
	case err == nil:
		n.budgets = records.SelectingBudgets(list.Items)
		b.logged = false
	case apierrors.IsForbidden(err):
		b.refusedLocked(ctx, now, err)
	default:
		klog.FromContext(ctx).V(2).Info("Eviction plugins: disruption budgets cannot be read", "namespace", n.name,
			"err", err)
	}
}

// list sends one request. resourceVersion 0 is answered from the cache of the API server.
func (b *budgets) list(ctx context.Context, name string, list *policyv1.PodDisruptionBudgetList) error {
	return b.client.RESTClient().Get().Namespace(name).Resource("poddisruptionbudgets").
		VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, scheme.ParameterCodec).
		MaxRetries(0).Do(ctx).Into(list)
}

// refused reports whether the API server has refused a read less than forbiddenPause ago.
func (b *budgets) refused() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.clock.Now().Before(b.resume)
}

func (b *budgets) refusedLocked(ctx context.Context, now time.Time, err error) {
	b.resume = now.Add(forbiddenPause)
	if !b.logged {
		klog.FromContext(ctx).Info("Eviction plugins: disruption budgets must not be read, plugins do not get them",
			"pause", forbiddenPause, "err", err)
	}
	b.logged = true
}
