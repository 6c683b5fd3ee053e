package eviction

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// stockWorld is a node as the stock manager asks for it. Stock's loop never ends by itself: it is ended where it asks.
type stockWorld struct {
	*node
	over   atomic.Bool
	rounds atomic.Int32
}

func (w *stockWorld) round() {
	if w.over.Load() {
		runtime.Goexit()
	}
	w.rounds.Add(1)
}

func (w *stockWorld) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	w.round()
	return w.node.Get(ctx, update)
}

func (w *stockWorld) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return w.Get(ctx, true)
}

func (w *stockWorld) HasDedicatedImageFs(ctx context.Context) (bool, error) {
	w.round()
	return w.node.HasDedicatedImageFs(ctx)
}

func (w *stockWorld) DeleteUnusedImages(ctx context.Context) error {
	_, err := w.Reclaim(ctx, policy.ReclaimRequest{Images: true})
	return err
}

func (w *stockWorld) DeleteAllUnusedContainers(ctx context.Context) error {
	_, err := w.Reclaim(ctx, policy.ReclaimRequest{Containers: true})
	return err
}

// stockRun is a stock manager that synchronizes every 10 s, as the stock kubelet has it do, on a node of a bubble.
type stockRun struct {
	stock.Manager
	admit  lifecycle.PodAdmitHandler
	world  *stockWorld
	cancel context.CancelFunc
}

// runStock is run for the stock manager.
func runStock(t *testing.T, n *node, c settings.ThresholdConfig, play func(s *stockRun, wait func(time.Duration))) {
	t.Helper()
	thresholds, err := stock.ParseThresholdConfig(c.AllocatableEnforced, c.Hard, c.Soft, c.SoftGracePeriods,
		c.MinimumReclaim)
	if err != nil {
		t.Fatal(err)
	}
	s := &stockRun{world: &stockWorld{node: n}}
	kill := func(pod *v1.Pod, _ bool, grace *int64, set func(*v1.PodStatus)) error {
		return n.kill(context.Background(), pod, *grace, set)
	}
	config := stock.Config{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute,
		MaxPodGracePeriodSeconds: 3600}
	s.Manager, s.admit = stock.NewManager(s.world, config, kill, s.world, s.world, n,
		&v1.ObjectReference{Kind: "Node", Name: "node"}, clock.RealClock{}, false)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.Start(ctx, s.world, n.active, func(pod *v1.Pod) bool { return n.cleanedUp(pod.UID) }, 10*time.Second)
	play(s, func(d time.Duration) { <-time.After(d); synctest.Wait() })
	s.world.over.Store(true)
	<-time.After(3 * time.Hour)
	s.cancel()
}

// beside plays a scenario on a node for stock and on one like it for ours.
func beside(t *testing.T, stock, ours func(t *testing.T)) {
	t.Run("stock, which fails here when it does not show the defect any more",
		func(t *testing.T) { synctest.Test(t, stock) })
	t.Run("ours", func(t *testing.T) { synctest.Test(t, ours) })
}

// quarter of an hour is long enough for whatever should happen.
const quarter = 15 * time.Minute

func TestD10BesideStock(t *testing.T) {
	blind := func() *node {
		n := newNode()
		n.add("hog", 9*gi)
		n.available(100 * mi)
		n.layoutErr = errors.New("image file system cannot be read")
		return n
	}
	beside(t, func(t *testing.T) {
		n := blind()
		runStock(t, n, hard("1Gi"), func(s *stockRun, wait func(time.Duration)) {
			wait(quarter)
			expect(t, "kills", n.killed(), []string{})
			expect(t, "memory pressure", s.IsUnderMemoryPressure(), false)
		})
	}, func(t *testing.T) {
		n := blind()
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			expect(t, "kills", n.killed(), []string{"hog/1"})
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
		})
	})
}

