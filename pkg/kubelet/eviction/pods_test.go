package eviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func plainPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
}

func limitedPod(name string) *v1.Pod {
	pod := plainPod(name)
	pod.Spec.Volumes = []v1.Volume{{Name: "v",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1,
			resource.BinarySI)}}}}
	return pod
}

// memoryOf is what a pod of that name uses.
func memoryOf(name string) (sum snapshot.Bytes) {
	for _, letter := range name {
		sum = sum<<4 + snapshot.Bytes(letter)
	}
	return sum
}

// fakePodStats are the stats of pods of these names.
type fakePodStats []string

func (s fakePodStats) Len() int         { return len(s) }
func (s fakePodStats) UID(i int) string { return s[i] }

func (s fakePodStats) Usages(from, to int) (list []snapshot.Usage) {
	for _, name := range s[from:to] {
		list = append(list, snapshot.Usage{Memory: memoryOf(name)})
	}
	return list
}

// joined lists for each pod whether it has stats (s), a cgroup (c), is being terminated (t).
func joined(pods []snapshot.Pod) (list []string) {
	for i := range pods {
		p := &pods[i]
		text := p.Name + " "
		if p.Usage != nil && p.Usage.Memory == memoryOf(p.Name) {
			text += "s"
		}
		if p.Cgroup != nil {
			text += "c"
		}
		if p.Terminating != nil {
			text += "t"
		}
		list = append(list, text)
	}
	return list
}

func TestBuilderJoinsPodsWithTheirStats(t *testing.T) {
	b := builder{
		requested: func(uid types.UID) bool { return uid == "stopping" },
		deadline:  func(types.UID) time.Time { return time.Time{} },
	}
	deleted := plainPod("deleted")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	f := &stats{
		Stats:  snapshot.Stats{Pods: fakePodStats{"b", "limited", "stranger"}},
		memory: &snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{"a": {}}},
	}
	active := []*v1.Pod{plainPod("stopping"), plainPod("b"), limitedPod("limited"), deleted, plainPod("a")}
	expect(t, "every pod, in the order of UIDs", joined(b.pods(active, f, everyPod)),
		[]string{"a c", "b s", "deleted t", "limited s", "stopping t"})
	expect(t, "those with limits", joined(b.pods(active, f, limitedPods)), []string{"limited s"})
	expect(t, "none", joined(b.pods(active, f, noPod)), []string{})
	f.Pods, f.usages = fakePodStats{"b"}, nil
	expect(t, "with stats of this round only", joined(b.pods(active, f, everyPod)),
		[]string{"a c", "b s", "deleted t", "limited ", "stopping t"})
	f.Pods, f.usages, f.memory = nil, nil, nil
	expect(t, "with no stats", joined(b.pods(active[:2], f, everyPod)), []string{"b ", "stopping t"})
	expect(t, "no pods", joined(b.pods(nil, f, everyPod)), []string{})
}

// TestBuilderKeepsFactsPerObject: facts are derived once, and again for a new object of the same pod.
func TestBuilderKeepsFactsPerObject(t *testing.T) {
	b, f := builder{}, &stats{}
	first, other := plainPod("a"), plainPod("b")
	one := b.pods([]*v1.Pod{first, other}, f, everyPod)
	two := b.pods([]*v1.Pod{other, first}, f, everyPod)
	if one[0].Facts != two[0].Facts || one[1].Facts != two[1].Facts {
		t.Error("facts are derived again although nothing has changed")
	}
	changed := limitedPod("a")
	three := b.pods([]*v1.Pod{changed, other}, f, everyPod)
	if three[0].Limits == nil || three[1].Facts != one[1].Facts {
		t.Error("the new object is not used")
	}
	if one[0].Limits != nil {
		t.Error("an earlier snapshot has changed")
	}
}

// TestBuilderForgets: pods come and go, and a pod that is gone is in no snapshot.
func TestBuilderForgets(t *testing.T) {
	b, f := builder{}, &stats{}
	for i := range 1000 {
		active := []*v1.Pod{plainPod(fmt.Sprintf("pod-%04d", i)), plainPod(fmt.Sprintf("pod-%04d", i+1))}
		slices.Reverse(active)
		if got := joined(b.pods(active, f, everyPod)); len(got) != 2 || got[0] != fmt.Sprintf("pod-%04d ", i) {
			t.Fatalf("round %d: %q", i, got)
		}
	}
	if len(b.byUID) > 100 || len(b.byObject) > 100 {
		t.Errorf("%d pods by UID and %d by object are kept", len(b.byUID), len(b.byObject))
	}
}

// TestPodStatsAreConvertedOnce: rounds that are made from one collection share what it was converted to.
func TestPodStatsAreConvertedOnce(t *testing.T) {
	f := stats{Stats: snapshot.Stats{Pods: fakePodStats{"a", "b"}}}
	expect(t, "alone", *f.usage(1), snapshot.Usage{Memory: memoryOf("b")})
	f.convert()
	first := f.usage(1)
	f.convert()
	expect(t, "the same again", f.usage(1) == first, true)
	expect(t, "with all", *first, snapshot.Usage{Memory: memoryOf("b")})
}
