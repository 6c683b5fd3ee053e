package eviction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// notes keeps the annotations of the last event on each pod, so that they are compared with its kill.
type notes struct{ stage *stage }

func (n *notes) Event(apiruntime.Object, string, string, string)          {}
func (n *notes) Eventf(apiruntime.Object, string, string, string, ...any) {}
func (n *notes) AnnotatedEventf(o apiruntime.Object, annotations map[string]string, kind, reason, f string, a ...any) {
	var name string
	switch o := o.(type) {
	case *v1.Pod: // stock's
		name = o.Name
	case *v1.ObjectReference:
		name = o.Name
	}
	n.stage.mu.Lock()
	defer n.stage.mu.Unlock()
	n.stage.notes[name] = fmt.Sprintf("%s %s %v", kind, reason, annotations)
}

// play is one random sequence: a configuration, pods, and what the node looks like step by step.
type play struct {
	*rand.Rand
	now        time.Time
	settings   settings.ThresholdConfig
	dedicated  bool
	split      bool
	transition time.Duration
	maxGrace   int64
	pods       []*v1.Pod
	usage      map[types.UID]*usage
	levels     map[snapshot.Signal]*level
	// odd makes unusual things happen: missing stats, growth, kills that fail; gaps: pods without stats among them.
	odd, gaps bool
	// ungated: ours runs without the feature gate KubeletSeparateDiskGC.
	ungated bool
	// storageRequests: pods ask for ephemeral storage; limits: limits on local storage are enforced, and pods have some.
	storageRequests, limits bool
	// low is the index of the threshold that is crossed for a while, -1 when none is.
	low int
}

type usage struct {
	memory, disk, logs, inodes, pids int64
	// volume is what is in the pod's emptyDir.
	volume  int64
	missing bool
}

// level is how much of a signal is available; floor is the highest threshold.
type level struct {
	capacity, available, floor int64
	missing                    bool
}

func newPlay(seed int64) *play {
	p := &play{Rand: rand.New(rand.NewSource(seed)), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		usage: map[types.UID]*usage{}, levels: map[snapshot.Signal]*level{}}
	p.odd = p.Intn(12) == 0
	p.storageRequests, p.limits, p.low = p.Intn(4) == 0, p.Intn(4) == 0, -1
	p.gaps = p.odd && p.Intn(2) == 0
	p.dedicated = p.Intn(3) == 0
	p.split = p.dedicated && p.Intn(2) == 0
	// Never a multiple of the steps: a round after a reclaim is a little later than the one before.
	p.transition = time.Duration(1+p.Intn(6))*time.Minute + time.Second/2
	p.maxGrace = int64(p.Intn(90))
	p.configure()
	most := 30
	if p.Intn(10) == 0 {
		most = 199
	}
	for i := range 2 + p.Intn(most) {
		p.addPod(i)
	}
	return p
}

// configure takes one to three signals; more than one need at a time is only now and then of interest.
func (p *play) configure() {
	c := &p.settings
	c.Hard, c.Soft, c.SoftGracePeriods, c.MinimumReclaim = map[string]string{}, map[string]string{}, map[string]string{},
		map[string]string{}
	if p.Intn(3) == 0 {
		c.AllocatableEnforced = []string{"pods"}
	}
	choice := []snapshot.Signal{
		snapshot.MemoryAvailable, snapshot.MemoryAvailable, snapshot.MemoryAvailable, snapshot.NodeFsAvailable,
		snapshot.NodeFsAvailable,
		snapshot.ImageFsAvailable, snapshot.PIDAvailable, snapshot.NodeFsInodesFree,
	}
	for range 1 + p.Intn(2)*p.Intn(2)*p.Intn(3) {
		sig := choice[p.Intn(len(choice))]
		name, amount := sig.String(), int64(1+p.Intn(4))*gi
		value := strconv.FormatInt(amount, 10)
		if p.Intn(4) == 0 {
			value = fmt.Sprintf("%d%%", 3+p.Intn(10))
		}
		if p.Intn(4) > 0 {
			c.Hard[name] = value
		} else {
			c.Soft[name], c.SoftGracePeriods[name] = value, fmt.Sprintf("%ds", 1+p.Intn(60))
		}
		if p.Intn(4) == 0 {
			c.MinimumReclaim[name] = p.reclaim(sig)
		}
	}
}

