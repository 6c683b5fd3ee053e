package eviction

import (
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// modelSampling is how often the sources of the stats summary measure: cAdvisor and the runtime do it about every ten
// seconds.
const modelSampling = 10 * time.Second

// modelNode must be used inside a synctest bubble. Everything in it is guarded by mu and moves on in advance.
type modelNode struct {
	mu        sync.Mutex
	began, at time.Time
	// step is by how much the wall clock has been stepped, steppedAt when. Monotonic time, timers and time-outs are not
	// concerned.
	step      time.Duration
	steppedAt []time.Time
	settings  modelSettings

	capacity, podsLimit float64
	system, systemRate  float64
	systemRates         []modelRate
	pods                []*modelPod
	byUID               map[types.UID]*modelPod
	images              *modelDisk
	// firstFull and fullAt are when memory was first and last used up, so that nothing could grow.
	firstFull, fullAt time.Time

	script   []modelEvent
	sources  modelSources
	orders   []*modelOrder
	requests modelRequests
	agent    modelStop
	reclaims []modelReclaim
	checks   modelChecks
	trace    []string
	// replayed: the decisions of the run are replayed.
	replayed bool

	// readerFailed is when reading the counters last failed, summaryTook the longest time that a summary has taken.
	readerFailed time.Time
	summaryTook  time.Duration
}

// modelSettings are thresholds in bytes; zero where there is none.
type modelSettings struct {
	hard, minReclaim, soft, images float64
	allocatable                    bool
	config                         settings.ThresholdConfig
	timing                         policy.Timing
}

// modelEvent is something that happens to the node at a time.
type modelEvent struct {
	at   time.Time
	what string
	do   func(n *modelNode)
}

// modelRate is a rate that holds from a time on, in bytes per second.
type modelRate struct {
	at   time.Time
	rate float64
}

// modelDisk is the image file system. Writable layers of pods lie there too.
type modelDisk struct {
	capacity, other, otherRate float64
	// reclaimable is the part of other that the node can give back, which takes a while.
	reclaimable float64
	takes       time.Duration
	// measures: a reclaim reports what is missing at its end.
	measures bool
}

// modelKind is a kind of memory.
type modelKind uint8

const (
	anonymous modelKind = iota
	memoryVolume
	pageCache
)

type modelPod struct {
	object   *v1.Pod
	critical bool
	request  float64
	// memory by kind; that of kind grows. Anonymous memory comes back when the containers have ended, that of volumes
	// when those are gone, page cache cacheLingers after the containers, or never if that is negative.
	memory       [3]float64
	kind         modelKind
	rates        []modelRate
	cacheLingers time.Duration

	disk, diskRate, limit float64
	sampled               modelSample

	// takes is how long the runtime needs at least to stop the pod, ending how much of a grace period the pod uses
	// beyond that, volumes how long its volumes hang. failures is how many requests to stop it fail, each after fails.
	takes, ending, volumes time.Duration
	failures               int
	fails                  time.Duration

	// dying: the pod is being stopped, until diesAt, by eviction or since it was deleted.
	dying, deleted   bool
	deadline, diesAt time.Time
	// deletedAt is when it was deleted, deletedUntil when the grace period of that ends.
	deletedAt, deletedUntil time.Time
	// deadAt is when its containers have ended, foundAt when the manager first found that, cacheAt when its page cache is
	// dropped, cleanAt when its volumes are gone.
	deadAt, foundAt, cacheAt, cleanAt time.Time
	clean                             bool
	// cacheLeft is the page cache that it had at its end.
	cacheLeft float64
	orders    []*modelOrder
	failedAt  time.Time
	// changed is closed when its end comes sooner than it seemed.
	changed chan struct{}
}

func (p *modelPod) name() string     { return p.object.Name }
func (p *modelPod) uses() float64    { return p.certain() + p.memory[pageCache] }
func (p *modelPod) certain() float64 { return p.memory[anonymous] + p.memory[memoryVolume] }

// seems is the most that the pod may seem to give back. Nobody can see whether the page cache of a pod whose cgroup is
// gone was dropped.
func (p *modelPod) seems() float64 { return p.certain() + max(p.memory[pageCache], p.cacheLeft) }

func (p *modelPod) exceeds() bool { return p.uses() > p.request }
func (p *modelPod) dead() bool    { return !p.deadAt.IsZero() }
func (p *modelPod) here() bool    { return !p.dead() }

func (p *modelPod) rate() float64 {
	if len(p.rates) == 0 || p.dead() {
		return 0
	}
	return p.rates[len(p.rates)-1].rate
}

// lastOrder is the newest request of the manager to stop the pod, nil before the first.
func (p *modelPod) lastOrder() *modelOrder {
	if len(p.orders) == 0 {
		return nil
	}
	return p.orders[len(p.orders)-1]
}

// podGrows sets the rate of a pod from now on.
func (n *modelNode) podGrows(p *modelPod, rate float64) {
	if !p.dead() {
		p.rates = append(p.rates, modelRate{n.at, rate})
	}
}

// systemGrows sets the rate of the system from now on. A negative one gives memory back.
func (n *modelNode) systemGrows(rate float64) {
	n.systemRate = rate
	n.systemRates = append(n.systemRates, modelRate{n.at, rate})
}

func (n *modelNode) sinceStart(t time.Time) time.Duration { return t.Sub(n.began) }

// log adds a line to the story of the run.
func (n *modelNode) log(f string, a ...any) {
	text := fmt.Sprintf(f, a...)
	if text += fmt.Sprintf("  [available %s", mib(n.available())); n.settings.allocatable {
		text += ", to pods " + mib(n.podsLimit-n.podsUsed())
	}
	if n.images != nil {
		text += ", image disk " + mib(n.imagesFree())
	}
	n.trace = append(n.trace, fmt.Sprintf("%9.3fs  %s]", n.sinceStart(n.at).Seconds(), text))
}

func mib(amount float64) string { return fmt.Sprintf("%.1fMi", amount/float64(mi)) }

func (n *modelNode) podsUsed() (sum float64) {
	for _, p := range n.pods {
		sum += p.uses()
	}
	return sum
}

func (n *modelNode) available() float64 { return n.capacity - n.system - n.podsUsed() }

func (n *modelNode) imagesFree() float64 {
	free := n.images.capacity - n.images.other
	for _, p := range n.pods {
		free -= p.disk
	}
	return free
}

// locked brings the state to the present and keeps it until unlock is called.
func (n *modelNode) locked() (unlock func()) {
	n.mu.Lock()
	n.advance()
	return n.mu.Unlock
}

// advance brings the state to the present instant, one change after the other. The caller holds the lock.
func (n *modelNode) advance() {
	now := time.Now()
	for n.at.Before(now) {
		if next := n.next(now); n.at.Before(next) {
			n.judge()
			n.flow(next.Sub(n.at))
			n.at = next
			n.remember(n.at, false)
		}
		n.change()
	}
}

// next is when the next change is due, now at the latest.
func (n *modelNode) next(now time.Time) time.Time {
	next := now
	sooner := func(t time.Time) {
		if t.After(n.at) && t.Before(next) {
			next = t
		}
	}
	if len(n.script) > 0 {
		sooner(n.script[0].at)
	}
	sooner(n.sources.next)
	for _, p := range n.pods {
		if p.dying && !p.dead() {
			sooner(p.diesAt)
		}
		sooner(p.cleanAt)
		sooner(p.cacheAt)
	}
	return next
}

// flow lets everything grow for a time in which no rate changes. What does not fit is not used.
func (n *modelNode) flow(d time.Duration) {
	seconds := d.Seconds()
	growth := max(0, n.systemRate)
	for _, p := range n.pods {
		growth += p.rate()
	}
	share := 1.0
	if free := n.available() + max(0, -n.systemRate)*seconds; growth*seconds > free {
		share = max(0, free/(growth*seconds))
		n.fullAt = n.at.Add(d)
		if n.firstFull.IsZero() {
			n.firstFull = n.at
		}
	}
	n.system = max(0, n.system+max(n.systemRate*share, min(n.systemRate, 0))*seconds)
	for _, p := range n.pods {
		p.memory[p.kind] += p.rate() * seconds * share
		p.disk += p.diskRate * seconds
	}
	if n.images != nil {
		n.images.other += n.images.otherRate * seconds
		n.images.other += min(0, n.imagesFree())
	}
}

// change does what is due at this instant.
func (n *modelNode) change() {
	for len(n.script) > 0 && !n.script[0].at.After(n.at) {
		e := n.script[0]
		n.script = n.script[1:]
		n.suddenly(func() { e.do(n) })
		n.log("%s", e.what)
	}
	for _, p := range n.pods {
		n.changePod(p)
	}
	if !n.sources.next.After(n.at) {
		n.sample()
	}
}

// suddenly does something that changes amounts or rates other than evenly.
func (n *modelNode) suddenly(do func()) {
	n.remember(n.at, true)
	do()
	n.remember(n.at, true)
}

func (n *modelNode) changePod(p *modelPod) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(n.at) }
	if p.dying && !p.dead() && due(p.diesAt) {
		n.suddenly(func() { n.end(p) })
		n.log("the containers of %s have ended", p.name())
	}
	if p.dead() && !p.clean && due(p.cleanAt) {
		n.suddenly(func() {
			p.clean, p.memory[memoryVolume], p.disk = true, 0, 0
			n.checks.memoryEpoch++
			n.checks.diskEpoch++
		})
		n.log("%s is cleaned up", p.name())
	}
	if p.memory[pageCache] > 0 && due(p.cacheAt) {
		n.suddenly(func() { p.memory[pageCache] = 0 })
		n.log("the page cache of %s is dropped", p.name())
	}
}

