package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewharf/katalyst-api/pkg/protocol/evictionplugin/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files of Katalyst")

// message is what Katalyst's generated code has.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal(data []byte) error
	Reset()
}

// goldenPod is the pod in the golden messages. The kubelet's test has the same.
func goldenPod() *v1.Pod {
	priority := int32(7)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "0a1b2c3d-0000-4000-8000-000000000001",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"b": "2", "a": "1"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o1"}},
		},
		Spec: v1.PodSpec{
			NodeName: "node", Priority: &priority,
			Containers: []v1.Container{{
				Name: "main", Image: "image",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable},
	}
}

// golden are the messages of the protocol, by the names of their files, each with an empty message of its type.
func golden() map[string][2]message {
	pods := []*v1.Pod{goldenPod()}
	condition := func() *v1alpha1.Condition {
		return &v1alpha1.Condition{
			ConditionType: v1alpha1.ConditionType_CNR_CONDITION, Effects: []string{"NoSchedule", "NoExecute"},
			ConditionName: "MemoryFull", MetCondition: true,
		}
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
	return map[string][2]message{
		"Empty":            {&v1alpha1.Empty{}, &v1alpha1.Empty{}},
		"GetTokenResponse": {&v1alpha1.GetTokenResponse{Token: "token"}, &v1alpha1.GetTokenResponse{}},
		"GetThresholdMetRequest": {
			&v1alpha1.GetThresholdMetRequest{ActivePods: pods}, &v1alpha1.GetThresholdMetRequest{},
		},
		"ThresholdMetResponse": {
			&v1alpha1.ThresholdMetResponse{
				ThresholdValue: 10.5, ObservedValue: -2, ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN,
				MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "memory", GracePeriodSeconds: 10,
				Condition: condition(), CandidatePods: pods,
			},
			&v1alpha1.ThresholdMetResponse{},
		},
		"GetTopEvictionPodsRequest": {
			&v1alpha1.GetTopEvictionPodsRequest{
				ActivePods: pods, TopN: 300, EvictionScope: "cpu",
				CandidateEvictionRecords: records,
			},
			&v1alpha1.GetTopEvictionPodsRequest{},
		},
		"GetTopEvictionPodsResponse": {
			&v1alpha1.GetTopEvictionPodsResponse{TargetPods: pods, DeletionOptions: options},
			&v1alpha1.GetTopEvictionPodsResponse{},
		},
		"GetEvictPodsRequest": {&v1alpha1.GetEvictPodsRequest{ActivePods: pods}, &v1alpha1.GetEvictPodsRequest{}},
		"GetEvictPodsResponse": {
			&v1alpha1.GetEvictPodsResponse{
				EvictPods: []*v1alpha1.EvictPod{
					{
						Pod: goldenPod(), Reason: "too much memory", DeletionOptions: options, ForceEvict: true,
						EvictionPluginName: "golden",
					},
					{Pod: goldenPod()},
				},
				Condition: condition(),
			},
			&v1alpha1.GetEvictPodsResponse{},
		},
	}
}

// Katalyst's generated code encodes the messages to the bytes in testdata/katalyst, and decodes and encodes those to the
// same bytes. It decodes what the kubelet's generated code has encoded, in testdata/kubelet, to the same messages. The
// other direction is a test of the kubelet, in pkg/apis/evictionplugin/v1alpha1. The two have pods of different versions
// of Kubernetes, whose bytes differ where a field is new or gone.
func TestGolden(t *testing.T) {
	messages := golden()
	messages["Pod"] = [2]message{goldenPod(), &v1.Pod{}}
	for name, m := range messages {
		file := filepath.Join("testdata/katalyst", name+".bin")
		data, err := m[0].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want := read(t, file)
		if !bytes.Equal(data, want) {
			t.Errorf("%s: encoded to %x, the file has %x", name, data, want)
		}
		if again := decodeAndEncode(t, m[1], want); !bytes.Equal(again, want) {
			t.Errorf("%s: decoded and encoded to %x, the file has %x", name, again, want)
		}
		if got := decodeAndEncode(t, m[1], read(t, filepath.Join("testdata/kubelet", name+".bin"))); !bytes.Equal(got, want) {
			t.Errorf("%s of the kubelet: decoded and encoded to %x, want %x", name, got, want)
		}
	}
	if *update {
		return
	}
	for _, dir := range []string{"katalyst", "kubelet"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.bin"))
		if err != nil || len(files) != len(messages) {
			t.Errorf("%d golden files of %s, %v, want %d", len(files), dir, err, len(messages))
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func decodeAndEncode(t *testing.T, m message, data []byte) []byte {
	t.Helper()
	m.Reset()
	if err := m.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	encoded, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
