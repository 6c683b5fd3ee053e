package eviction

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Manager monitors the node and evicts pods. Run is called once; every other method may be called at any time, also
// before Run, from any goroutine.
type Manager struct {
	config Config
	// clock is the source of all times.
	clock  agentClock
	ledger *ledger
	// attempts are the evictions that the API server is being asked for.
	attempts apiAttempts
	// wake makes the loop synchronize at once. It has room for one token, so that a burst causes one round.
	wake chan struct{}
	// nudge makes the memory watcher read memory counters at once.
	nudge chan struct{}
	// asked makes the loop synchronize soon, since a pod waits for the end of pressure.
	asked chan struct{}
	// alarm is that of the loop, which rings after something was sent to it; nil before it runs.
	alarm atomic.Pointer[Alarm]
	// work counts the other goroutines of the manager.
	work sync.WaitGroup
	// conditions are those of the last decision, for readers.
	conditions atomic.Pointer[[]policy.Condition]
	// restored are conditions of the Node that the loop has not taken over yet.
	restored atomic.Pointer[[]v1.NodeConditionType]
	// options are those in effect, newOptions those that the loop has not taken over yet.
	options, newOptions atomic.Pointer[settings.Options]
	// last is the last round; nil before the first.
	last     atomic.Pointer[Round]
	loop     loopState
	sinks    *sinks
	reclaims reclaimer
	// fenced are the pods with a fence; left is what the last round found available.
	fenced fencedPods
	left   struct{ memory, pids atomic.Int64 }
	// waiting are the victims that get a fence if they begin to grow. Only the goroutine of Run uses it.
	waiting map[types.UID]*fencing
	// setting are the fences that the present round has begun to set, likewise.
	setting []*fencing
}

// loopState belongs to the goroutine of Run.
type loopState struct {
	rules policy.Rules
	// frozen is a copy of the rules, which rounds refer to; nil if they have changed since.
	frozen *policy.Rules
	// configured are the thresholds from which those of the rules are derived; underived is true when that is to be done.
	configured []policy.Threshold
	underived  bool

	watcher *memorywatch.Watcher
	kernel  kernelNotifications
	// state is that after the last decision.
	state   policy.State
	layout  snapshot.Layout
	builder builder
	notices noticer
	ended   endedPods
	// trigger is the cause of the next round; nudged is true when a notification causes the next read of the counters.
	trigger Trigger
	nudged  bool
	// collecting is the state of the collections under way.
	collecting collecting
	// collected receives the result of a complete collection, collectedLocal that of one without the container runtime.
	collected, collectedLocal chan stats
	// last are the newest stats that were collected, whole or in part.
	last stats
	// allPods: the last snapshot has every pod.
	allPods bool
	// counting is how memory was counted in the last snapshot.
	counting snapshot.Counting
	// moment is that of the last snapshot.
	moment
	// next is when the next round is due, again is true when an event came while a collection was under way.
	next  time.Time
	again bool
	// prepared is the pod for which a fence was prepared last, at preparedAt.
	prepared   types.UID
	preparedAt time.Time
	// roundWaits is true if the last collection has ended, and its round waits for a read of the counters; reread is true
	// if memory was read again since.
	roundWaits, reread bool
	// thirdReadAt is when memory was last read for the third time.
	thirdReadAt time.Time
}

// New validates the configuration and returns a manager, which does nothing before Run.
func New(c Config) (*Manager, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m := &Manager{config: c, clock: newAgentClock(c.Clock), ledger: newLedger(), waiting: map[types.UID]*fencing{}}
	m.wake, m.nudge, m.asked = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	m.loop.builder = builder{podLevel: c.Features.PodLevelResources, requested: c.TerminationRequested,
		deadline: m.terminationDeadline}
	m.loop.collected, m.loop.collectedLocal = make(chan stats, 1), make(chan stats, 1)
	m.loop.last.Signals = snapshot.Unobserved()
	m.loop.collecting.progress.now = m.clock.now
	m.loop.collecting.atMost = max(collectAtMost, c.RuntimeTimeout)
	m.loop.trigger = TriggerTimer
	m.loop.watcher = memorywatch.New(c.Memory, m.clock.now)
	if c.KernelMemcgNotification && m.loop.watcher != nil {
		m.loop.kernel = c.kernelNotifications(m.Nudge)
	}
	m.sinks = newSinks(append([]Sink{
		&eventSink{recorder: c.Recorder, node: c.NodeRef,
			period: func() time.Duration { return m.options.Load().MonitoringPeriod }},
		logSink{}, newMetricsSink(),
	}, c.Sinks...)...)
	if c.Options == nil {
		c.Options = new(settings.DefaultOptions())
	}
	m.adopt(*c.Options)
	m.conditions.Store(new([]policy.Condition))
	return m, nil
}

// Restore takes over the pressure conditions that the Node has when the agent starts, so that a restart under pressure
// neither lifts the taints nor admits pods. It should be called before pods are admitted. When the manager has decided
// already, the conditions still hold for their transition period. Without thresholds nothing is taken over: a condition
// would never end.
func (m *Manager) Restore(conditions []v1.NodeCondition) {
	if !m.hasWork() {
		return
	}
	var held []v1.NodeConditionType
	published := slices.Clone(*m.conditions.Load())
	for _, t := range policy.ConditionTypes {
		i := slices.IndexFunc(conditions, func(c v1.NodeCondition) bool {
			return c.Type == t && c.Status == v1.ConditionTrue
		})
		if i < 0 {
			continue
		}
		held = append(held, t)
		if !isTrue(published, t) {
			published = slices.DeleteFunc(published, func(c policy.Condition) bool { return c.Type == t })
			published = append(published, policy.Condition{Type: t, True: true, Restored: true})
		}
	}
	if len(held) == 0 {
		return
	}
	m.restored.Store(&held)
	m.conditions.Store(&published)
	m.Wake()
}

// Wake makes the manager collect stats and decide at once.
func (m *Manager) Wake() {
	signal(m.wake)
	m.ring()
}

// Nudge makes the manager read memory counters at once, which is cheap; it is for sources that may fire often.
func (m *Manager) Nudge() {
	signal(m.nudge)
	m.ring()
}

// signal adds a token unless there is one already, so that a burst becomes one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
