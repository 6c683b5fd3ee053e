package snapshot

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

func number(n uint64) *uint64 { return &n }

func fullSummary(at metav1.Time) *statsapi.Summary {
	pids, running := int64(100), int64(30)
	fs := func(base uint64) *statsapi.FsStats {
		return &statsapi.FsStats{Time: at, AvailableBytes: number(base), CapacityBytes: number(10 * base),
			InodesFree: number(base + 1), Inodes: number(base + 2)}
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: number(40), WorkingSetBytes: number(60)},
		SystemContainers: []statsapi.ContainerStats{{Name: "kubelet"},
			{Name: "pods", Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: number(4), WorkingSetBytes: number(6)}}},
		Fs:      fs(1000),
		Runtime: &statsapi.RuntimeStats{ImageFs: fs(2000), ContainerFs: fs(3000)},
		Rlimit:  &statsapi.RlimitStats{Time: at, MaxPID: &pids, NumOfRunningProcesses: &running},
	}}
}

func TestFromSummary(t *testing.T) {
	at := metav1.NewTime(time.Unix(5, 0))
	got := FromSummary(fullSummary(at))
	want := map[Signal][2]int64{
		MemoryAvailable: {40, 100}, AllocatableMemoryAvailable: {4, 10}, PIDAvailable: {70, 100},
		NodeFsAvailable: {1000, 10000}, NodeFsInodesFree: {1001, 1002}, ImageFsAvailable: {2000, 20000},
		ImageFsInodesFree:    {2001, 2002},
		ContainerFsAvailable: {3000, 30000}, ContainerFsInodesFree: {3001, 3002},
	}
	for _, sig := range AllSignals() {
		if w := (Observation{Available: want[sig][0], Capacity: want[sig][1], At: WallTime(at.Time)}); got[sig] != w {
			t.Errorf("%s: %+v, want %+v", sig, got[sig], w)
		}
	}
}

// TestMissingPartsConcernTheirOwnSignals takes one part away at a time (D10).
func TestMissingPartsConcernTheirOwnSignals(t *testing.T) {
	tests := map[string]struct {
		take func(*statsapi.NodeStats)
		lost []Signal
	}{
		"memory":           {func(n *statsapi.NodeStats) { n.Memory = nil }, []Signal{MemoryAvailable}},
		"available memory": {func(n *statsapi.NodeStats) { n.Memory.AvailableBytes = nil }, []Signal{MemoryAvailable}},
		"pods": {func(n *statsapi.NodeStats) { n.SystemContainers = n.SystemContainers[:1] },
			[]Signal{AllocatableMemoryAvailable}},
		"PIDs":          {func(n *statsapi.NodeStats) { n.Rlimit.MaxPID = nil }, []Signal{PIDAvailable}},
		"nodefs":        {func(n *statsapi.NodeStats) { n.Fs = nil }, []Signal{NodeFsAvailable, NodeFsInodesFree}},
		"nodefs inodes": {func(n *statsapi.NodeStats) { n.Fs.Inodes = nil }, []Signal{NodeFsInodesFree}},
		"runtime": {func(n *statsapi.NodeStats) { n.Runtime = nil },
			[]Signal{ImageFsAvailable, ImageFsInodesFree, ContainerFsAvailable, ContainerFsInodesFree}},
		"imagefs": {func(n *statsapi.NodeStats) { n.Runtime.ImageFs = nil },
			[]Signal{ImageFsAvailable, ImageFsInodesFree}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			summary := fullSummary(metav1.Time{})
			test.take(&summary.Node)
			var lost []Signal
			for sig, o := range FromSummary(summary) {
				if Signal(sig) != NoSignal && !o.Known() {
					lost = append(lost, Signal(sig))
				}
			}
			if !reflect.DeepEqual(lost, test.lost) {
				t.Errorf("lost %v, want %v", lost, test.lost)
			}
		})
	}
}

