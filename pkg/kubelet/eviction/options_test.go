package eviction

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func optionsWith(change func(*settings.Options)) settings.Options {
	o := settings.DefaultOptions()
	change(&o)
	return o
}

func dryRunOfMemory(o *settings.Options) {
	o.DryRun = []policy.ThresholdID{{Signal: snapshot.MemoryAvailable}}
}

func TestOptionsChangeWhileGraceRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.available(gi)
		c := n.config(t, settings.ThresholdConfig{Soft: map[string]string{"memory.available": "2Gi"},
			SoftGracePeriods: map[string]string{"memory.available": "60s"}})
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(41 * time.Second)
			m.SetOptions(optionsWith(func(o *settings.Options) { o.MonitoringPeriod = 3 * time.Second; o.CountSwap = true }))
			wait(time.Millisecond)
			expect(t, "options in force", m.Options().CountSwap, true)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			wait(15 * time.Second)
			expect(t, "kills within the grace period", len(n.killed()), 0)
			wait(7 * time.Second)
			expect(t, "kills after it", len(n.killed()), 1)
			expect(t, "conditions that began", n.changes, 1)
		})
	})
}

func TestOptionsChangeWhileAPodIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.add("other", 5*gi)
		n.available(500 * mi)
		n.killTakes = 19500 * time.Millisecond // It does not end in the moment of a collection.
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			m.SetOptions(optionsWith(func(o *settings.Options) { o.MonitoringPeriod = time.Second }))
			wait(time.Minute)
			expect(t, "kills after the change", n.killed(), []string{"hog/1"})
		})
	})
}

func TestDryRunUntilItIsLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.available(500 * mi)
		c := n.config(t, hard("1Gi"))
		c.Options = new(optionsWith(dryRunOfMemory))
		counted := func() float64 {
			registerDryRunMetric()
			v, err := testutil.GetCounterMetricValue(dryRunTotal.WithLabelValues("memory.available", "hard"))
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		before := counted()
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(155 * time.Second)
			expect(t, "kills", len(n.killed()), 0)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), false)
			expect(t, "counted", counted()-before, 1)
			said := n.eventsOf("EvictionDryRun")
			expect(t, "events", len(said), 3)
			expect(t, "event", said[0],
				"Dry run of memory.available (hard): would evict pod ns/hog because: The node was low on resource: memory. "+
					"Threshold quantity: 1Gi, available: 500Mi. "+
					"Container c was using 20Gi, request is 0, has larger consumption of memory. ")
			expect(t, "other events", len(n.eventsOf("EvictionThresholdMet"))+len(n.eventsOf("Evicted")), 0)
			m.SetOptions(settings.DefaultOptions())
			wait(time.Second)
			expect(t, "kills when the dry run is over", n.killed(), []string{"hog/1"})
			expect(t, "memory pressure then", m.IsUnderMemoryPressure(), true)
			m.SetOptions(*c.Options)
			wait(6 * time.Minute)
			expect(t, "memory pressure in the end", m.IsUnderMemoryPressure(), false)
		})
	})
}

// TestDryRunNamesTheRightPod: the summary is late for single pods. That affects neither the victim of a dry run nor the
// eviction when it has ended.
func TestDryRunNamesTheRightPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi).unseen = true
		n.add("idle", mi)
		n.available(500 * mi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		c.Options = new(optionsWith(dryRunOfMemory))
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(65 * time.Second)
			for _, said := range n.eventsOf("EvictionDryRun") {
				if !strings.Contains(said, "would evict pod ns/hog") {
					t.Error(said)
				}
			}
			expect(t, "events", len(n.eventsOf("EvictionDryRun")), 2)
			m.SetOptions(settings.DefaultOptions())
			wait(time.Minute)
			expect(t, "kills when the dry run is over", n.killed(), []string{"hog/1"})
		})
	})
}

// The counters are read again as soon as options change, and not when the read that was planned with the old ones
// is due.
func TestLiftedThresholdIsWatchedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.available(8 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		c.Options = new(optionsWith(func(o *settings.Options) {
			o.DryRun, o.MonitoringPeriod = []policy.ThresholdID{{Signal: snapshot.MemoryAvailable}}, 5*time.Minute
		}))
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			m.SetOptions(settings.DefaultOptions())
			wait(100 * time.Millisecond)
			n.available(500 * mi)
			wait(3 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}

// The counters are not read more often because of a threshold in dry run.
func TestDryRunDoesNotHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 20*gi)
		n.available(500 * mi)
		k := &kernel{node: n}
		c := n.config(t, hard("1Gi"))
		c.Memory = k
		c.Options = new(optionsWith(dryRunOfMemory))
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			if k.counterReads > 20 {
				t.Errorf("%d reads of the counters in a minute", k.counterReads)
			}
		})
	})
}

// TestIgnoredAnnotationsAreReported: a pod whose annotations have no effect gets an event when it is admitted.
func TestIgnoredAnnotationsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := n.config(t, hard("1Gi"))
		c.Options = new(optionsWith(func(o *settings.Options) { o.Protection.Namespaces = []string{"ns"} }))
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for name, preference := range map[string]string{"good": "5", "bad": "many"} {
			pod := n.add(name, mi,
				func(pod *v1.Pod) { pod.Annotations = map[string]string{policy.PreferenceAnnotation: preference} }).object
			if verdict, message := m.AdmitOrWait(pod); verdict != policy.Admitted {
				t.Errorf("%s: %v, %s", name, verdict, message)
			}
		}
		expect(t, "events", n.eventsOf("EvictionAnnotationIgnored"),
			[]string{`annotation pressure.plimsoll.dev/eviction-preference: "many": must be a whole number from -100 to 100`})
	})
}

