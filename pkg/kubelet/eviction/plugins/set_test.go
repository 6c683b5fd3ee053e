package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rssoveruse"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// facts are what the plugins read in a test.
type facts struct {
	settings    Settings
	resident    map[types.UID]int64
	memory      systemmemory.Node
	unread      error
	node        *v1.Node
	nodeErr     error
	resource    v1.ResourceList
	resourceErr error
	closed      int
	recorder    *record.FakeRecorder
}

func (f *facts) Close() { f.closed++ }

func (f *facts) Bytes([]*v1.Pod) (map[types.UID]int64, error) { return f.resident, f.unread }

func (f *facts) Zones() ([]numamemory.Zone, error) { return nil, f.unread }

func (f *facts) ByNode([]*v1.Pod) (map[types.UID]map[int]int64, error) { return nil, f.unread }

func (f *facts) Usage([]*v1.Pod) (map[types.UID]int64, error) { return nil, f.unread }

func (f *facts) Stalls([]*v1.Pod) (map[types.UID]float64, error) { return nil, f.unread }

func (f *facts) Node() (n systemmemory.Node, err error) { return f.memory, f.unread }

// noCPU is a machine of whose CPUs nothing is known.
type noCPU struct{ *facts }

func (c noCPU) Node() (n cpupressure.Node, err error) { return n, c.unread }

func (c noCPU) Used([]*v1.Pod) (map[types.UID]time.Duration, error) { return nil, c.unread }

func (f *facts) config() Config {
	return Config{
		Settings: func() Settings { return f.settings }, Recorder: f.recorder, Resident: f, Zones: f, NUMAMemory: f,
		NodeMemory: f, PodMemory: f, CPU: noCPU{f},
		Node:               func(context.Context) (*v1.Node, error) { return f.node, f.nodeErr },
		CustomNodeResource: func(context.Context) (v1.ResourceList, error) { return f.resource, f.resourceErr },
	}
}

func newFacts() *facts {
	return &facts{
		settings: Settings{PluginSettings: v1alpha1.Default().Plugins.Eviction.Settings, Period: 5 * time.Second},
		node:     &v1.Node{}, recorder: record.NewFakeRecorder(10),
	}
}

func newSet(t *testing.T, f *facts) *Set {
	t.Helper()
	s, err := New(f.config())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNames: the plugins are those whose names the configuration accepts.
func TestNames(t *testing.T) {
	names := slices.Sorted(maps.Keys(newSet(t, newFacts()).Plugins()))
	if !slices.Equal(names, v1alpha1.InTreePlugins()) {
		t.Errorf("%q", names)
	}
}

// TestMissingFields: every field of the configuration is required.
func TestMissingFields(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	for i := range typ.NumField() {
		config := newFacts().config()
		reflect.ValueOf(&config).Elem().Field(i).SetZero()
		if _, err := New(config); err == nil {
			t.Errorf("without %s: no error", typ.Field(i).Name)
		}
	}
}

// TestEnabled closes the files of plugins that are not enabled.
func TestEnabled(t *testing.T) {
	f := newFacts()
	s := newSet(t, f)
	s.Enabled(func(name string) bool { return name == rssoveruse.Name })
	before := f.closed
	s.Enabled(func(string) bool { return false })
	if f.closed <= before {
		t.Errorf("closed %d times, then %d", before, f.closed)
	}
}

// TestAllocatableResources: the CustomNodeResource counts more than the Node, resource by resource, and nothing counts
// if one of the two is unknown.
func TestAllocatableResources(t *testing.T) {
	list := func(milliCPU, memory string) v1.ResourceList {
		l := v1.ResourceList{v1.ResourceCPU: resource.MustParse("4")}
		if milliCPU != "" {
			l[reclaimedresource.MilliCPU] = resource.MustParse(milliCPU)
		}
		if memory != "" {
			l[reclaimedresource.Memory] = resource.MustParse(memory)
		}
		return l
	}
	unknown := errors.New("unknown")
	for name, tc := range map[string]struct {
		node, resource       v1.ResourceList
		nodeErr, resourceErr error
		want                 v1.ResourceList
	}{
		"none":                              {node: list("", ""), want: v1.ResourceList{}},
		"Node":                              {node: list("1", "2"), want: list("1", "2")},
		"CustomNodeResource":                {node: list("1", "2"), resource: list("3", "4"), want: list("3", "4")},
		"one of them":                       {node: list("1", "2"), resource: list("", "0"), want: list("1", "0")},
		"Node is unknown":                   {nodeErr: unknown, resource: list("3", "4")},
		"CustomNodeResource is not current": {node: list("1", "2"), resourceErr: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFacts()
			f.node.Status.Allocatable, f.nodeErr, f.resource, f.resourceErr = tc.node, tc.nodeErr, tc.resource, tc.resourceErr
			s := newSet(t, f)
			got, err := s.allocatable(context.Background())
			delete(tc.want, v1.ResourceCPU)
			if (err != nil) != (tc.want == nil) || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%v, %v", got, err)
			}
			answer, callErr := s.Plugins()[reclaimedresource.Name].ThresholdMet(context.Background(), &plugin.View{})
			if !errors.Is(callErr, err) || (answer == nil) != (err != nil) {
				t.Errorf("%+v, %v", answer, callErr)
			}
		})
	}
}

