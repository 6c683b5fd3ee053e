package eviction

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Manager watches the node and evicts pods. Run is called once; every other method may be called at any time, also
// before Run, from any goroutine.
type Manager struct {
	config Config
	// clock makes all times.
	clock  agentClock
	ledger *ledger
	// wake makes the loop look at once; it holds one token so that bursts become one look.
	wake chan struct{}
	// nudge makes the gate look at memory counters at once.
	nudge chan struct{}
	// asked makes the loop look soon, since a pod waits for the end of pressure.
	asked chan struct{}
	// work counts the goroutines beside the loop.
	work sync.WaitGroup
	// conditions is what was decided last, for readers.
	conditions atomic.Pointer[[]policy.Condition]
	// restored waits for the loop to take it over.
	restored atomic.Pointer[[]v1.NodeConditionType]
	// options are those that hold; newOptions wait for the loop to take them over.
	options, newOptions atomic.Pointer[Options]
	// last is the last round; nil before the first.
	last     atomic.Pointer[Round]
	loop     loopState
	sinks    *sinks
	reclaims reclaimer
}

// loopState belongs to the goroutine of Run.
type loopState struct {
	rules policy.Rules
	// configured are the thresholds from which those of the rules are derived; underived says that this is to be done.
	configured []policy.Threshold
	underived  bool

	gate    *gate
	kernel  *notifications
	state   policy.State
	layout  snapshot.Layout
	builder builder
	notices noticer
	// trigger is what triggers the next round; nudged says that the kernel wants the counters to be looked at.
	trigger   Trigger
	nudged    bool
	collector collector
	// collecting is what is under way to get figures.
	collecting collecting
	// last are the newest figures that were collected, whole or in part.
	last figures
	// moment is that of the last snapshot.
	moment
	// next is when to look again, again that something happened while a collection was under way.
	next  time.Time
	again bool
}

// New checks the configuration and makes a manager. Nothing is started.
func New(c Config) (*Manager, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Features == nil {
		c.Features = featuresNow()
	}
	m := &Manager{config: c, clock: newAgentClock(c.Clock), ledger: newLedger()}
	m.wake, m.nudge, m.asked = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	m.loop.builder = builder{podLevel: c.Features.PodLevelResources, requested: c.TerminationRequested}
	m.loop.collector = collector{
		summary: c.Summary, parts: c.Parts, pods: c.PodFigures, memory: c.Memory, images: c.PodImages, clock: &m.clock,
		results: make(chan figures, 1), besides: make(chan figures, 1),
		layout: layouter{info: c.DiskInfo, splitOK: c.Features.SeparateDiskGC},
	}
	m.loop.collecting.progress.now = m.clock.now
	m.loop.collecting.atMost = max(collectAtMost, c.RuntimeTimeout)
	m.loop.trigger = TriggerTimer
	m.loop.gate = newGate(c.Memory, m.clock.now)
	if c.KernelMemcgNotification && m.loop.gate != nil {
		m.loop.kernel = &notifications{open: memcgSource(c.PodCgroupRoot, m.Nudge)}
	}
	m.sinks = newSinks(append([]Sink{
		&eventSink{recorder: c.Recorder, node: c.NodeRef,
			period: func() time.Duration { return m.options.Load().MonitoringPeriod }},
		logSink{}, newMetricsSink(),
	}, c.Sinks...)...)
	if c.Options == nil {
		c.Options = new(DefaultOptions())
	}
	m.adopt(*c.Options)
	m.conditions.Store(new([]policy.Condition))
	return m, nil
}

// Restore takes over the pressure conditions that the Node has when the agent starts, so that a restart under pressure
// neither lifts the taints nor lets pods in. It should be called before pods are admitted. When the manager has looked
// at the node already, the conditions still hold for their transition period. Where nothing is watched nothing is taken
// over: it would never end.
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

// Wake makes the manager look at the node at once.
func (m *Manager) Wake() { signal(m.wake) }

// Nudge makes the manager look at memory counters at once, which is cheap; it is for sources that may fire often.
func (m *Manager) Nudge() { signal(m.nudge) }

// signal leaves one token, so that bursts become one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