func TestUsageAboveTheLimitIsNegative(t *testing.T) {
	limit, used := uint64(100), uint64(130)
	o := memoryObservation(&statsapi.MemoryStats{AvailableBytes: number(limit - used), WorkingSetBytes: number(used)})
	if o.Available != -30 || o.Capacity != 100 {
		t.Errorf("%+v", o)
	}
	if o := observation(5, -1, time.Time{}); !errors.Is(o.Err, ErrImplausible) {
		t.Errorf("%+v", o)
	}
}

func TestSignalsMatchStocks(t *testing.T) {
	if len(AllSignals()) != len(evictionapi.OpForSignal) {
		t.Errorf("%d signals, stock has %d", len(AllSignals()), len(evictionapi.OpForSignal))
	}
	for name := range evictionapi.OpForSignal {
		if sig, ok := ParseSignal(string(name)); !ok || sig.API() != name {
			t.Errorf("%s is not known", name)
		}
	}
}

func TestLayouts(t *testing.T) {
	single, dedicated, split := Layout{Known: true}, Layout{Known: true, DedicatedImageFs: true},
		Layout{Known: true, DedicatedImageFs: true, SplitContainerFs: true}
	all := Measure{WritableLayers: true, Logs: true, Volumes: true}
	for _, test := range []struct {
		layout    Layout
		container Device
		image     Device
		onNode    Measure
		onImage   Measure
	}{
		{single, NodeDevice, NodeDevice, all, all},
		{dedicated, ImageDevice, ImageDevice, Measure{Logs: true, Volumes: true}, Measure{WritableLayers: true}},
		{split, NodeDevice, ImageDevice, all, Measure{Images: true}},
	} {
		if test.layout.DeviceOf(ContainerFsAvailable) != test.container ||
			test.layout.DeviceOf(ImageFsInodesFree) != test.image ||
			test.layout.DeviceOf(NodeFsAvailable) != NodeDevice {
			t.Errorf("%+v: wrong devices", test.layout)
		}
		if test.layout.MeasureOf(NodeDevice) != test.onNode || test.layout.MeasureOf(ImageDevice) != test.onImage {
			t.Errorf("%+v: wrong measures", test.layout)
		}
	}
}

func examplePod() *v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	storage := func(q string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(q)}
	}
	return &v1.Pod{Spec: v1.PodSpec{
		Overhead: v1.ResourceList{v1.ResourceMemory: resource.MustParse("10"),
			v1.ResourceEphemeralStorage: resource.MustParse("10")},
		Volumes: []v1.Volume{
			{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(7,
				resource.BinarySI)}}},
			{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
			{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}},
			{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
		},
		InitContainers: []v1.Container{
			{Name: "once", Resources: v1.ResourceRequirements{Limits: storage("9")}},
			{Name: "sidecar", RestartPolicy: &always, Resources: v1.ResourceRequirements{Limits: storage("3")}},
		},
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Limits: storage("5"), Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100")}}}},
	}}
}

func TestFacts(t *testing.T) {
	f := NewFacts(examplePod(), true)
	if f.MemoryRequest != 110 || f.StorageRequest != 0 {
		t.Errorf("requests %d and %d: overhead belongs to requests that are not zero", f.MemoryRequest, f.StorageRequest)
	}
	if !reflect.DeepEqual(f.Volumes, []string{"disk", "host"}) {
		t.Errorf("volumes %v", f.Volumes)
	}
	var limited []string
	for _, l := range append(f.Limits.EmptyDirs, f.Limits.Containers...) {
		limited = append(limited, l.Name)
	}
	if !reflect.DeepEqual(limited, []string{"disk", "sidecar", "c"}) {
		t.Errorf("limits of %v", limited)
	}
	if f.Grace() != 30 || f.Critical {
		t.Errorf("grace %d, critical %v", f.Grace(), f.Critical)
	}
	if NewFacts(&v1.Pod{}, true).Limits != nil {
		t.Error("a pod without limits has none")
	}
}

