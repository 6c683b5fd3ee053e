package main

import (
	"bytes"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/example"
)

func TestMain(m *testing.M) { example.Main(m, main) }

// The example registers, and requests the pods with its annotation.
func TestExample(t *testing.T) {
	conn := example.Start(t, "EvictionPlugin")
	asked := encoded(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "a", Annotations: map[string]string{"example.com/evict": "not needed"},
	}})
	other := encoded(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b"}})
	answer, err := v1alpha1.NewEvictionPluginClient(conn).GetEvictPods(t.Context(),
		&v1alpha1.GetEvictPodsRequest{ActivePods: [][]byte{other, asked}})
	if err != nil || len(answer.GetEvictPods()) != 1 {
		t.Fatalf("GetEvictPods: %v, %v", answer, err)
	}
	if pod := answer.GetEvictPods()[0]; !bytes.Equal(pod.GetPod(), asked) || pod.GetReason() != "not needed" ||
		!pod.GetForceEvict() {
		t.Errorf("GetEvictPods: %v", pod)
	}
}

func encoded(t *testing.T, pod *v1.Pod) []byte {
	t.Helper()
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDocument(t *testing.T) { example.CheckDocument(t) }
