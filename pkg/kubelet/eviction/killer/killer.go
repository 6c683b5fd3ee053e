package killer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// maxCalls is the number of calls to the API server that may be under way at a time.
const maxCalls = 10

// Config is what a Killer needs. All fields are required.
type Config struct {
	Client kubernetes.Interface
	// Requests returns the evictions that plugins request now. It must return at once.
	Requests func() []snapshot.Request
	// Changed is called when the result of Blocked has changed, when an attempt has ended, and when another one may begin
	// after it. It must return at once. No lock is held.
	Changed func()
	Clock   clock.WithDelayedExecution
}

// Killer evicts pods through the API server. Its methods are safe for concurrent use.
type Killer struct {
	config Config
	// calls has a token for each call that is under way.
	calls chan struct{}
	// work counts the attempts. To deliver its ending, for which the eviction manager waits, is the last that one does.
	work sync.WaitGroup

	mu      sync.Mutex
	records map[key]record
}

var _ eviction.APIKiller = (*Killer)(nil)

// key identifies an attempt: at most one of a killer is under way for a pod.
type key struct {
	uid    types.UID
	killer snapshot.Killer
}

// record is what is known of an attempt, for some time after its end as well.
type record struct {
	// underWay is false from the end of the attempt on. Then the pod counts as submitted until the time held: the API
	// server has asked for a pause, or what it has accepted is not visible to the agent yet.
	underWay bool
	held     time.Time
	// blocked: the last call was not accepted.
	blocked bool
}

var errUnderWay = errors.New("another attempt of this killer is under way, or has ended just now")

// New returns a Killer. It makes no call before Evict.
func New(config Config) (*Killer, error) {
	if config.Client == nil || config.Requests == nil || config.Changed == nil || config.Clock == nil {
		return nil, errors.New("killer of pods through the API server: Client, Requests, Changed and Clock are required")
	}
	registerMetrics()
	return &Killer{config: config, calls: make(chan struct{}, maxCalls), records: map[key]record{}}, nil
}

// Evict implements eviction.APIKiller.
func (k *Killer) Evict(ctx context.Context, r eviction.APIKill) <-chan eviction.APIEnding {
	endings := make(chan eviction.APIEnding, 1)
	if !k.begin(key{r.Pod.UID, r.Killer}) {
		endings <- eviction.APIEnding{Outcome: eviction.APIWithdrawn, Err: errUnderWay}
		return endings
	}
	k.work.Go(func() {
		a := attempt{Killer: k, request: r, key: key{r.Pod.UID, r.Killer}}
		ending := a.run(ctx)
		count(r.Killer, string(ending.Outcome))
		// The pod still counts as submitted when the ending is delivered, so that nothing evicts it once more before the
		// manager has recorded it.
		held := a.heldUntil(ending.Outcome)
		k.set(a.key, record{held: held, blocked: a.blockedAfter(ending.Outcome)})
		if ending.Outcome == eviction.APIAccepted {
			r.Accepted()
		}
		k.config.Changed()
		// The eviction manager serves a request that is still made only when something wakes it.
		k.config.Clock.AfterFunc(held.Sub(k.config.Clock.Now()), k.config.Changed)
		endings <- ending
	})
	return endings
}

// begin records the beginning of an attempt. It returns false if the pod counts as submitted.
func (k *Killer) begin(id key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.config.Clock.Now()
	maps.DeleteFunc(k.records, func(_ key, r record) bool { return !r.submitted(now) })
	if _, exists := k.records[id]; exists {
		return false
	}
	k.records[id] = record{underWay: true}
	return true
}

func (r record) submitted(now time.Time) bool { return r.underWay || now.Before(r.held) }

func (k *Killer) set(id key, r record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[id] = r
}

// Submitted reports whether the API server is being asked to evict a pod by this killer, or has been until a short
// time ago: then the request is not to be served once more. It is always false for the pod workers.
func (k *Killer) Submitted(uid types.UID, killer snapshot.Killer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records[key{uid, killer}].submitted(k.config.Clock.Now())
}

// Mark returns the requests with Submitted set. It leaves the list as it is and copies it only if there is anything to
// set.
func (k *Killer) Mark(requests []snapshot.Request) []snapshot.Request {
	marked := requests
	for i := range requests {
		if !k.Submitted(requests[i].UID, requests[i].Killer) {
			continue
		}
		if &marked[0] == &requests[0] {
			marked = slices.Clone(requests)
		}
		marked[i].Submitted = true
	}
	return marked
}

// Blocked returns the pods whose eviction the API server has not accepted and that wait for the next call, in the
// order of UIDs.
func (k *Killer) Blocked() []types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.config.Clock.Now()
	var list []types.UID
	for id, r := range k.records {
		if r.blocked && r.submitted(now) {
			list = append(list, id.uid)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