// detailedPod says all that facts are derived from.
func detailedPod() *v1.Pod {
	pod := examplePod()
	pod.ObjectMeta = metav1.ObjectMeta{
		UID: "uid", Namespace: "ns", Name: "name", ResourceVersion: "123", CreationTimestamp: metav1.Unix(1e9, 0),
		Annotations: map[string]string{
			AnnotationPrefix + "opt-out": "memory", "kubernetes.io/config.source": "file", "secret": "not for decisions",
		},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Node"}, {Kind: "ReplicaSet", Controller: new(true)}},
	}
	pod.Spec.Priority = new(int32(7))
	pod.Spec.TerminationGracePeriodSeconds = new(int64(45))
	pod.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1024Mi")},
	}
	return pod
}

func TestFactsOfADetailedPod(t *testing.T) {
	got := NewFacts(detailedPod(), true)
	got.Limits, got.Volumes, got.MemoryVolumes = nil, nil, nil // TestFacts looks at these
	none := Quantity{Text: "0"}
	want := &Facts{
		UID: "uid", Namespace: "ns", Name: "name", ResourceVersion: "123", Created: time.Unix(1e9, 0),
		OwnerKind: "ReplicaSet", Priority: 7, QOS: v1.PodQOSBurstable, Static: true, Critical: true,
		GracePeriodSeconds: new(int64(45)),
		MemoryRequest:      1<<30 + 10, PodLevelMemory: &Quantity{Amount: 1 << 30, Text: "1Gi"},
		Containers: []ContainerFacts{
			{"c", Quantity{100, "100"}, none}, {"once", none, none}, {"sidecar", none, none},
		},
		Annotations: map[string]string{AnnotationPrefix + "opt-out": "memory"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c := got.Container("sidecar"); c == nil || c.Name != "sidecar" || got.Container("ephemeral") != nil {
		t.Errorf("containers by name: %+v, %+v", c, got.Container("ephemeral"))
	}
}

// TestReference: events about a pod refer to what they would refer to if they were made from its object.
func TestReference(t *testing.T) {
	want, err := reference.GetReference(scheme.Scheme, detailedPod())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, NewFacts(detailedPod(), true).Reference()); diff != "" {
		t.Errorf("(-from the object +from the facts):\n%s", diff)
	}
}

// TestFactsArePlainValues: they can be written and read again, and do not change with the object.
func TestFactsArePlainValues(t *testing.T) {
	object := detailedPod()
	facts := NewFacts(object, true)
	data, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	*object.Spec.TerminationGracePeriodSeconds = 1
	object.Annotations[AnnotationPrefix+"opt-out"] = "pid"
	object.Spec.Volumes[0].Name, object.Spec.Containers[0].Name = "other", "other"
	object.Spec.Volumes[0].EmptyDir.SizeLimit.Set(1)
	delete(object.Spec.Resources.Requests, v1.ResourceMemory)
	again := &Facts{}
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(again, facts); diff != "" {
		t.Errorf("(-written and read +after the object has changed):\n%s", diff)
	}
}

// TestQuantity: a whole number of bytes is above Amount if and only if it is above the quantity.
func TestQuantity(t *testing.T) {
	for text, want := range map[string]Quantity{
		"0": {0, "0"}, "1024Mi": {1 << 30, "1Gi"}, "1500m": {1, "1500m"}, "1": {1, "1"}, "999m": {0, "999m"},
		"2000": {2000, "2k"}, "7Ei": {7 << 60, "7Ei"}, "100E": {math.MaxInt64, "100E"},
		"0.5Gi": {1 << 29, "512Mi"},
	} {
		if got := newQuantity(resource.MustParse(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	// A sum in binary units prints without a suffix what would be read as one in decimal units.
	if got := newQuantity(*resource.NewQuantity(2000, resource.BinarySI)); got != (Quantity{2000, "2000"}) {
		t.Errorf("%+v", got)
	}
}
