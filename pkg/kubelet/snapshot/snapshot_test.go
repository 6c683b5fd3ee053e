package snapshot

import (
	"encoding/json"
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
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
)

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

// detailedPod sets every field that facts are derived from.
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
	got.Limits, got.Volumes, got.MemoryVolumes = nil, nil, nil // TestFacts compares these
	none := Quantity{Text: "0"}
	want := &Facts{
		UID: "uid", Namespace: "ns", Name: "name", ResourceVersion: "123", Created: time.Unix(1e9, 0),
		OwnerKind: "ReplicaSet", Priority: 7, QOS: v1.PodQOSBurstable, Static: true, Critical: true, Overhead: true,
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

// TestReference: the reference for events is the same as one made from the object of the pod.
func TestReference(t *testing.T) {
	want, err := reference.GetReference(scheme.Scheme, detailedPod())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, NewFacts(detailedPod(), true).Reference()); diff != "" {
		t.Errorf("(-from the object +from the facts):\n%s", diff)
	}
}

// TestFactsArePlainValues: facts can be encoded and decoded, and do not change with the object.
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

// TestQuantity: a whole number of bytes exceeds Amount if and only if it exceeds the quantity.
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