// TestD10LastingBlindnessBesideStock: both keep a condition while its signal is blind for a day; only ours says so.
func TestD10LastingBlindnessBesideStock(t *testing.T) {
	goBlind := func(n *node) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.summaryErr = errors.New("no summary")
	}
	beside(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		runStock(t, n, hard("1Gi"), func(s *stockRun, wait func(time.Duration)) {
			wait(5 * time.Second)
			goBlind(n)
			wait(24 * time.Hour)
			expect(t, "memory pressure", s.IsUnderMemoryPressure(), true)
			expect(t, "events", n.eventsOf("EvictionSignalUnknown"), []string{})
		})
	}, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			goBlind(n)
			wait(24 * time.Hour)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "it is said", len(n.eventsOf("EvictionSignalUnknown")) > 0, true)
		})
	})
}

// TestD10HangingRuntimeBesideStock: each request to the runtime runs into its time-out of two minutes. Then memory and
// disk run out.
func TestD10HangingRuntimeBesideStock(t *testing.T) {
	configured := settings.ThresholdConfig{Hard: map[string]string{"memory.available": "1Gi", "nodefs.available": "10Gi"}}
	healthy := func(n *node) {
		n.add("hog", 9*gi)
		n.available(20 * gi)
		n.timeout = 2 * time.Minute
	}
	hangs := func(n *node) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.hang = make(chan struct{})
		n.disk.used = n.disk.capacity - 5*gi
		n.system = n.capacity - n.used() - 100*mi
	}
	beside(t, func(t *testing.T) {
		n := newNode()
		healthy(n)
		runStock(t, n, configured, func(s *stockRun, wait func(time.Duration)) {
			wait(5 * time.Second)
			hangs(n)
			wait(24 * time.Hour)
			expect(t, "kills", n.killed(), []string{})
			expect(t, "pressure", s.IsUnderMemoryPressure() || s.IsUnderDiskPressure(), false)
			expect(t, "events", len(n.events), 0)
		})
	}, func(t *testing.T) {
		s := newSilence()
		healthy(s.node)
		run(t, s.node, s.config(t, configured), func(m *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			hangs(s.node)
			wait(time.Minute)
			expect(t, "kills", s.killed(), []string{"hog/1"})
			expect(t, "pressure", m.IsUnderMemoryPressure() && m.IsUnderDiskPressure(), true)
			expect(t, "it is said", len(s.eventsOf(eventRuntimeSilent)), 1)
		})
	})
}

func TestD32BesideStock(t *testing.T) {
	slow := func() *node {
		n := newNode()
		n.add("first", 100*mi, priority(-1), grace(3600))
		n.add("second", 20*gi)
		n.available(2*gi - 50*mi)
		n.killTakes = time.Hour
		return n
	}
	configured := settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": "1Gi"},
		Soft: map[string]string{"memory.available": "2Gi"}, SoftGracePeriods: map[string]string{"memory.available": "30s"},
	}
	beside(t, func(t *testing.T) {
		n := slow()
		runStock(t, n, configured, func(s *stockRun, wait func(time.Duration)) {
			wait(45 * time.Second)
			expect(t, "soft", n.killed(), []string{"first/3600"})
			n.available(100 * mi)
			wait(quarter)
			expect(t, "hard", n.killed(), []string{"first/3600"})
		})
	}, func(t *testing.T) {
		n := slow()
		c := n.config(t, configured)
		c.MaxPodGracePeriodSeconds = 3600
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(45 * time.Second)
			expect(t, "soft", n.killed(), []string{"first/3600"})
			n.available(100 * mi)
			wait(11 * time.Second)
			expect(t, "hard", n.killed(), []string{"first/3600", "second/1"})
		})
	})
}

