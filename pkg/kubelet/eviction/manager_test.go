package eviction

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestHogIsEvictedAndItsNeighboursLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 10*gi, priority(-1), memoryRequest(gi))
		n.add("neighbour", gi, memoryRequest(2*gi))
		n.available(2 * gi)
		n.killTakes = 2 * time.Second
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			expect(t, "kills while there is room", n.killed(), []string{})
			n.available(500 * mi)
			wait(time.Minute)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			status := n.statuses["hog"]
			message := "The node was low on resource: memory. Threshold quantity: 1Gi, available: 500Mi. " +
				"Container c was using 10Gi, request is 1Gi, has larger consumption of memory. "
			expect(t, "phase", status.Phase, v1.PodFailed)
			expect(t, "reason", status.Reason, "Evicted")
			expect(t, "message", status.Message, message)
			c := status.Conditions[0]
			expect(t, "condition", fmt.Sprint(c.Type, c.Status, c.Reason, c.Message),
				fmt.Sprint(v1.DisruptionTarget, "True", "TerminationByKubelet", message))
			expect(t, "node events", n.eventsOf("EvictionThresholdMet"), []string{"Attempting to reclaim memory"})
			expect(t, "pod events", n.eventsOf("Evicted"),
				[]string{message + "map[offending_containers:c offending_containers_usage:10Gi starved_resource:memory]"})
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "disk and PID pressure", m.IsUnderDiskPressure() || m.IsUnderPIDPressure(), false)
			expect(t, "changes", n.changes, 1)
			wait(6 * time.Minute)
			expect(t, "memory pressure in the end", m.IsUnderMemoryPressure(), false)
		})
	})
}

func TestSlowKillDoesNotBlockTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("first", 100*mi, priority(-1), grace(3600))
		n.add("second", 20*gi)
		n.available(2*gi - 50*mi)
		n.killTakes = time.Hour
		c := n.config(t, settings.ThresholdConfig{
			Hard: map[string]string{"memory.available": "1Gi"},
			Soft: map[string]string{"memory.available": "2Gi"}, SoftGracePeriods: map[string]string{"memory.available": "30s"},
		})
		c.MaxPodGracePeriodSeconds = 3600
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(25 * time.Second)
			expect(t, "kills within the grace period", n.killed(), []string{})
			wait(20 * time.Second)
			expect(t, "soft", n.killed(), []string{"first/3600"})
			n.killTakes = time.Second
			n.available(100 * mi)
			wait(11 * time.Second)
			expect(t, "hard", n.killed(), []string{"first/3600", "second/1"})
		})
	})
}

func TestFailedKillBringsTheNextVictim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 9*gi)
		n.add("b", 8*gi)
		n.available(100 * mi)
		n.killTakes, n.killErrs["a"] = 9*time.Second, errors.New("timed out")
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(40 * time.Second)
			expect(t, "kills", n.killed(), []string{"a/1", "b/1"})
		})
	})
}

// A pod that ends long after the pod workers' time-out has not failed: its release is waited for until half a minute
// after its grace period, and its eviction counts when it has ended.
func TestALateVictimIsEnough(t *testing.T) {
	_ = legacyregistry.Register(metrics.Evictions)
	for _, test := range []struct {
		takes time.Duration
		kills []string
	}{
		// Not at the time of a reading: both orders would be right.
		{28*time.Second + 100*time.Millisecond, []string{"a/1"}},
		{40*time.Second + 100*time.Millisecond, []string{"a/1", "b/1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.add("a", 9*gi)
			n.add("b", 8*gi)
			n.add("c", 7*gi)
			n.available(100 * mi)
			n.killTakes = test.takes
			before := shown(t, "kubelet_evictions", "memory.available")
			run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
				wait(29 * time.Second)
				expect(t, "kills while the first one is on time", n.killed(), []string{"a/1"})
				wait(time.Minute)
				expect(t, "kills in the end", n.killed(), test.kills)
			})
			if counted := shown(t, "kubelet_evictions", "memory.available") - before; counted != float64(len(test.kills)) {
				t.Errorf("a kill of %v: %v evictions are counted, want %d", test.takes, counted, len(test.kills))
			}
		})
	}
}

// A pod that stops long after everything was tried counts as evicted, once, whether it was asked again meanwhile or
// not.
func TestAVeryLateVictimCounts(t *testing.T) {
	_ = legacyregistry.Register(metrics.Evictions)
	for name, kills := range map[string][]string{
		"the pressure ends before": {"a/1"},
		"the pressure lasts":       {"a/1", "a/1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("a", 9*gi)
				n.available(100 * mi)
				n.killTakes = 5 * time.Minute
				c := n.config(t, hard("1Gi"))
				kill, asked := c.Kill, 0
				c.Kill = func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
					answer, ended := kill(ctx, r)
					if asked++; asked > 1 {
						answer = podkill.Unchanged
					}
					return answer, ended
				}
				before := shown(t, "kubelet_evictions", "memory.available")
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(time.Minute)
					if len(kills) == 1 {
						n.available(20 * gi)
					}
					wait(3 * time.Minute)
					expect(t, "kills", n.killed(), kills)
					wait(time.Minute + 10*time.Second)
					expect(t, "pods in the ledger", len(m.ledger.entries), 0)
				})
				if counted := shown(t, "kubelet_evictions", "memory.available") - before; counted != 1 {
					t.Errorf("%v evictions are counted", counted)
				}
			})
		})
	}
}