func (p *play) reclaim(sig snapshot.Signal) string {
	if sig.Resource() == snapshot.ResourcePIDs || sig.Resource() == snapshot.ResourceInodes {
		return strconv.Itoa(p.Intn(100))
	}
	return strconv.FormatInt(int64(p.Intn(500))*mi, 10)
}

func (p *play) addPod(i int) {
	name := fmt.Sprintf("pod-%03d", i)
	pr := int32(p.Intn(4))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: &pr}}
	if p.Intn(30) == 0 {
		critical := int32(2_000_000_000)
		pod.Spec.Priority = &critical
	}
	if p.Intn(2) == 0 {
		g := int64(p.Intn(60))
		pod.Spec.TerminationGracePeriodSeconds = &g
	}
	requests := v1.ResourceList{}
	if p.Intn(3) > 0 {
		requests[v1.ResourceMemory] = *resource.NewQuantity(int64(p.Intn(3000))*mi, resource.BinarySI)
	}
	if p.storageRequests && p.Intn(3) == 0 {
		requests[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(p.Intn(3000))*mi, resource.BinarySI)
	}
	pod.Spec.Containers = []v1.Container{{Name: "c",
		Resources: v1.ResourceRequirements{Requests: requests, Limits: p.limitsFor(requests)}}}
	if p.limits && p.Intn(3) == 0 {
		size := &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(volumeLimit, resource.BinarySI)}
		pod.Spec.Volumes = []v1.Volume{{Name: scratch, VolumeSource: v1.VolumeSource{EmptyDir: size}}}
	}
	p.pods = append(p.pods, pod)
	// Odd low digits keep usages apart: stock's order of equals depends on that of its input.
	p.usage[pod.UID] = &usage{
		memory: p.Int63n(6*gi) + int64(i), disk: p.Int63n(6*gi) + int64(i), logs: p.Int63n(gi), inodes: p.Int63n(25000)*200 +
			int64(i), pids: int64(p.Intn(50)*200 + i),
		volume: p.volume(pod), missing: p.gaps && p.Intn(10) == 0,
	}
}

// The limits of pods on local storage. They are far above what pods use, until one of them breaks its own.
const (
	scratch      = "scratch"
	volumeLimit  = 2 * gi
	storageLimit = 8 * gi
)

func (p *play) volume(pod *v1.Pod) int64 {
	if len(pod.Spec.Volumes) == 0 {
		return 0
	}
	return p.Int63n(volumeLimit)
}

// limitsFor makes pods of every QoS class: guaranteed ones have limits that equal their requests, for CPU and memory.
func (p *play) limitsFor(requests v1.ResourceList) v1.ResourceList {
	limits := v1.ResourceList{}
	if memory, ok := requests[v1.ResourceMemory]; ok && p.Intn(3) == 0 {
		limits[v1.ResourceMemory] = memory
		if p.Intn(2) == 0 {
			requests[v1.ResourceCPU], limits[v1.ResourceCPU] = resource.MustParse("1m"), resource.MustParse("1m")
		}
	}
	if p.limits && p.Intn(3) == 0 {
		limits[v1.ResourceEphemeralStorage] = *resource.NewQuantity(storageLimit, resource.BinarySI)
	}
	return limits
}

// overuse lets one pod break a limit of its own, if it has any.
func (p *play) overuse() {
	if !p.limits || len(p.pods) == 0 || p.Intn(25) > 0 {
		return
	}
	pod := p.pods[p.Intn(len(p.pods))]
	if u := p.usage[pod.UID]; len(pod.Spec.Volumes) > 0 {
		u.volume = volumeLimit + 1
	} else if _, limited := pod.Spec.Containers[0].Resources.Limits[v1.ResourceEphemeralStorage]; limited {
		u.disk = storageLimit + 1
	}
}