// TestEnding: pods that are deleted, evicted, victims of the last decision or terminating for another reason are being
// stopped; one whose eviction has failed is not, nor is one that the API server is asked to evict.
func TestEnding(t *testing.T) {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	}
	deleted := pod("deleted")
	deleted.DeletionTimestamp = &metav1.Time{}
	v := &plugin.View{Pods: []*v1.Pod{deleted, pod("evicted"), pod("failed"), pod("terminating"), pod("runs")}}
	if got := ending(v); !reflect.DeepEqual(got, map[types.UID]bool{"deleted": true}) {
		t.Errorf("without a round %v", got)
	}
	v.Node = &eviction.Round{Snapshot: &snapshot.Snapshot{
		InFlight: []snapshot.InFlight{
			{UID: "evicted", State: snapshot.Stopped}, {UID: "failed", State: snapshot.Failed},
		},
		Pods: []snapshot.Pod{
			{Facts: snapshot.NewFacts(pod("terminating"), true), Terminating: &snapshot.Termination{}},
			{Facts: snapshot.NewFacts(pod("runs"), true)},
		},
	}}
	for name, killer := range map[string]snapshot.Killer{
		"victim": snapshot.PodWorker, "asked": snapshot.EvictionAPI, "asked too": snapshot.DeleteAPI,
	} {
		v.Node.Decision.Victims = append(v.Node.Decision.Victims,
			policy.Victim{Pod: &snapshot.Pod{Facts: snapshot.NewFacts(pod(name), true)}, Killer: killer})
	}
	want := map[types.UID]bool{"deleted": true, "evicted": true, "terminating": true, "victim": true}
	if got := ending(v); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

// TestOneVictimForTheDisk: a pod is evicted that frees enough. No other is requested while it ends, nor when it has
// ended, until the file system is observed again.
func TestOneVictimForTheDisk(t *testing.T) {
	const gi = 1 << 30
	n := newRecordedNode()
	n.free = 9 * gi
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p, at := newSet(t, n.facts).Plugins()[v1alpha1.RootfsPressurePlugin], start
	round := func(change func(*eviction.Round)) string {
		at = at.Add(n.settings.Period)
		v := n.view(at)
		v.Node.Snapshot.WallTime = at
		v.Node.Snapshot.Signals[snapshot.NodeFsAvailable].At = start
		change(v.Node)
		return answerOf(t, p, v)
	}
	if got := round(func(*eviction.Round) {}); got != "soft reclaimed" {
		t.Fatal(got)
	}
	if got := round(func(r *eviction.Round) {
		r.Decision.Victims = []policy.Victim{{Pod: &r.Snapshot.Pods[1]}}
	}); got != "" {
		t.Errorf("it has just been chosen: %s", got)
	}
	victim := snapshot.InFlight{UID: "reclaimed", State: snapshot.Stopped}
	victim.Expected.Devices[snapshot.NodeDevice].Bytes = 10 * gi
	n.pods = n.pods[:1]
	if got := round(func(r *eviction.Round) { r.Snapshot.InFlight = []snapshot.InFlight{victim} }); got != "" {
		t.Errorf("its containers have exited: %s", got)
	}
	if got := round(func(r *eviction.Round) { r.Snapshot.LastRelease = at }); got != "" {
		t.Errorf("it has been released: %s", got)
	}
	if got := round(func(r *eviction.Round) {
		r.Snapshot.LastRelease, r.Snapshot.Signals[snapshot.NodeFsAvailable].At = at.Add(-n.settings.Period), at
	}); got != "soft shared" {
		t.Errorf("that was not enough: %s", got)
	}
}

