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
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

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

func reported(names ...string) podStats {
	var s podStats
	for _, name := range names {
		s.reported = append(s.reported, statsapi.PodStats{
			PodRef: statsapi.PodReference{UID: name}, Memory: &statsapi.MemoryStats{WorkingSetBytes: u(int64(memoryOf(name)))},
		})
	}
	return s
}

// joined tells of each pod whether it has stats (s), a cgroup (c), is being terminated (t).
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

func TestBuilderJoinsPodsWithTheirFigures(t *testing.T) {
	b := builder{requested: func(uid types.UID) bool { return uid == "stopping" }}
	deleted := plainPod("deleted")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	f := &figures{
		pods:   reported("b", "limited", "stranger"),
		memory: &snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{"a": {}}},
	}
	active := []*v1.Pod{plainPod("stopping"), plainPod("b"), limitedPod("limited"), deleted, plainPod("a")}
	expect(t, "every pod, in the order of UIDs", joined(b.pods(active, f, everyPod)),
		[]string{"a c", "b s", "deleted t", "limited s", "stopping t"})
	expect(t, "those with limits", joined(b.pods(active, f, limitedPods)), []string{"limited s"})
	expect(t, "none", joined(b.pods(active, f, noPod)), []string{})
	f.pods = reported("b")
	expect(t, "with figures of this round only", joined(b.pods(active, f, everyPod)),
		[]string{"a c", "b s", "deleted t", "limited ", "stopping t"})
	f.pods, f.memory = podStats{}, nil
	expect(t, "with no figures", joined(b.pods(active[:2], f, everyPod)), []string{"b ", "stopping t"})
	expect(t, "no pods", joined(b.pods(nil, f, everyPod)), []string{})
}

// TestBuilderKeepsFactsPerObject: facts are derived once, and again for a new object of the same pod.
func TestBuilderKeepsFactsPerObject(t *testing.T) {
	b, f := builder{}, &figures{}
	first, other := plainPod("a"), plainPod("b")
	one := b.pods([]*v1.Pod{first, other}, f, everyPod)
	two := b.pods([]*v1.Pod{other, first}, f, everyPod)
	if one[0].Facts != two[0].Facts || one[1].Facts != two[1].Facts {
		t.Error("facts are derived again although nothing has changed")
	}
	changed := limitedPod("a")
	three := b.pods([]*v1.Pod{changed, other}, f, everyPod)
	if three[0].Limits == nil || three[1].Facts != one[1].Facts {
		t.Error("the new object is not looked at")
	}
	if one[0].Limits != nil {
		t.Error("an earlier snapshot has changed")
	}
}

// TestBuilderForgets: pods come and go, and a pod that is gone is in no snapshot.
func TestBuilderForgets(t *testing.T) {
	b, f := builder{}, &figures{}
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