// advance moves on to the next scene.
func (p *play) advance(thresholds []policy.Threshold, step int) *scene {
	p.now = p.now.Add([]time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second, 40 * time.Second,
		4 * time.Minute}[p.Intn(5)])
	for i := range thresholds {
		l := p.levelOf(&thresholds[i])
		l.available = l.floor + 200*mi + p.Int63n(400*mi)
		l.missing = p.odd && p.Intn(20) == 0
	}
	if step > 0 && p.Intn(3) == 0 {
		p.low = p.Intn(len(thresholds)+1) - 1
	}
	if p.low >= 0 {
		t := &thresholds[p.low]
		l := p.levelOf(t)
		l.available = t.Quantity(l.capacity).Value() - 1 - p.small(t.Signal)
	}
	if p.odd {
		for _, u := range p.usage {
			u.memory += p.Int63n(20 * mi)
		}
	}
	p.overuse()
	sc := &scene{pods: slices.Clone(p.pods), unkillable: map[string]bool{}}
	p.Shuffle(len(sc.pods), func(i, j int) { sc.pods[i], sc.pods[j] = sc.pods[j], sc.pods[i] })
	sc.summary = p.summary(p.now, 0)
	if p.Intn(40) == 0 {
		sc.probe = probes()[p.Intn(len(probes()))]
	}
	if p.odd && p.Intn(20) == 0 {
		sc.err = errors.New("no summary")
	}
	if p.odd && p.Intn(10) == 0 && len(p.pods) > 0 {
		sc.unkillable[p.pods[p.Intn(len(p.pods))].Name] = true
	}
	bonus := int64(0)
	if p.Intn(60) == 0 {
		bonus = gi
	}
	sc.after = p.summary(p.now.Add(time.Millisecond), bonus)
	return sc
}

// String is for the failure message.
func (p *play) String() string {
	text := fmt.Sprintf("settings %v dedicated=%v split=%v transition=%v odd=%v limits=%v\n", p.settings, p.dedicated,
		p.split, p.transition, p.odd, p.limits)
	for _, sig := range snapshot.AllSignals() {
		if l := p.levels[sig]; l != nil {
			text += fmt.Sprintf("  %s %+v\n", sig, *l)
		}
	}
	for _, pod := range p.pods {
		text += fmt.Sprintf("  %s priority %d %+v\n", pod.Name, *pod.Spec.Priority, *p.usage[pod.UID])
	}
	return text
}

func (p *play) levelOf(t *policy.Threshold) *level {
	l, ok := p.levels[t.Signal]
	if !ok {
		l = &level{capacity: 100 * gi}
		p.levels[t.Signal] = l
	}
	l.floor = max(l.floor, t.Quantity(l.capacity).Value())
	return l
}

// small is by how much a threshold is crossed: mostly little, as it is when a node is watched.
func (p *play) small(sig snapshot.Signal) int64 {
	most := 40 * mi
	if sig.Resource() == snapshot.ResourcePIDs || sig.Resource() == snapshot.ResourceInodes {
		most = 40
	}
	if p.Intn(50) == 0 {
		most *= 50
	}
	return p.Int63n(most)
}

func (p *play) summary(when time.Time, bonus int64) *statsapi.Summary {
	at := metav1.NewTime(when)
	s := &statsapi.Summary{}
	fs := func(space, inodes snapshot.Signal) *statsapi.FsStats {
		f := &statsapi.FsStats{Time: at}
		if l := p.levels[space]; l != nil && !l.missing {
			f.AvailableBytes, f.CapacityBytes = u(l.available+bonus), u(l.capacity)
		}
		if l := p.levels[inodes]; l != nil && !l.missing {
			f.InodesFree, f.Inodes = u(l.available+bonus), u(l.capacity)
		}
		return f
	}
	memory := func(sig snapshot.Signal) *statsapi.MemoryStats {
		l := p.levels[sig]
		if l == nil || l.missing {
			return nil
		}
		return &statsapi.MemoryStats{Time: at, AvailableBytes: u(l.available), WorkingSetBytes: u(l.capacity - l.available)}
	}
	s.Node.Memory = memory(snapshot.MemoryAvailable)
	s.Node.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods,
		Memory: memory(snapshot.AllocatableMemoryAvailable)}}
	s.Node.Fs = fs(snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree)
	s.Node.Runtime = &statsapi.RuntimeStats{ImageFs: fs(snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree),
		ContainerFs: fs(snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree)}
	if l := p.levels[snapshot.PIDAvailable]; l != nil && !l.missing {
		running := l.capacity - l.available
		s.Node.Rlimit = &statsapi.RlimitStats{Time: at, MaxPID: &l.capacity, NumOfRunningProcesses: &running}
	}
	for _, pod := range p.pods {
		if us := p.usage[pod.UID]; !us.missing {
			s.Pods = append(s.Pods, us.stats(pod, at))
		}
	}
	return s
}

