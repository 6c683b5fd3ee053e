package collect

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// maxOwners is how many owners of evicted pods the history has.
const maxOwners = 1000

// Config is what a collector works with.
type Config struct {
	// Client reads disruption budgets. It is nil where there is no API server: no pod has a budget then.
	Client policyclient.PolicyV1Interface
	// PodByUID returns a pod of this node, also one that is being stopped.
	PodByUID func(types.UID) (*v1.Pod, bool)
	// Clock is the wall clock.
	Clock clock.PassiveClock
}

// Collector makes eviction records. It is a sink of the eviction manager. It is safe for concurrent use.
type Collector struct {
	config  Config
	budgets *budgets

	mu      sync.Mutex
	history *records.History
}

var _ eviction.Sink = (*Collector)(nil)

// New returns a collector without evictions.
func New(c Config) *Collector {
	return &Collector{config: c, budgets: newBudgets(c.Client, c.Clock), history: records.NewHistory(maxOwners)}
}

// Records returns the records of pods, one for each. It may read disruption budgets from the API server, for at most a
// second, or until ctx is done; those that cannot be read in this time are unknown.
func (c *Collector) Records(ctx context.Context, pods []*v1.Pod) map[types.UID]records.Record {
	budgets := c.budgets.of(ctx, namespacesOf(pods))
	now := c.config.Clock.Now()
	list := make(map[types.UID]records.Record, len(pods))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods {
		list[pod.UID] = records.Record{
			UID: pod.UID, Buckets: c.history.Buckets(records.OwnerOf(pod), now),
			Budget: records.BudgetFor(labels.Set(pod.Labels), budgets[pod.Namespace]),
		}
	}
	return list
}

// Name implements eviction.Sink.
func (c *Collector) Name() string { return "eviction-records" }

// NeedsRound returns false: records are about results.
func (c *Collector) NeedsRound(*eviction.Round) bool { return false }

// Round implements eviction.Sink.
func (c *Collector) Round(context.Context, *eviction.Round) {}

// Result counts an eviction that has begun, whatever its cause.
func (c *Collector) Result(_ context.Context, r *eviction.Result) {
	if r.Kind != eviction.KillAccepted || r.Answer != podkill.Begun || r.Victim == nil {
		return
	}
	// Without the object the owner is unknown. The pod is gone then, so that nobody is asked for its own record.
	pod, ok := c.config.PodByUID(r.Victim.Pod.UID)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history.Add(records.OwnerOf(pod), c.config.Clock.Now())
}