// TestDisksOfAnEarlierRound: while the container runtime is slow a round has what pods used of disks in an earlier one,
// and one from before the plugin was enabled may have only the pods with limits. Nothing follows from either.
func TestDisksOfAnEarlierRound(t *testing.T) {
	n := newRecordedNode()
	n.free, n.layers["shared"] = 1, 20<<30
	set := newSet(t, n.facts)
	for _, name := range []string{v1alpha1.RootfsPressurePlugin, v1alpha1.RootfsOverusePlugin} {
		v := n.view(time.Now())
		if demand, err := set.Plugins()[name].EvictPods(context.Background(), v); err != nil || len(demand.Pods) != 1 {
			t.Fatalf("%s: %+v, %v", name, demand, err)
		}
		for what, change := range map[string]func(*eviction.Round){
			"stats are awaited": func(r *eviction.Round) { r.Snapshot.PodsAwaited = true },
			"some pods":         func(r *eviction.Round) { r.AllPods = false },
		} {
			v = n.view(time.Now())
			change(v.Node)
			if demand, err := set.Plugins()[name].EvictPods(context.Background(), v); err == nil {
				t.Errorf("%s, %s: %+v", name, what, demand)
			}
		}
	}
}

// TestNotesAreReportedOnce: a pod with an invalid annotation gets one event, until the annotation is valid again.
func TestNotesAreReportedOnce(t *testing.T) {
	f := newFacts()
	f.resident = map[types.UID]int64{"a": 1}
	p := newSet(t, f).Plugins()[rssoveruse.Name]
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", Annotations: map[string]string{}}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}}}}
	for round, text := range []string{"broken", "broken", "{}", "broken"} {
		pod.Annotations[rssoveruse.EnhancementKey] = text
		v := &plugin.View{Pods: []*v1.Pod{pod}}
		if _, err := p.EvictPods(context.Background(), v); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ThresholdMet(context.Background(), v); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 0, 0, 1}[round]; len(f.recorder.Events) != want {
			t.Errorf("round %d: %d events, want %d", round, len(f.recorder.Events), want)
		}
		for len(f.recorder.Events) > 0 {
			t.Log(<-f.recorder.Events)
		}
	}
}

// TestQuestions: a question is answered with the pods of its own scope only, as many as are asked for, and without
// those that may not be named any more.
func TestQuestions(t *testing.T) {
	f := newFacts()
	f.node.Status.Allocatable = v1.ResourceList{reclaimedresource.MilliCPU: resource.MustParse("0")}
	p := newSet(t, f).Plugins()[reclaimedresource.Name]
	v := &plugin.View{}
	for _, name := range []string{"a", "b", "c"} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		pod.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores}
		pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{reclaimedresource.MilliCPU: resource.MustParse("1")}}}}
		v.Pods = append(v.Pods, pod)
	}
	threshold, err := p.ThresholdMet(context.Background(), v)
	if err != nil || threshold.Kind != arbiter.Hard {
		t.Fatalf("%+v, %v", threshold, err)
	}
	for _, tc := range []struct {
		topN  uint64
		scope string
		pods  []*v1.Pod
		want  []types.UID
	}{
		{0, threshold.Scope, v.Pods, []types.UID{"a", "b", "c"}}, {1, threshold.Scope, v.Pods, []types.UID{"a"}},
		{1, threshold.Scope, v.Pods[1:], []types.UID{"b"}}, {1, threshold.Scope, nil, nil}, {1, "other", v.Pods, nil},
	} {
		reply, err := p.TopEvictionPods(context.Background(), &plugin.View{Pods: tc.pods},
			arbiter.Question{Scope: tc.scope, TopN: tc.topN})
		if err != nil || !slices.Equal(reply.Pods, tc.want) || (len(tc.want) > 0 && *reply.GraceSeconds != 60) {
			t.Errorf("%+v: %+v, %v", tc, reply, err)
		}
	}
}

