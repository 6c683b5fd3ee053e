package eviction

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// paced is a summary that takes its time, and counts.
type paced struct {
	*node
	takes time.Duration
	count atomic.Int32
}

func (p *paced) calls() int { return int(p.count.Load()) }

func (p *paced) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	p.count.Add(1)
	<-time.After(p.takes)
	return p.node.Get(ctx, update)
}

func (k *kernel) read() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readings
}

// full leaves that much on the disk.
func (n *node) full(left int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.disk.used = n.disk.capacity - left
}

func hardDisk(nodefs string) settings.ThresholdConfig {
	return settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": nodefs}}
}

// everywhere is a pod of a DaemonSet that tolerates all taints of pressure.
func everywhere() *v1.Pod {
	pod := daemon(0)
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return pod
}

// latency is how long the pod waits until it is let in. As the sync loop does, it asks each second, and when it is
// called.
func latency(t *testing.T, m *Manager, called <-chan struct{}, pod *v1.Pod) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		if verdict, _ := m.AdmitOrWait(pod); verdict == policy.Admitted {
			return time.Since(began)
		}
		if time.Since(began) > time.Hour {
			t.Fatal("it is never let in")
		}
		select {
		case <-called:
		case <-time.After(time.Second):
		}
		synctest.Wait()
	}
}

// caller is what makes the sync loop ask at once.
func caller(c *Config) (called chan struct{}) {
	called = make(chan struct{}, 100)
	c.Sinks = append(c.Sinks, OnRelief("waiting pods", func() { called <- struct{}{} }))
	return called
}

// waitsFor lets a pod ask in vain for a while.
func waitsFor(t *testing.T, m *Manager, wait func(time.Duration), d time.Duration) {
	t.Helper()
	for range d / time.Second {
		if verdict, why := m.AdmitOrWait(everywhere()); verdict != policy.Waits {
			t.Fatalf("verdict %d: %s", verdict, why)
		}
		wait(time.Second)
	}
}

// TestTheEndOfMemoryPressureIsSeenSoon: the memory watcher reports it, with no collection of stats.
func TestTheEndOfMemoryPressureIsSeenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		k, p := &kernel{node: n}, &paced{node: n}
		c := n.config(t, settings.ThresholdConfig{Hard: map[string]string{"memory.available": "1Gi"},
			MinimumReclaim: map[string]string{"memory.available": "1Gi"}})
		c.Memory, c.Collector = k, n.collector(t, p)
		called := caller(&c)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			waitsFor(t, m, wait, 32*time.Second)
			// Enough for the threshold, but not for its minimum reclaim.
			n.available(1500 * mi)
			waitsFor(t, m, wait, 11*time.Second)
			if p.calls() > 7 || k.read() > 4*48 {
				t.Errorf("%d collections and %d readings in 44 s", p.calls(), k.read())
			}
			n.available(5 * gi)
			if got := latency(t, m, called, everywhere()); got > memorywatch.MetPause {
				t.Errorf("let in after %v, want at most %v", got, memorywatch.MetPause)
			}
			expect(t, "it lingers", m.IsUnderMemoryPressure(), true)
			before := k.read()
			wait(time.Minute)
			if n := k.read() - before; n > 15 {
				t.Errorf("%d readings in a minute after it was over", n)
			}
		})
	})
}

// TestAShortDipIsNotHeldForThePeriod: a threshold is met for 10 ms.
func TestAShortDipIsNotHeldForThePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		called := caller(&c)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			n.available(100 * mi)
			m.Wake()
			wait(10 * time.Millisecond)
			n.available(20 * gi)
			if got := latency(t, m, called, everywhere()); got == 0 || got > memorywatch.MetPause {
				t.Errorf("let in after %v, want at most %v", got, memorywatch.MetPause)
			}
		})
	})
}

