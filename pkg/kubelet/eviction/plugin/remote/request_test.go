package remote

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/test/await"
)

const secret = "do-not-send"

// fullPod has what plugins need, and what they must not see.
func fullPod() *v1.Pod {
	probe := func() *v1.Probe {
		return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{secret}}}}
	}
	common := func(name string) v1.Container {
		return v1.Container{
			Name: name, Image: "image", Command: []string{secret}, Args: []string{secret},
			Env: []v1.EnvVar{{Name: secret, Value: secret}},
			EnvFrom: []v1.EnvFromSource{{Prefix: secret, SecretRef: &v1.SecretEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: secret},
			}}},
			Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: secret}},
			}}},
			LivenessProbe: probe(), ReadinessProbe: probe(), StartupProbe: probe(),
			Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}},
			VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u1", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{
				"katalyst.kubewharf.io/qos_level": "shared_cores",
				v1.LastAppliedConfigAnnotation:    secret,
			},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "o1"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: secret}},
		},
		Spec: v1.PodSpec{
			NodeName: "node", Priority: new(int32(7)), PriorityClassName: "high",
			InitContainers: []v1.Container{common("init")}, Containers: []v1.Container{common("main")},
			EphemeralContainers: []v1.EphemeralContainer{{
				EphemeralContainerCommon: v1.EphemeralContainerCommon(common("debug")), TargetContainerName: "main",
			}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable, Conditions: []v1.PodCondition{{Type: v1.PodReady}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://1", RestartCount: 3}},
		},
	}
}

// Requests are without managed fields, environment, commands and arguments, and have all else.
func TestE24RequestsAreAbridged(t *testing.T) {
	s := &server{demand: &v1alpha1.GetEvictPodsResponse{}}
	pod := fullPod()
	if _, err := serve(t, s).EvictPods(t.Context(), &plugin.View{Pods: []*v1.Pod{pod}}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(pod, fullPod()) {
		t.Error("the pod of the view was modified")
	}
	encoded := s.evictRequest.GetActivePods()
	if strings.Contains(string(encoded[0]), secret) {
		t.Errorf("the request has what the plugin must not see: %q", encoded[0])
	}
	want := fullPod()
	want.ManagedFields = nil
	delete(want.Annotations, v1.LastAppliedConfigAnnotation)
	for _, c := range []*v1.Container{
		&want.Spec.InitContainers[0], &want.Spec.Containers[0],
		(*v1.Container)(&want.Spec.EphemeralContainers[0].EphemeralContainerCommon),
	} {
		*c = v1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, VolumeMounts: c.VolumeMounts}
	}
	if got := podsIn(t, encoded)[0]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the plugin got\n%v\nwant\n%v", got, want)
	}
}

// A request has at most 4 MiB, whatever the pods of the node; the largest ones are left out and counted.
func TestE24LargestPodsAreLeftOut(t *testing.T) {
	v := &plugin.View{}
	sizes := map[types.UID]int{}
	for i := range 90 {
		pod := podNamed(fmt.Sprintf("u%02d", i))
		sizes[pod.UID] = (1 + i*37%90) << 10
		pod.Annotations = map[string]string{"text": strings.Repeat("x", sizes[pod.UID])}
		v.Pods = append(v.Pods, pod)
	}
	before := omitted(t)
	s := &server{
		demand: &v1alpha1.GetEvictPodsResponse{}, threshold: &v1alpha1.ThresholdMetResponse{},
		top: &v1alpha1.GetTopEvictionPodsResponse{},
	}
	p := serve(t, s)
	if _, err := p.EvictPods(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ThresholdMet(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	q := arbiter.Question{Scope: strings.Repeat("s", maxScope), TopN: 1<<64 - 1}
	if _, err := p.TopEvictionPods(t.Context(), v, q); err != nil {
		t.Fatal(err)
	}
	got := uidsIn(t, s.evictRequest.GetActivePods())
	for _, other := range [][][]byte{s.thresholdRequest.GetActivePods(), s.topRequest.GetActivePods()} {
		if uids := uidsIn(t, other); !slices.Equal(uids, got) {
			t.Errorf("one call has the pods %v, another %v", got, uids)
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("the pods have lost their order: %v", got)
	}
	largest, total := 0, 0
	for _, uid := range got {
		largest, total = max(largest, sizes[uid]), total+sizes[uid]
	}
	left := 0
	for uid, size := range sizes {
		if slices.Contains(got, uid) {
			continue
		}
		left++
		if size < largest {
			t.Errorf("pod %s with %d bytes was left out, and one with %d was not", uid, size, largest)
		}
		if total+size+(8<<10) < maxMessage {
			t.Errorf("pod %s with %d bytes was left out of a request with %d bytes", uid, size, total)
		}
	}
	if left == 0 || omitted(t)-before != float64(left) {
		t.Errorf("%d pods were left out, %v counted", left, omitted(t)-before)
	}
}

// What is left out depends on the pods only, not on their order.
func TestE24LeftOutInTotalOrder(t *testing.T) {
	pods := []encodedPod{{"d", make([]byte, 4)}, {"a", make([]byte, 4)}, {"c", make([]byte, 4)}, {"b", make([]byte, 2)}}
	for range 4 {
		pods = append(pods[1:], pods[0])
		left, omitted := fitting(pods, 10)
		var uids []types.UID
		for _, p := range left {
			uids = append(uids, p.uid)
		}
		slices.Sort(uids)
		if omitted != 1 || !slices.Equal(uids, []types.UID{"b", "c", "d"}) {
			t.Errorf("left %v, omitted %d", uids, omitted)
		}
	}
	if left, omitted := fitting(pods, 14); len(left) != 4 || omitted != 0 {
		t.Errorf("pods that fit: left %d, omitted %d", len(left), omitted)
	}
	if left, omitted := fitting(pods, 1); len(left) != 0 || omitted != 4 {
		t.Errorf("no pod fits: left %d, omitted %d", len(left), omitted)
	}
}

func omitted(t *testing.T) float64 {
	t.Helper()
	register()
	value, err := testutil.GetCounterMetricValue(podsOmitted)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// All calls of a round share the encoded pods.
func TestPodsAreEncodedOnce(t *testing.T) {
	var e Encoder
	v := viewOf("a", "b")
	var calls sync.WaitGroup
	encodings := make([]*encodedView, 8)
	for i := range encodings {
		calls.Go(func() { encodings[i] = e.of(v) })
	}
	calls.Wait()
	for _, encoded := range encodings {
		if &encoded.pods[0].field[0] != &encodings[0].pods[0].field[0] {
			t.Error("the pods were encoded twice")
		}
	}
	if e.of(viewOf("a", "b")) == encodings[0] {
		t.Error("two views have one encoding")
	}
	runtime.KeepAlive(v)
}

// The encoded pods are freed with their View.
func TestEncodedPodsAreFreed(t *testing.T) {
	var e Encoder
	kept, dropped := viewOf("a"), viewOf("b")
	e.of(kept)
	e.of(dropped)
	await.Until(t, "the encoding of a view is freed", func() error {
		runtime.GC()
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.views) != 1 {
			return fmt.Errorf("there are %d encodings", len(e.views))
		}
		return nil
	})
	if len(e.of(kept).pods) != 1 {
		t.Error("the encoding of the other view was freed")
	}
	runtime.KeepAlive(kept)
}

func BenchmarkEncode110Pods(b *testing.B) {
	v := &plugin.View{}
	for range 110 {
		v.Pods = append(v.Pods, fullPod())
	}
	for b.Loop() {
		encode(v.Pods)
	}
}
