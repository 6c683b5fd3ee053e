package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/sources"
	"github.com/plimsoll-project/plimsoll/test/numa"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	podsCgroup = cgroupRoot + "/kubepods"
	mebibyte   = 1 << 20
	// small is the memory of a pod that is no reason for a shortage, in bytes.
	small = 128 * mebibyte
	// patience is how many rounds a situation that needs time may take.
	patience = 120
)

// machine has the pods and what plugins read.
type machine struct {
	out     report
	cgroups sources.Cgroups
	zones   *sources.Zoneinfo
	memory  *sources.NUMAMemory
	pods    []*v1.Pod
	// running are the processes of the present situation.
	running []*process
}

func newMachine(out report) (*machine, error) {
	m := &machine{out: out, zones: sources.NewZoneinfo("/proc/zoneinfo"), cgroups: sources.Cgroups{
		Unified: true, Mounts: map[string]string{"memory": cgroupRoot, "cpu": cgroupRoot},
		Path: func(pod *v1.Pod) string { return filepath.Join("/kubepods", pod.Name) },
	}}
	m.memory = sources.NewNUMAMemory(m.cgroups)
	for name, level := range map[string]string{
		"full": arbiter.ReclaimedCores, "other": arbiter.ReclaimedCores, "shared": "shared_cores",
		"stalled-1": arbiter.ReclaimedCores, "stalled-2": arbiter.ReclaimedCores, "stalled-3": arbiter.ReclaimedCores,
		"spins": arbiter.ReclaimedCores,
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		pod.Annotations = map[string]string{arbiter.QoSLevelKey: level}
		m.pods = append(m.pods, pod)
		if err := os.MkdirAll(filepath.Join(podsCgroup, name), 0o755); err != nil {
			return nil, fmt.Errorf("make a cgroup: %w", err)
		}
	}
	return m, nil
}

// all plays all situations: on the last NUMA node and on the first, then stalls and throttling.
func (m *machine) all() error {
	zones, err := m.zones.Zones()
	if err != nil {
		return fmt.Errorf("read NUMA nodes: %w", err)
	}
	last := len(zones) - 1
	if err := m.shortNode(last, 0); err != nil {
		return err
	}
	if last > 0 {
		if err := m.shortNode(0, last); err != nil {
			return err
		}
	}
	if err := m.stalls(); err != nil {
		return err
	}
	return m.throttling()
}

// set returns the plugins with settings of their own.
func (m *machine) set(change func(*v1alpha1.PluginSettings)) (*plugins.Set, error) {
	settings := v1alpha1.Default().Plugins.Eviction.Settings
	change(&settings)
	set, err := plugins.New(plugins.Config{
		Settings: func() plugins.Settings {
			return plugins.Settings{PluginSettings: settings, Period: period, MonitoringPeriod: 10 * period}
		},
		Recorder: record.NewFakeRecorder(100), Resident: sources.NewResident(m.cgroups), Zones: m.zones,
		NUMAMemory: m.memory, NodeMemory: sources.NewNodeMemory("/proc"), PodMemory: sources.NewPodMemory(m.cgroups),
		CPU:                sources.NewCPU("/proc", m.cgroups, "/kubepods", runtime.NumCPU()),
		Node:               func(context.Context) (*v1.Node, error) { return &v1.Node{}, nil },
		CustomNodeResource: func(context.Context) (v1.ResourceList, error) { return nil, nil },
	})
	if err != nil {
		return nil, fmt.Errorf("make the plugins: %w", err)
	}
	return set, nil
}

// round has a plugin answer.
func (m *machine) round(p plugin.Plugin, taken time.Time) numa.Answer {
	ctx, view := context.Background(), &plugin.View{Taken: taken, Pods: m.pods}
	demand, err := p.EvictPods(ctx, view)
	if err != nil {
		return numa.Answer{Err: err.Error()}
	}
	var a numa.Answer
	for _, pod := range demand.Pods {
		a.Pods, a.Note = append(a.Pods, string(pod.UID)), pod.Reason
	}
	met, err := p.ThresholdMet(ctx, view)
	if err != nil {
		return numa.Answer{Err: err.Error()}
	}
	a.Target, a.Observed = met.Target, met.Observed
	if met.Kind != arbiter.NotMet {
		for _, pod := range met.Candidates {
			a.Pods = append(a.Pods, string(pod))
		}
	}
	return a
}

// shortNode fills a NUMA node while there is memory on another one, and asks numa-memory-pressure with two settings.
func (m *machine) shortNode(node, other int) error {
	const gap = 64 * mebibyte
	amount := func(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }
	critical, err := m.set(func(s *v1alpha1.PluginSettings) {
		n := &s.NUMAMemoryPressure
		n.CriticalGap, n.LowGap, n.MinInactiveFile = amount(gap), amount(0), amount(0)
		*n.ReclaimedRounds, *n.AllRounds = 1000, 1000
	})
	if err != nil {
		return err
	}
	low, err := m.set(func(s *v1alpha1.PluginSettings) {
		n := &s.NUMAMemoryPressure
		n.CriticalGap, n.LowGap, n.MinInactiveFile = amount(0), amount(gap), amount(0)
		*n.ReclaimedRounds, *n.AllRounds = 2, 4
	})
	if err != nil {
		return err
	}
	if other != node {
		if err := m.start("other", "hold", other, small); err != nil {
			return err
		}
	}
	if err := m.start("shared", "hold", node, small); err != nil {
		return err
	}
	rounds := numaRounds{machine: m, node: node, taken: time.Now()}
	if err := rounds.play("calm, critical", critical, 2); err != nil {
		return err
	}
	if err := rounds.play("calm, low", low, 6); err != nil {
		return err
	}
	if err := m.fill(node, gap/2, node != 0 || other == 0); err != nil {
		return err
	}
	if err := rounds.play("full, critical", critical, 2); err != nil {
		return err
	}
	if err := rounds.play("full, low", low, 4); err != nil {
		return err
	}
	if err := m.stopAll(); err != nil {
		return err
	}
	return rounds.play("calm again, critical", critical, 1)
}