// TestUnreadFilesAreLogged: what cannot be read is in the log with its file and its error, also if the plugin answers
// without it: once as long as it stays the same, and at most once in a minute.
func TestUnreadFilesAreLogged(t *testing.T) {
	var lines []string
	logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	ctx := klog.NewContext(context.Background(), logger)
	f := newFacts()
	f.memory = systemmemory.Node{Free: new(int64(1 << 40)), Total: new(int64(1 << 40)), ScaleFactor: new(int64(10))}
	p := newSet(t, f).Plugins()[systemmemory.Name]
	start := time.Now()
	first, second := errors.New("open /first: denied"), errors.New("open /second: denied")
	for _, tc := range []struct {
		at     time.Duration
		unread error
		want   string
	}{
		{0, nil, ""}, {5 * time.Second, first, "/first"}, {10 * time.Second, first, ""}, {15 * time.Second, second, ""},
		{20 * time.Second, nil, ""}, {25 * time.Second, first, ""}, {65 * time.Second, second, "/second"},
		{time.Hour, second, ""}, {time.Hour + time.Second, nil, ""}, {time.Hour + 2*time.Second, second, "/second"},
	} {
		lines, f.unread = nil, tc.unread
		v := &plugin.View{Taken: start.Add(tc.at)}
		if answer, err := p.ThresholdMet(ctx, v); err != nil || answer == nil {
			t.Fatal(err)
		}
		if _, err := p.EvictPods(ctx, v); err != nil {
			t.Fatal(err)
		}
		lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "cannot read") })
		if len(lines) != min(1, len(tc.want)) || !strings.Contains(strings.Join(lines, ""), tc.want) {
			t.Errorf("after %v: %q, want %q", tc.at, lines, tc.want)
		}
	}
	f.memory, f.unread = systemmemory.Node{}, fmt.Errorf("open /%s: denied", strings.Repeat("x", 10<<10))
	lines = nil
	v := &plugin.View{Taken: start.Add(2 * time.Hour)}
	if _, err := p.ThresholdMet(ctx, v); !errors.Is(err, f.unread) {
		t.Errorf("the missing answer does not name the file: %v", err)
	}
	if len(lines) != 1 || len(lines[0]) > 2*maxUnread {
		t.Errorf("a long error: %d lines", len(lines))
	}
}