func TestD33BesideStock(t *testing.T) {
	beside(t, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		runStock(t, n, hard("1Gi"), func(s *stockRun, wait func(time.Duration)) {
			wait(15 * time.Second)
			s.cancel()
			before := s.world.rounds.Load()
			wait(time.Minute)
			expect(t, "rounds after the end", s.world.rounds.Load() > before, true)
		})
	}, func(t *testing.T) {
		n := newNode()
		n.available(20 * gi)
		begin := time.Now()
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) { wait(15 * time.Second) })
		expect(t, "time to stop", time.Since(begin), 15*time.Second)
	})
}

// TestD34BesideStock: no kernel notification, as on cgroup v2 with stock. The node loses 1 GiB/s and has 100 MiB left
// at the crossing.
func TestD34BesideStock(t *testing.T) {
	leaking := func() *node {
		n := newNode()
		n.add("leak", gi)
		n.available(12*gi + 100*mi)
		return n
	}
	beside(t, func(t *testing.T) {
		n := leaking()
		runStock(t, n, hard("100Mi"), func(s *stockRun, wait func(time.Duration)) {
			wait(3 * time.Second)
			n.grows("leak", gi)
			wait(12*time.Second + 100*time.Millisecond)
			expect(t, "kills when nothing is left", n.killed(), []string{})
		})
	}, func(t *testing.T) {
		n := leaking()
		c := n.config(t, hard("100Mi"))
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(3 * time.Second)
			n.grows("leak", gi)
			wait(12*time.Second + 50*time.Millisecond)
			expect(t, "kills while something is left", n.killed(), []string{"leak/1"})
		})
	})
}

// activeCache is a node whose memory is nearly full of active page cache: stock's working set has it in, the option
// leaves half of it out.
type activeCache struct {
	*kernel
	cache int64
}

func (a activeCache) spare(how snapshot.Counting) int64 {
	if how.Reclaimable {
		return a.cache / 2
	}
	return 0
}

func (a activeCache) Counters(how snapshot.Counting) (snapshot.MemoryCounters, error) {
	c, err := a.kernel.Counters(how)
	c.NodeSpare += snapshot.Bytes(a.spare(how))
	return c, err
}

func (a activeCache) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	r := a.kernel.ReadMemory(how)
	r.Node.Available += a.spare(how)
	return r
}

func (a activeCache) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	return onlyPods(a.ReadMemory(how), uids)
}

func TestD35BesideStock(t *testing.T) {
	cached := func() *node {
		n := newNode()
		n.add("reader", 20*gi)
		n.available(500 * mi)
		return n
	}
	ours := func(formula v1alpha1.AvailableMemory, kills []string) func(t *testing.T) {
		return func(t *testing.T) {
			n := cached()
			c := n.config(t, hard("1Gi"))
			c.Memory = activeCache{&kernel{node: n}, 18 * gi}
			c.Options = new(optionsWith(func(o *settings.Options) { o.MemoryFormula = formula }))
			run(t, n, c, func(m *Manager, wait func(time.Duration)) {
				wait(time.Minute)
				expect(t, "kills", n.killed(), kills)
			})
		}
	}
	beside(t, func(t *testing.T) {
		n := cached()
		runStock(t, n, hard("1Gi"), func(s *stockRun, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "kills for page cache", n.killed(), []string{"reader/1"})
		})
	}, ours(v1alpha1.Reclaimable, []string{}))
	t.Run("ours by default", func(t *testing.T) { synctest.Test(t, ours(v1alpha1.WorkingSet, []string{"reader/1"})) })
}

// TestD36BesideStock: after a restart there is no summary for a while.
func TestD36BesideStock(t *testing.T) {
	starting := func() *node {
		n := newNode()
		n.available(100 * mi)
		n.summaryErr = errors.New("cAdvisor has nothing yet")
		return n
	}
	beside(t, func(t *testing.T) {
		n := starting()
		runStock(t, n, hard("1Gi"), func(s *stockRun, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "memory pressure", s.IsUnderMemoryPressure(), false)
			expect(t, "a newcomer", s.admit.Admit(&lifecycle.PodAdmitAttributes{Pod: plainPod("new")}).Admit, true)
		})
	}, func(t *testing.T) {
		n := starting()
		m, err := New(n.config(t, hard("1Gi")))
		if err != nil {
			t.Fatal(err)
		}
		m.Restore([]v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.Now()}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		<-time.After(time.Minute)
		expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
		expect(t, "a newcomer", m.Admit(&lifecycle.PodAdmitAttributes{Pod: plainPod("new")}).Admit, false)
		cancel()
		<-done
	})
}