func (us *usage) stats(pod *v1.Pod, at metav1.Time) statsapi.PodStats {
	memory := &statsapi.MemoryStats{Time: at, WorkingSetBytes: u(us.memory)}
	var volumes []statsapi.VolumeStats
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, statsapi.VolumeStats{Name: v.Name,
			FsStats: statsapi.FsStats{Time: at, UsedBytes: u(us.volume), InodesUsed: u(0)}})
	}
	return statsapi.PodStats{
		VolumeStats: volumes,
		PodRef:      statsapi.PodReference{UID: string(pod.UID)}, Memory: memory,
		ProcessStats: &statsapi.ProcessStats{ProcessCount: u(us.pids)},
		Containers: []statsapi.ContainerStats{{Name: "c", Memory: memory,
			Rootfs: &statsapi.FsStats{Time: at, UsedBytes: u(us.disk), InodesUsed: u(us.inodes)},
			Logs:   &statsapi.FsStats{Time: at, UsedBytes: u(us.logs), InodesUsed: u(us.inodes / 2)}}},
	}
}

func (p *play) remove(victims []string, sc *scene) {
	for _, v := range victims {
		name, _, _ := strings.Cut(v, " ")
		if !sc.unkillable[name] {
			p.pods = slices.DeleteFunc(p.pods, func(pod *v1.Pod) bool { return pod.Name == name })
		}
	}
}

// answer is what a manager says to a pod that wants to enter.
func answer(h lifecycle.PodAdmitHandler, probe *v1.Pod) string {
	if probe == nil {
		return "nobody asks"
	}
	r := h.Admit(&lifecycle.PodAdmitAttributes{Pod: probe})
	return fmt.Sprintf("%s: admit=%v %s", probe.Name, r.Admit, r.Reason)
}

func probes() []*v1.Pod {
	best := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "best-effort"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	burstable := best.DeepCopy()
	burstable.Name = "burstable"
	burstable.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	critical := best.DeepCopy()
	critical.Name = "critical"
	pr := int32(2_000_000_000)
	critical.Spec.Priority = &pr
	tolerating := best.DeepCopy()
	tolerating.Name = "tolerating"
	tolerating.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists},
		{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}}
	return []*v1.Pod{best, burstable, critical, tolerating}
}

func layoutOf(p *play) snapshot.Layout {
	return snapshot.Layout{Known: true, DedicatedImageFs: p.dedicated, SplitContainerFs: p.split}
}

// verdict is how one sequence ended.
type verdict struct {
	// rules that explain a difference or were touched.
	rules map[string]bool
	// unexplained is the first difference that no rule explains.
	unexplained string
}

// mutant changes our side, to see whether the comparison notices.
type mutant func(c *Config, p *play)

// kubelet is what the KubeletConfiguration of the play sets, with its parsed thresholds.
func (p *play) kubelet(thresholds []policy.Threshold) settings.Kubelet {
	return settings.Kubelet{Thresholds: thresholds, PressureTransitionPeriod: p.transition,
		MaxPodGracePeriodSeconds: p.maxGrace, LocalStorageCapacityIsolation: p.limits}
}