// fill starts a process that leaves this many bytes above the watermark min of the node. With record the files that the
// plugins read are sent.
func (m *machine) fill(node int, left int64, record bool) error {
	zones, err := m.zones.Zones()
	if err != nil {
		return fmt.Errorf("read NUMA nodes: %w", err)
	}
	z := &zones[node]
	if err := m.start("full", "hold", node, int(z.Free-z.Min-left)); err != nil || !record {
		return err
	}
	if err := m.record("zoneinfo", "meminfo", "vmstat"); err != nil {
		return err
	}
	return m.recordPod("full", "memory.numa_stat", "memory.stat", "memory.current")
}

// numaRounds asks numa-memory-pressure again and again about a situation of a NUMA node.
type numaRounds struct {
	machine *machine
	node    int
	// taken is the time of the last round's reading.
	taken time.Time
}

func (r *numaRounds) play(situation string, set *plugins.Set, rounds int) error {
	var answers []numa.Answer
	for range rounds {
		r.taken = r.taken.Add(period)
		answers = append(answers, r.machine.round(set.Plugins()[v1alpha1.NUMAMemoryPressurePlugin], r.taken))
	}
	return r.machine.out.send(numa.Line{Situation: fmt.Sprintf("node %d: %s", r.node, situation), Answers: answers})
}

// stalls has three pods whose tasks are held up by memory.high, and asks system-memory-pressure round by round until it
// names pods.
func (m *machine) stalls() error {
	set, err := m.set(func(s *v1alpha1.PluginSettings) {
		s.SystemMemoryPressure.ReclaimedAfter = &metav1.Duration{Duration: 5 * period}
	})
	if err != nil {
		return err
	}
	for _, pod := range []string{"stalled-1", "stalled-2", "stalled-3"} {
		if err := write(filepath.Join(podsCgroup, pod, "memory.high"), fmt.Sprint(16*mebibyte)); err != nil {
			return err
		}
		if err := m.start(pod, "map", 48*mebibyte); err != nil {
			return err
		}
	}
	if err := m.until("stalls", set.Plugins()[v1alpha1.SystemMemoryPressurePlugin]); err != nil {
		return err
	}
	if err := m.record("pressure/memory"); err != nil {
		return err
	}
	if err := m.recordPod("stalled-1", "memory.pressure"); err != nil {
		return err
	}
	return m.stopAll()
}

// throttling gives all pods a quota, and asks cpu-pressure round by round until it names a pod.
func (m *machine) throttling() error {
	set, err := m.set(func(s *v1alpha1.PluginSettings) {
		s.CPUPressure.Window = &metav1.Duration{Duration: 5 * period}
	})
	if err != nil {
		return err
	}
	if err := write(filepath.Join(podsCgroup, "cpu.max"), "20000 100000"); err != nil {
		return err
	}
	if err := m.start("spins", "spin"); err != nil {
		return err
	}
	if err := m.until("throttling", set.Plugins()[v1alpha1.CPUPressurePlugin]); err != nil {
		return err
	}
	if err := m.record("pressure/cpu", "stat"); err != nil {
		return err
	}
	if err := m.recordPod(".", "cpu.stat", "cpu.pressure"); err != nil {
		return err
	}
	return m.stopAll()
}

// until asks a plugin once in each period until it names pods.
func (m *machine) until(situation string, p plugin.Plugin) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	var answers []numa.Answer
	for range patience {
		a := m.round(p, <-ticker.C)
		answers = append(answers, a)
		if len(a.Pods) > 0 {
			break
		}
	}
	return m.out.send(numa.Line{Situation: situation, Answers: answers})
}

func (m *machine) start(pod, what string, numbers ...int) error {
	args := []string{what}
	for _, n := range numbers {
		args = append(args, fmt.Sprint(n))
	}
	p, err := start(pod, args...)
	if err != nil {
		return err
	}
	m.running = append(m.running, p)
	return nil
}

func (m *machine) stopAll() error {
	for _, p := range m.running {
		if err := p.stop(); err != nil {
			return err
		}
	}
	m.running = nil
	return nil
}

// record reports files of proc.
func (m *machine) record(names ...string) error {
	for _, name := range names {
		if err := m.recordFile(filepath.Join("/proc", name), strings.ReplaceAll(name, "/", "-")); err != nil {
			return err
		}
	}
	return nil
}

// recordPod reports files of the cgroup of a pod, or of that of all pods (".").
func (m *machine) recordPod(pod string, names ...string) error {
	for _, name := range names {
		if err := m.recordFile(filepath.Join(podsCgroup, pod, name), "v2-"+name); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) recordFile(path, name string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return m.out.send(numa.Line{File: name, Content: string(data)})
}