// end is the end of a pod's containers.
func (n *modelNode) end(p *modelPod) {
	n.podGrows(p, 0)
	p.memory[anonymous], p.diskRate = 0, 0
	p.deadAt, p.cleanAt = n.at, n.at.Add(p.volumes)
	p.cacheLeft = p.memory[pageCache]
	if p.cacheLingers >= 0 {
		p.cacheAt = n.at.Add(p.cacheLingers)
	}
	n.checks.memoryEpoch++
}

// deletes deletes a pod through the API.
func (n *modelNode) deletes(p *modelPod, grace time.Duration) {
	if p.dead() || p.dying {
		return
	}
	p.deleted, p.deletedAt, p.deletedUntil = true, n.at, n.at.Add(grace)
	n.stop(p, grace)
	p.object = p.object.DeepCopy()
	p.object.DeletionTimestamp = new(metav1.NewTime(stepped(n.at.Add(grace), n.step).Round(0)))
	p.object.DeletionGracePeriodSeconds = new(int64(grace / time.Second))
}

// stop begins to stop a pod, or leaves it less time.
func (n *modelNode) stop(p *modelPod, grace time.Duration) {
	if diesAt := n.at.Add(p.takes + min(p.ending, grace)); !p.dying || diesAt.Before(p.diesAt) {
		p.diesAt = diesAt
	}
	if deadline := n.at.Add(grace); !p.dying || deadline.Before(p.deadline) {
		p.deadline = deadline
	}
	p.dying = true
	close(p.changed)
	p.changed = make(chan struct{})
}

// begin makes the node ready to run.
func (n *modelNode) begin() {
	slices.SortStableFunc(n.script, func(a, b modelEvent) int { return a.at.Compare(b.at) })
	n.remember(n.at, true)
	n.sample()
	n.change()
}