func runPlay(t *testing.T, seed int64, mutate mutant) verdict {
	p := newPlay(seed)
	parsed, err := settings.ParseThresholds(p.settings)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := stock.ParseThresholdConfig(p.settings.AllocatableEnforced, p.settings.Hard, p.settings.Soft,
		p.settings.SoftGracePeriods, p.settings.MinimumReclaim)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Kubelet: p.kubelet(parsed), Features: stockFeatures()}
	if mutate != nil {
		mutate(&c, p)
	}
	ours, err := newOurs(c, p.dedicated, p.split, p.now)
	if err != nil {
		t.Fatal(err)
	}
	if p.ungated {
		if ours.manager.config.Collector, err = ours.collector(false); err != nil {
			t.Fatal(err)
		}
	}
	st := newStock(stock.Config{Thresholds: theirs, PressureTransitionPeriod: p.transition,
		MaxPodGracePeriodSeconds: p.maxGrace}, p.dedicated, p.split, p.limits, p.now)
	defer st.stop()
	effective, _ := policy.Effective(parsed, layoutOf(p))
	o := observer{play: p, thresholds: effective, v: verdict{rules: map[string]bool{}}}
	for step := range 12 {
		sc := p.advance(effective, step)
		o.before(sc)
		want, got := st.step(sc, p.now), ours.step(context.Background(), sc, p.now)
		wantAnswer, gotAnswer := answer(st.admit, sc.probe), answer(ours.manager, sc.probe)
		o.after(sc, want)
		if want.String() != got.String() || wantAnswer != gotAnswer {
			if len(o.v.rules) == 0 {
				o.v.unexplained = fmt.Sprintf("seed %d step %d\nstock: %v\n       %s\nours:  %v\n       %s\n       starved %+v\n%s",
					seed, step, want, wantAnswer, got, gotAnswer, ours.manager.last.Load().Decision.Needs, p)
			}
			return o.v
		}
		p.remove(want.victims, sc)
	}
	return o.v
}

func sequences(t *testing.T, otherwise int) int {
	if s := os.Getenv("PLIMSOLL_SEQUENCES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return otherwise
}

// TestLikeStock plays random sequences to stock's manager and to ours. They do the same, or a rule of the closed list
// says why not.
func TestLikeStock(t *testing.T) {
	total := sequences(t, likeStock)
	if s := os.Getenv("PLIMSOLL_SEED"); s != "" {
		seed, _ := strconv.ParseInt(s, 10, 64)
		t.Logf("%+v", runPlay(t, seed, nil))
		return
	}
	touched := map[string]int{}
	clean := 0
	for seed := range int64(total) {
		v := runPlay(t, seed, nil)
		if v.unexplained != "" {
			t.Fatalf("no rule explains this:\n%s", v.unexplained)
		}
		if len(v.rules) == 0 {
			clean++
		}
		for r := range v.rules {
			touched[r]++
		}
	}
	t.Logf("%d sequences, %d touched no rule", total, clean)
	for _, r := range slices.SortedFunc(maps.Keys(touched), cmp.Compare[string]) {
		t.Logf("%6d %s", touched[r], r)
	}
	if clean*100 < total*63 {
		t.Errorf("only %d of %d sequences touched no rule", clean, total)
	}
}

func TestLikeStockDetectsMutants(t *testing.T) {
	mutants := map[string]mutant{
		"transition period": func(c *Config, _ *play) { c.PressureTransitionPeriod /= 2 },
		"maximal grace":     func(c *Config, _ *play) { c.MaxPodGracePeriodSeconds += 7 },
		"all hard": func(c *Config, _ *play) {
			for i := range c.Thresholds {
				c.Thresholds[i].Soft, c.Thresholds[i].GracePeriod = false, 0
			}
		},
		"no minimum reclaim": func(c *Config, _ *play) {
			for i := range c.Thresholds {
				c.Thresholds[i].MinReclaim = nil
			}
		},
		"layout": func(_ *Config, p *play) { p.ungated = true },
	}
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			for seed := range int64(sequences(t, 2000)) {
				if runPlay(t, seed, m).unexplained != "" {
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}