// A pod that is hastened is asked to stop at that moment: the next victim waits as long as after any other request.
func TestHasteningIsANewRequest(t *testing.T) {
	l, now := newLedger(), time.Unix(1e9, 0)
	pod := snapshot.Pod{Facts: snapshot.NewFacts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, false)}
	l.begin(&policy.Victim{Pod: &pod, GraceSeconds: 600}, 1, now)
	later := now.Add(time.Minute)
	l.begin(&policy.Victim{Pod: &pod, GraceSeconds: 1, Cause: policy.Cause{Kind: policy.HardThreshold}, Hasten: true}, 1,
		later)
	inFlight, _ := l.view()
	if f := inFlight[0]; !f.Started.Equal(later) || !f.Deadline.Equal(later.Add(time.Second)) {
		t.Errorf("started %v, deadline %v; it was hastened at %v", f.Started, f.Deadline, later)
	}
}

func TestOneEvictionUntilItsRoomIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("a", 9*gi)
		n.add("b", 8*gi)
		n.available(100 * mi)
		n.uncleaned["a"] = true
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(20 * time.Second)
			expect(t, "kills while volumes are torn down", n.killed(), []string{"a/1"})
			n.mu.Lock()
			n.uncleaned["a"] = false
			n.mu.Unlock()
			wait(time.Minute)
			expect(t, "kills", n.killed(), []string{"a/1"})
		})
	})
}

func TestDiskIsReclaimedFromTheNodeFirst(t *testing.T) {
	for _, enough := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.add("writer", gi).disk = 30 * gi
			n.disk.used = 95 * gi
			n.freedByGC = gi
			if enough {
				n.freedByGC = 20 * gi
			}
			config := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": "10%"}})
			run(t, n, config, func(m *Manager, wait func(time.Duration)) {
				wait(40 * time.Second)
				expect(t, "reclaimed", n.reclaimed, []string{"containers", "images"})
				expect(t, "evicted", len(n.killed()) > 0, !enough)
				expect(t, "disk pressure", m.IsUnderDiskPressure(), true)
			})
		})
	}
}

func TestD10MemoryActsWhileTheLayoutIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("hog", 9*gi)
		n.available(100 * mi)
		n.layoutErr = errors.New("image file system cannot be read")
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
		})
	})
}

func TestD33StopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.hang = make(chan struct{})
		n.available(gi)
		begin := time.Now()
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) { wait(time.Minute) })
		expect(t, "time to stop", time.Since(begin), time.Minute)
	})
}

func TestHangingSummaryKeepsConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			n.mu.Lock()
			n.hang = make(chan struct{})
			n.mu.Unlock()
			wait(time.Hour)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			blind := 0
			for _, c := range m.Conditions() {
				blind += len(c.UnknownSignals)
			}
			expect(t, "blind signals", blind, 1)
			expect(t, "events", n.eventsOf("EvictionSignalUnknown"),
				[]string{"Signals [memory.available] are unknown since 2000-01-01T00:00:25Z; MemoryPressure stays true"})
		})
	})
}

func TestRestoredConditionsAndAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		running := n.add("running", mi).object
		c.Readmitted = func(pod *v1.Pod) bool { return pod == running }
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		newcomer := newNode().add("newcomer", mi).object
		expect(t, "admitted without pressure", m.Admit(&lifecycle.PodAdmitAttributes{Pod: newcomer}),
			lifecycle.PodAdmitResult{Admit: true})
		m.Restore([]v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.Now()}, {Type: v1.NodeReady, Status: v1.ConditionTrue}})
		expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
		expect(t, "newcomer", m.Admit(&lifecycle.PodAdmitAttributes{Pod: newcomer}),
			lifecycle.PodAdmitResult{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "})
		expect(t, "running", m.Admit(&lifecycle.PodAdmitAttributes{Pod: running}), lifecycle.PodAdmitResult{Admit: true})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { m.Run(ctx); close(done) }()
		defer func() { cancel(); <-done }()
		time.Sleep(4 * time.Minute)
		expect(t, "memory pressure within the transition period", m.IsUnderMemoryPressure(), true)
		time.Sleep(2 * time.Minute)
		expect(t, "memory pressure after it", m.IsUnderMemoryPressure(), false)
	})
}

// Each state is the one that the last decision has left, or the round says that it is not: when the Node is read only
// after the first decision, and when memory is counted in another way.
func TestRoundsSayThatTheStateWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, seen := newNode(), &sinkRecorder{}
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Sinks = []Sink{seen}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			m.Restore([]v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue}})
			wait(time.Minute)
		})
		var after policy.State
		replaced := 0
		for i, r := range seen.rounds {
			if r.StateReplaced {
				replaced++
			} else if i > 0 && !reflect.DeepEqual(after, *r.State) {
				t.Errorf("decision %d: the state is not the one that the last one has left", r.Decision.Number)
			}
			_, after = policy.Decide(r.Snapshot, r.Rules, *r.State)
		}
		if len(seen.rounds) < 10 || replaced == 0 || replaced > 2 {
			t.Errorf("%d rounds, the state of %d was replaced", len(seen.rounds), replaced)
		}
	})
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	for _, want := range []string{"Collector", "Kill", "ActivePods", "Clock"} {
		if err == nil || !strings.Contains(err.Error(), want+" is required") {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
