package plugins

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rssoveruse"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// facts are what the plugins read in a test.
type facts struct {
	settings    Settings
	resident    map[types.UID]int64
	node        *v1.Node
	nodeErr     error
	resource    v1.ResourceList
	resourceErr error
	closed      int
	recorder    *record.FakeRecorder
}

func (f *facts) Close() { f.closed++ }

func (f *facts) Bytes([]*v1.Pod) map[types.UID]int64 { return f.resident }

func (f *facts) Zones() ([]numamemory.Zone, error) { return nil, nil }

func (f *facts) ByNode([]*v1.Pod) map[types.UID]map[int]int64 { return nil }

func (f *facts) Usage([]*v1.Pod) map[types.UID]int64 { return nil }

func (f *facts) Stalls([]*v1.Pod) map[types.UID]float64 { return nil }

func (f *facts) Node() (n systemmemory.Node) { return n }

// noCPU is a machine of whose CPUs nothing is known.
type noCPU struct{ *facts }

func (noCPU) Node() (n cpupressure.Node) { return n }

func (noCPU) Used([]*v1.Pod) map[types.UID]time.Duration { return nil }

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

// TestEnding: pods that are deleted, evicted or terminating for another reason are being stopped; one whose eviction
// has failed is not.
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
	want := map[types.UID]bool{"deleted": true, "evicted": true, "terminating": true}
	if got := ending(v); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
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