// While a pod waits for the end of disk pressure, stats are collected every two seconds. Otherwise they are not: each
// round may begin a reclaim, whose end causes another round.
func TestEndOfDiskPressureIsDetectedWhileAPodWaits(t *testing.T) {
	for name, memory := range map[string]bool{"with a memory watcher": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.available(20 * gi)
				n.full(gi)
				p := &paced{node: n}
				c := n.config(t, hardDisk("10Gi"))
				c.Collector = n.collector(t, p)
				if memory {
					c.Memory = &kernel{node: n}
				}
				called := caller(&c)
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(5 * time.Second)
					begin := p.calls()
					wait(time.Minute)
					if n := p.calls() - begin; n > 12 {
						t.Errorf("%d collections in a minute in which nobody waits", n)
					}
					waitsFor(t, m, wait, 10*time.Second)
					n.full(50 * gi)
					if got := latency(t, m, called, everywhere()); got > askedPause {
						t.Errorf("let in after %v", got)
					}
					before := p.calls()
					wait(time.Minute)
					if n := p.calls() - before; n > 7 {
						t.Errorf("%d collections in a minute after it was over", n)
					}
				})
			})
		})
	}
}

// TestSlowStatsAreNotCollectedAllTheTime: every six seconds, and again after the reclaim that each round requests.
func TestSlowStatsAreNotCollectedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.full(gi)
		p := &paced{node: n, takes: 300 * time.Millisecond}
		c := n.config(t, hardDisk("10Gi"))
		c.Collector = n.collector(t, p)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			before := p.calls()
			waitsFor(t, m, wait, time.Minute)
			if n := p.calls() - before; n < 14 || n > 20 {
				t.Errorf("%d collections in a minute", n)
			}
		})
	})
}

// TestTheEndOfAConditionIsNotOverslept: a condition that lingers ends when its transition period does, not with the
// next round.
func TestTheEndOfAConditionIsNotOverslept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.full(gi)
		c := n.config(t, hardDisk("10Gi"))
		c.PressureTransitionPeriod = 93 * time.Second
		called := caller(&c)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			waitsFor(t, m, wait, 10*time.Second)
			n.full(50 * gi)
			// It asks for nothing and tolerates nothing.
			pod := daemon(0)
			pod.Spec.Tolerations = nil
			latency(t, m, called, everywhere())
			got := latency(t, m, called, pod)
			// The threshold was last met in the round before.
			if want := c.PressureTransitionPeriod; got > want || got < want-askedPause-time.Second {
				t.Errorf("let in %v after the threshold was clear, want %v since it was met", got, want)
			}
			expect(t, "disk pressure", m.IsUnderDiskPressure(), false)
		})
	})
}

// TestARestartLetsNobodyInWhoWaits: before the first collection it is unknown whether a hard threshold is met.
func TestARestartLetsNobodyInWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(5 * gi)
		c := n.config(t, hard("1Gi"))
		c.Collector = n.collector(t, &paced{node: n, takes: 3 * time.Second})
		called := caller(&c)
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		m.Restore([]v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		if got := latency(t, m, called, everywhere()); got != 3*time.Second {
			t.Errorf("let in after %v, want after the first collection", got)
		}
		expect(t, "it lingers", m.IsUnderMemoryPressure(), true)
		cancel()
		<-done
	})
}

func TestNothingIsTakenOverWhereNothingIsWatched(t *testing.T) {
	n := newNode()
	m, err := New(n.config(t, settings.ThresholdConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	m.Restore([]v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}})
	expect(t, "disk pressure", m.IsUnderDiskPressure(), false)
}

// TestNobodyIsCalledInVain: pods are asked again when what keeps them out is over, and not with every round.
func TestNobodyIsCalledInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		c := n.config(t, hard("1Gi"))
		c.Memory = &kernel{node: n}
		called := caller(&c)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "calls under pressure", len(called), 0)
			n.available(5 * gi)
			wait(time.Minute)
			expect(t, "calls when the threshold is clear", len(called), 1)
			wait(5 * time.Minute)
			expect(t, "calls when the condition has ended", len(called), 2)
		})
	})
}