// TestDerivedThresholdsFollowTheOptions: thresholds are derived again when options change, since they may be in dry run
// then.
func TestDerivedThresholdsFollowTheOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		c := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": "10%"}})
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			for _, dry := range []bool{false, true, false} {
				o := settings.DefaultOptions()
				if dry {
					o.DryRun = []policy.ThresholdID{{Signal: snapshot.NodeFsAvailable}}
				}
				m.SetOptions(o)
				wait(time.Second)
				var got []string
				for _, th := range m.loop.rules.Thresholds {
					got = append(got, fmt.Sprint(th.Signal, th.DryRun))
				}
				expect(t, "thresholds", got, []string{fmt.Sprint("nodefs.available ", dry),
					fmt.Sprint("containerfs.available ", dry)})
			}
		})
	})
}

// TestMemoryGrowthIsReportedWhileOptionsSaySo: on a node with plenty of memory the growth of a pod is in the decision
// 40 s after it has begun, from its cgroup; without the option, rounds have no pods.
func TestMemoryGrowthIsReportedWhileOptionsSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("leak", gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			last := m.last.Load()
			expect(t, "pods of a snapshot", len(last.Snapshot.Pods), 0)
			expect(t, "growth", last.Decision.Growth, nil)
			m.SetOptions(optionsWith(func(o *settings.Options) { o.ReportMemoryGrowth = true }))
			n.grows("leak", 50*mi)
			wait(40 * time.Second)
			growth := m.last.Load().Decision.Growth
			if growth == nil || len(growth.Pods) != 1 || len(growth.Thresholds) == 0 {
				t.Fatalf("growth %+v", growth)
			}
			expect(t, "pod", growth.Pods[0].Pod.Name, "leak")
			expect(t, "MiB per second", int64(growth.Pods[0].Rate+0.5)/mi, 50)
			m.SetOptions(settings.DefaultOptions())
			wait(time.Second)
			expect(t, "growth in the end", m.last.Load().Decision.Growth, nil)
		})
	})
}

// TestAllPodsAreObservedWhileOptionsSaySo: rounds of a calm node have all pods and their usage, also without
// thresholds.
func TestAllPodsAreObservedWhileOptionsSaySo(t *testing.T) {
	for _, thresholds := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.add("a", gi)
			n.available(20 * gi)
			c := n.config(t, hard("1Gi"))
			if c.LocalStorageCapacityIsolation = false; !thresholds {
				c.Thresholds = nil
			}
			run(t, n, c, func(m *Manager, wait func(time.Duration)) {
				wait(time.Minute)
				if last := m.last.Load(); last != nil && len(last.Snapshot.Pods) > 0 {
					t.Errorf("pods %+v", last.Snapshot.Pods)
				}
				m.SetOptions(optionsWith(func(o *settings.Options) { o.AllPods = true }))
				wait(time.Second)
				pods := m.last.Load().Snapshot.Pods
				if len(pods) != 1 || pods[0].Name != "a" || pods[0].Usage == nil {
					t.Errorf("pods %+v", pods)
				}
				m.SetOptions(settings.DefaultOptions())
				wait(time.Minute)
				if last := m.last.Load(); thresholds && len(last.Snapshot.Pods) > 0 {
					t.Errorf("pods in the end %+v", last.Snapshot.Pods)
				}
			})
		})
	}
}

// roundsSink keeps the last round with an outlook.
type roundsSink struct{ last atomic.Pointer[Round] }

func (*roundsSink) Name() string                        { return "rounds" }
func (*roundsSink) NeedsRound(r *Round) bool            { return r.Decision.Outlook != nil }
func (s *roundsSink) Round(_ context.Context, r *Round) { s.last.Store(r) }
func (*roundsSink) Result(context.Context, *Result)     {}

// TestTheOutlookIsReportedWhileOptionsSaySo: on a node with plenty of memory the time to the threshold is in the rounds
// that sinks get 40 s after a pod has begun to grow, with the default interval of rounds.
func TestTheOutlookIsReportedWhileOptionsSaySo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("leak", gi)
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		sink := &roundsSink{}
		c.Sinks = append(c.Sinks, sink)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "outlook", len(m.last.Load().Decision.Outlook), 0)
			m.SetOptions(optionsWith(func(o *settings.Options) { o.ReportOutlook = true }))
			n.grows("leak", 50*mi)
			wait(40 * time.Second)
			r := sink.last.Load()
			if r == nil || len(r.Decision.Outlook) == 0 {
				t.Fatalf("round %+v", r)
			}
			o := r.Decision.Outlook[0]
			expect(t, "signal", o.Signal, snapshot.MemoryAvailable)
			expect(t, "MiB per second", int64(o.Growth+0.5)/mi, 50)
			expect(t, "next round", r.Decision.SyncAfter, 0)
			if o.TimeToThreshold == nil {
				t.Fatalf("%+v", o)
			}
			expect(t, "seconds", int64(o.TimeToThreshold.Seconds()), o.Headroom/(50*mi))
			m.SetOptions(settings.DefaultOptions())
			wait(time.Second)
			expect(t, "outlook in the end", len(m.last.Load().Decision.Outlook), 0)
		})
	})
}