func TestD37BesideStock(t *testing.T) {
	configured := settings.ThresholdConfig{Soft: map[string]string{"memory.available": "2Gi"},
		SoftGracePeriods: map[string]string{"memory.available": "1h"}}
	pressed := func() (*node, *lifecycle.PodAdmitAttributes) {
		n := newNode()
		pod := n.add("running", gi).object
		n.available(3 * gi / 2)
		return n, &lifecycle.PodAdmitAttributes{Pod: pod}
	}
	beside(t, func(t *testing.T) {
		n, running := pressed()
		runStock(t, n, configured, func(s *stockRun, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "answer", s.admit.Admit(running),
				lifecycle.PodAdmitResult{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "})
		})
	}, func(t *testing.T) {
		n, running := pressed()
		c := n.config(t, configured)
		c.Readmitted = func(pod *v1.Pod) bool { return pod == running.Pod }
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute)
			expect(t, "memory pressure", m.IsUnderMemoryPressure(), true)
			expect(t, "answer", m.Admit(running), lifecycle.PodAdmitResult{Admit: true})
		})
	})
}

// armed is a factory of stock's notifiers that writes down the level.
type armed struct{ level int64 }

func (a *armed) NewCgroupNotifier(_ klog.Logger, _, _ string, level int64) (stock.CgroupNotifier, error) {
	a.level = level
	return a, nil
}
func (*armed) Start(context.Context, chan<- struct{}) {}
func (*armed) Stop()                                  {}

// TestD39BesideStock: the pods' cgroup is limited to 8 GiB and full of clean page cache; 1 GiB of it is a working set
// that grows.
func TestD39BesideStock(t *testing.T) {
	const limit = 8
	configured := settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": "1Gi"}, AllocatableEnforced: []string{"pods"},
	}
	beside(t, func(t *testing.T) {
		memory := &statsapi.MemoryStats{UsageBytes: u(limit * gi), WorkingSetBytes: u(gi),
			AvailableBytes: u((limit - 1) * gi)}
		summary := &statsapi.Summary{
			Node: statsapi.NodeStats{SystemContainers: []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods,
				Memory: memory}}}}
		thresholds, err := stock.ParseThresholdConfig(configured.AllocatableEnforced, configured.Hard, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		tried := false
		for _, threshold := range thresholds {
			if threshold.Signal != evictionapi.SignalAllocatableMemoryAvailable {
				continue
			}
			factory := &armed{}
			notifier, err := stock.NewMemoryThresholdNotifier(klog.Background(), threshold, "/kubepods", factory,
				func(string) {})
			if err == nil {
				err = notifier.UpdateThreshold(t.Context(), summary)
			}
			if err != nil {
				t.Fatal(err)
			}
			tried = true
			expect(t, "armed above what usage can reach", factory.level > limit*gi, true)
		}
		expect(t, "there is a threshold of the pods", tried, true)
	}, func(t *testing.T) {
		n := newNode()
		n.capacity = limit * gi
		n.add("leak", gi).cached = (limit - 1) * gi
		c := n.config(t, configured)
		c.Memory = &kernel{node: n}
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			n.grows("leak", 50*mi)
			crossing := time.Duration(6*gi/mi) * time.Second / 50
			wait(crossing - time.Second)
			expect(t, "kills before the crossing", n.killed(), []string{})
			wait(time.Second + 100*time.Millisecond)
			expect(t, "kills at the crossing", n.killed(), []string{"leak/1"})
		})
	})
}