// TestMissingAnswersNameFiles: each plugin without what it needs names the file in the error of its answer.
func TestMissingAnswersNameFiles(t *testing.T) {
	f := newFacts()
	f.unread = errors.New("open /file: denied")
	s := newSet(t, f)
	v := &plugin.View{Pods: []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}}}
	for _, name := range []string{rssoveruse.Name, numamemory.Name, systemmemory.Name, cpupressure.Name} {
		if _, err := s.Plugins()[name].EvictPods(context.Background(), v); !errors.Is(err, f.unread) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConditionOverARestart: a condition of an earlier run of the agent stays True while the plugin measures again for
// how long tasks have been stalled (E16).
func TestConditionOverARestart(t *testing.T) {
	n := newRecordedNode()
	n.memory.Stall, n.stalls = new(90.0), map[types.UID]float64{"a": 50, "b": 50, "c": 50}
	config := n.config()
	config.NodeMemory, config.PodMemory = n, n
	set, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	limits := &arbiter.Rules{Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600, ConditionTransitionPeriod: time.Minute}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	restored := []arbiter.RestoredCondition{{Name: "MemoryPressure", True: true, Since: at}}
	state := arbiter.State{}.Restore(restored, limits, at)
	for range 6 {
		at = at.Add(n.settings.Period)
		threshold, err := set.Plugins()[systemmemory.Name].ThresholdMet(context.Background(), n.view(at))
		if err != nil {
			t.Fatal(err)
		}
		answers := arbiter.Answers{Active: []string{systemmemory.Name}, Begun: true, Plugins: []arbiter.Answer{
			{Plugin: systemmemory.Name, Asked: at, Demand: &arbiter.Demand{}, Threshold: threshold},
		}}
		var outcome arbiter.Outcome
		outcome, state = arbiter.Settle(answers, nil, limits, state, at)
		if c := outcome.Conditions; len(c) != 1 || !c[0].True {
			t.Errorf("%+v", c)
		}
	}
}

// TestGraceWithTwoResources: both thresholds of reclaimed resources are met, one is exceeded more in one round and the
// other in the next. A pod is requested after the grace period all the same.
func TestGraceWithTwoResources(t *testing.T) {
	f := newFacts()
	f.settings.ReclaimedResourcePressure.MetFor = &metav1.Duration{Duration: 15 * time.Second}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	pod.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		reclaimedresource.MilliCPU: resource.MustParse("7000"), reclaimedresource.Memory: resource.MustParse("7000")}}}}
	p := newSet(t, f).Plugins()[reclaimedresource.Name]
	limits := &arbiter.Rules{Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600}
	at, state := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), arbiter.State{}
	var asked []int
	for round := range 8 {
		at = at.Add(5 * time.Second)
		f.resource = v1.ResourceList{
			reclaimedresource.MilliCPU: *resource.NewQuantity(int64(999+round%2), resource.DecimalSI),
			reclaimedresource.Memory:   *resource.NewQuantity(int64(1000-round%2), resource.DecimalSI),
		}
		threshold, err := p.ThresholdMet(context.Background(), &plugin.View{Taken: at, Pods: []*v1.Pod{pod}})
		if err != nil {
			t.Fatal(err)
		}
		answers := arbiter.Answers{Active: []string{reclaimedresource.Name}, Begun: true, Plugins: []arbiter.Answer{
			{Plugin: reclaimedresource.Name, Asked: at, Demand: &arbiter.Demand{}, Threshold: threshold},
		}}
		var outcome arbiter.Outcome
		outcome, state = arbiter.Settle(answers, []arbiter.Pod{{UID: "a"}}, limits, state, at)
		if len(outcome.Questions) > 0 {
			asked = append(asked, round)
		}
	}
	if !slices.Equal(asked, []int{3, 4, 5, 6, 7}) {
		t.Errorf("asked for a pod in the rounds %v", asked)
	}
}

// TestNoticeInsteadOfEviction: a pod that is given notice uses most, and goes on. Another one is evicted.
func TestNoticeInsteadOfEviction(t *testing.T) {
	n := newRecordedNode()
	n.free, n.layers["shared"], n.layers["second"] = 1, 20<<30, 15<<30
	second := n.pods[0].DeepCopy()
	second.Name, second.UID = "second", "second"
	n.pods[0].Annotations[arbiter.SoftNoticeKey] = "true"
	n.pods = []*v1.Pod{n.pods[0], second}
	set := newSet(t, n.facts)
	for _, name := range []string{v1alpha1.RootfsPressurePlugin, v1alpha1.RootfsOverusePlugin} {
		demand, err := set.Plugins()[name].EvictPods(context.Background(), n.view(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		limits := &arbiter.Rules{Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600}
		answers := arbiter.Answers{Active: []string{name}, Begun: true, Plugins: []arbiter.Answer{
			{Plugin: name, Demand: demand, Threshold: &arbiter.Threshold{}},
		}}
		outcome, _ := arbiter.Settle(answers, []arbiter.Pod{{UID: "shared", NotifyOnly: true}, {UID: "second"}}, limits,
			arbiter.State{}, time.Now())
		if len(outcome.Notices) != 1 || outcome.Notices[0].UID != "shared" || len(outcome.Requests) != 1 ||
			outcome.Requests[0].UID != "second" {
			t.Errorf("%s: notices %+v, requests %+v", name, outcome.Notices, outcome.Requests)
		}
	}
}

// TestPanic: a round in which the rule panics has no answer, not that of the round before.
func TestPanic(t *testing.T) {
	n := newRecordedNode()
	n.free = 1
	p := newSet(t, n.facts).plugins[v1alpha1.RootfsPressurePlugin].(*rulePlugin)
	if got := answerOf(t, p, n.view(time.Now())); got != "soft reclaimed" {
		t.Fatal(got)
	}
	p.decide = func(context.Context, *plugin.View) (rule.Finding, error) { panic("rule") }
	v := n.view(time.Now())
	func() {
		defer func() { _ = recover() }()
		_, _ = p.EvictPods(context.Background(), v)
	}()
	if demand, err := p.EvictPods(context.Background(), v); err == nil {
		t.Errorf("%+v", demand)
	}
}
