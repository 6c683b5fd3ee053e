package eviction

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// shown is the value of a metric, or the number of observations of a histogram; zero when it is not there.
func shown(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if strings.Join(have, ",") != strings.Join(labels, ",") {
				continue
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// Before anything is evicted, the counters of evictions are there.
func TestEvictionsAreCountedFromZero(t *testing.T) {
	_ = legacyregistry.Register(metrics.Evictions)
	metrics.Evictions.Reset()
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.LocalStorageCapacityIsolation = true
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) { wait(time.Second) })
	})
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		if f.GetName() == "kubelet_evictions" {
			for _, m := range f.GetMetric() {
				names = append(names, m.GetLabel()[0].GetValue())
			}
		}
	}
	slices.Sort(names)
	expect(t, "counters", names, []string{"emptydirfs.limit", "ephemeralcontainerfs.limit", "ephemeralpodfs.limit",
		"memory.available", "plugin"})
}

func TestMetricsOfAnEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 10*gi)
		n.available(500 * mi)
		n.killTakes, n.uncleaned["hog"] = 2*time.Second, true
		before := map[string]float64{}
		delta := func(name string, labels ...string) float64 {
			key := name + strings.Join(labels, ",")
			now := shown(t, name, labels...)
			d := now - before[key]
			before[key] = now
			return d
		}
		read := func() []float64 {
			return []float64{
				delta("plimsoll_eviction_decisions_total", "Evict"),
				delta("plimsoll_eviction_reaction_seconds", "memory.available"),
				delta("plimsoll_eviction_released_bytes_total", "memory"),
				shown(t, "plimsoll_eviction_pending_release_bytes", "memory"),
			}
		}
		read()
		rounds := shown(t, "plimsoll_eviction_rounds_total", string(TriggerEvent))
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(10 * time.Second)
			expect(t, "evicted, not cleaned up", read(), []float64{1, 1, 0, float64(10 * gi)})
			n.mu.Lock()
			n.uncleaned["hog"] = false
			n.mu.Unlock()
			wait(10 * time.Second)
			expect(t, "cleaned up", read(), []float64{0, 0, float64(10 * gi), 0})
			expect(t, "rounds because of events", shown(t, "plimsoll_eviction_rounds_total", string(TriggerEvent))-rounds >= 2,
				true)
			quiet := shown(t, "plimsoll_eviction_decisions_total", outcomeNone)
			timer := shown(t, "plimsoll_eviction_rounds_total", string(TriggerTimer))
			wait(time.Minute)
			expect(t, "quiet decisions in a minute", shown(t, "plimsoll_eviction_decisions_total", outcomeNone)-quiet, 6)
			expect(t, "rounds by the timer in a minute", shown(t, "plimsoll_eviction_rounds_total", string(TriggerTimer))-timer,
				6)
		})
	})
}

func TestRoundsAreCountedByTheirTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("leak", gi)
		n.available(12 * gi)
		c := n.config(t, hard("100Mi"))
		c.Memory = &kernel{node: n}
		n.uncleaned["leak"] = true
		counters, kernel := shown(t, "plimsoll_eviction_rounds_total", string(TriggerCounters)),
			shown(t, "plimsoll_eviction_rounds_total", string(TriggerKernel))
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			n.available(50 * mi)
			m.Nudge()
			wait(time.Millisecond)
			expect(t, "rounds because of the kernel",
				shown(t, "plimsoll_eviction_rounds_total", string(TriggerKernel))-kernel, 1)
			expect(t, "rounds because of the counters",
				shown(t, "plimsoll_eviction_rounds_total", string(TriggerCounters))-counters, 0)
			wait(5 * time.Second)
			expect(t, "rounds while the threshold stays met",
				shown(t, "plimsoll_eviction_rounds_total", string(TriggerCounters))-counters > 0, true)
		})
	})
}

