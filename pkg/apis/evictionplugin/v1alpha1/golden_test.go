package v1alpha1_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// goldenFiles has messages that this package's code has encoded, and those of Katalyst's generated code, which
// test/katalyst/golden_test.go writes.
const goldenFiles = "../../../../test/katalyst/testdata"

var update = flag.Bool("update", false, "write the golden files of the kubelet")

// goldenPod is the same pod as in test/katalyst.
func goldenPod(t *testing.T) []byte {
	t.Helper()
	pod := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "0a1b2c3d-0000-4000-8000-000000000001",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"b": "2", "a": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o1"}},
		},
		Spec: v1.PodSpec{
			NodeName: "node", Priority: new(int32(7)),
			Containers: []v1.Container{{
				Name: "main", Image: "image",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable},
	}
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// golden are the messages of the protocol, by the names of their files.
func golden(pod []byte) map[string]proto.Message {
	pods := [][]byte{pod}
	condition := &v1alpha1.Condition{
		ConditionType: v1alpha1.ConditionType_CNR_CONDITION, Effects: []string{"NoSchedule", "NoExecute"},
		ConditionName: "MemoryFull", MetCondition: true,
	}
	options := &v1alpha1.DeletionOptions{GracePeriodSeconds: 30}
	// The first record is of the pod above, the second of one without evictions and without budget.
	records := []*v1alpha1.EvictionRecord{
		{
			Uid: "0a1b2c3d-0000-4000-8000-000000000001", HasPdb: true,
			Buckets: &v1alpha1.Buckets{List: []*v1alpha1.Bucket{
				{Time: 1700002800, Duration: 3600, Count: 5}, {Time: 1700013600, Duration: 3600, Count: 300},
			}},
			DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4,
		},
		{Uid: "0a1b2c3d-0000-4000-8000-000000000002", Buckets: &v1alpha1.Buckets{}},
	}
	return map[string]proto.Message{
		"Empty":                  &v1alpha1.Empty{},
		"GetTokenResponse":       &v1alpha1.GetTokenResponse{Token: "token"},
		"GetThresholdMetRequest": &v1alpha1.GetThresholdMetRequest{ActivePods: pods},
		"ThresholdMetResponse": &v1alpha1.ThresholdMetResponse{
			ThresholdValue: 10.5, ObservedValue: -2, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
			MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "memory", GracePeriodSeconds: 10,
			Condition: condition, CandidatePods: pods,
		},
		"GetTopEvictionPodsRequest": &v1alpha1.GetTopEvictionPodsRequest{
			ActivePods: pods, TopN: 300, EvictionScope: "cpu",
			CandidateEvictionRecords: records,
		},
		"GetTopEvictionPodsResponse": &v1alpha1.GetTopEvictionPodsResponse{TargetPods: pods, DeletionOptions: options},
		"GetEvictPodsRequest":        &v1alpha1.GetEvictPodsRequest{ActivePods: pods},
		"GetEvictPodsResponse": &v1alpha1.GetEvictPodsResponse{
			EvictPods: []*v1alpha1.EvictPod{
				{
					Pod: pod, Reason: "too much memory", DeletionOptions: options, ForceEvict: true,
					EvictionPluginName: "golden",
				},
				{Pod: pod},
			},
			Condition: condition,
		},
	}
}

// The messages of this package are Katalyst's on the wire: with the same pods the same values are encoded to the same
// bytes, and these are decoded to the same values. The other direction is tested in test/katalyst, with the files
// that -update writes here.
func TestWireCompatibleWithKatalyst(t *testing.T) {
	const ofKatalyst, ofKubelet = goldenFiles + "/katalyst", goldenFiles + "/kubelet"
	pod := goldenPod(t)
	messages, ours := golden(read(t, ofKatalyst, "Pod")), golden(pod)
	for name, m := range messages {
		want, got := read(t, ofKatalyst, name), encode(t, m)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: encoded to %x, Katalyst's code to %x", name, got, want)
		}
		decoded := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(want, decoded); err != nil || !proto.Equal(decoded, m) {
			t.Errorf("%s: decoded to %v, %v, want %v", name, decoded, err, m)
		}
		compare(t, ofKubelet, name, encode(t, ours[name]))
	}
	compare(t, ofKubelet, "Pod", pod)
	for _, dir := range []string{ofKatalyst, ofKubelet} {
		files, err := filepath.Glob(filepath.Join(dir, "*.bin"))
		if err != nil || len(files) != len(messages)+1 {
			t.Errorf("%d golden files in %s, %v, want %d", len(files), dir, err, len(messages)+1)
		}
	}
}

// A pod of Katalyst's version of Kubernetes is decoded to the same pod.
func TestPodsOfKatalyst(t *testing.T) {
	var pod v1.Pod
	if err := pod.Unmarshal(read(t, goldenFiles+"/katalyst", "Pod")); err != nil {
		t.Fatal(err)
	}
	if got, err := pod.Marshal(); err != nil || !bytes.Equal(got, goldenPod(t)) {
		t.Errorf("decoded to %v, %v", &pod, err)
	}
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func compare(t *testing.T, dir, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(dir, name+".bin"), got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, dir, name); !bytes.Equal(got, want) {
		t.Errorf("%s: encoded to %x, the file has %x", name, got, want)
	}
}