// TestUnknownSignalIsReported: the summary fails while there is pressure, and is available again later.
func TestUnknownSignalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		metric := func() float64 { return shown(t, "plimsoll_eviction_signal_blind", "memory.available") }
		fail := func(err error) { n.mu.Lock(); n.summaryErr = err; n.mu.Unlock() }
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			fail(errors.New("no summary"))
			wait(20 * time.Second)
			signals, _ := m.UnknownSignals(v1.NodeMemoryPressure)
			expect(t, "after a moment", signals, []string{})
			expect(t, "metric", metric(), 1)
			wait(time.Hour)
			signals, since := m.UnknownSignals(v1.NodeMemoryPressure)
			expect(t, "after an hour", signals, []string{"memory.available"})
			expect(t, "since", time.Since(since) > 59*time.Minute, true)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "events", len(n.eventsOf("EvictionSignalUnknown")), 1)
			other, _ := m.UnknownSignals(v1.NodeDiskPressure)
			expect(t, "other conditions", other, []string{})
			fail(nil)
			wait(20 * time.Second)
			signals, _ = m.UnknownSignals(v1.NodeMemoryPressure)
			expect(t, "back", signals, []string{})
			expect(t, "metric", metric(), 0)
		})
	})
}

// counting is a reader that counts in its own way.
type counting struct {
	*kernel
	how []snapshot.Counting
}

func (c *counting) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := c.kernel.ReadMemory(how)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.how = append(c.how, how)
	if how.Reclaimable {
		r.Node.Available += 10 * gi
	}
	return r
}

func (c *counting) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return onlyPods(c.ReadMemory(how), uids)
}

// TestCountingIsAnOption: what is counted otherwise wins over the summary, and may change while the manager runs.
func TestCountingIsAnOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", gi)
		n.available(500 * mi)
		c := n.config(t, hard("1Gi"))
		reader := &counting{kernel: &kernel{node: n}}
		c.Memory = reader
		o := settings.DefaultOptions()
		o.MemoryFormula, o.CountSwap, o.CountHugepages = v1alpha1.Reclaimable, true, true
		c.Options = &o
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			expect(t, "memory pressure by what is reclaimable", m.IsUnderMemoryPressure(), false)
			expect(t, "counted", reader.how[len(reader.how)-1],
				snapshot.Counting{Reclaimable: true, Swap: true, Hugepages: true})
			m.SetOptions(settings.DefaultOptions())
			wait(time.Second)
			expect(t, "memory pressure by the working set", m.IsUnderMemoryPressure(), true)
		})
	})
}

// Idle rounds are counted without the goroutine of the sink, once it has set every gauge back.
func TestMetricsOfIdleRounds(t *testing.T) {
	m := newMetricsSink()
	idle := &Round{Trigger: TriggerTimer, Snapshot: &snapshot.Snapshot{}, Rules: &policy.Rules{}}
	silent := &Round{Trigger: TriggerTimer, Snapshot: &snapshot.Snapshot{RuntimeSilent: true}, Rules: &policy.Rules{}}
	rounds := shown(t, "plimsoll_eviction_rounds_total", "timer")
	play := func(what string, r *Round, needed bool) {
		t.Helper()
		if got := m.NeedsRound(r); got != needed {
			t.Errorf("%s: needed %t, want %t", what, got, needed)
		}
		if needed {
			m.Round(t.Context(), r)
		}
		rounds++
		if got := shown(t, "plimsoll_eviction_rounds_total", "timer"); got != rounds {
			t.Errorf("%s: %v rounds are counted, not %v", what, got, rounds)
		}
		want := 0.0
		if r == silent {
			want = 1
		}
		if got := shown(t, "plimsoll_eviction_runtime_silent"); got != want {
			t.Errorf("%s: runtime_silent is %v", what, got)
		}
	}
	play("the first round, the runtime is silent", silent, true)
	play("it answers", idle, true)
	play("idle again", idle, false)
	play("the runtime is silent again", silent, true)
	play("it answers", idle, true)
	play("idle again", idle, false)
	// The sink is late: the gauge is set back by a later round.
	m.NeedsRound(silent)
	if !m.NeedsRound(idle) {
		t.Error("an idle round is not needed although the round before was not handled")
	}
}
