package remote

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func varint(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// Options that several pods have in common are not shared between them.
func TestE14DeletionOptionsAreNotShared(t *testing.T) {
	shared := &v1alpha1.DeletionOptions{GracePeriodSeconds: 30}
	s := &server{demand: &v1alpha1.GetEvictPodsResponse{EvictPods: []*v1alpha1.EvictPod{
		{Pod: marshalled(t, podNamed("a")), DeletionOptions: shared},
		{Pod: marshalled(t, podNamed("b")), DeletionOptions: shared},
	}}}
	got, err := serve(t, s).EvictPods(t.Context(), viewOf("a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	*got.Pods[0].GraceSeconds = 1
	if *got.Pods[1].GraceSeconds != 30 {
		t.Errorf("a change for one pod has changed the other: %d", *got.Pods[1].GraceSeconds)
	}
}

// Without options the pod keeps its own grace period. A zero in options is the plugin's zero, of which the arbiter
// makes a second.
func TestE23GraceIsAbsentWithoutOptions(t *testing.T) {
	for _, tc := range []struct {
		options *v1alpha1.DeletionOptions
		want    *int64
	}{
		{nil, nil},
		{&v1alpha1.DeletionOptions{}, new(int64(0))},
		{&v1alpha1.DeletionOptions{GracePeriodSeconds: 5}, new(int64(5))},
		{&v1alpha1.DeletionOptions{GracePeriodSeconds: -1}, new(int64(-1))},
		{&v1alpha1.DeletionOptions{GracePeriodSeconds: math.MaxInt64}, new(int64(math.MaxInt64))},
	} {
		pod := marshalled(t, podNamed("a"))
		p := serve(t, &server{
			demand: &v1alpha1.GetEvictPodsResponse{EvictPods: []*v1alpha1.EvictPod{{Pod: pod, DeletionOptions: tc.options}}},
			top:    &v1alpha1.GetTopEvictionPodsResponse{TargetPods: [][]byte{pod}, DeletionOptions: tc.options},
		})
		demand, err := p.EvictPods(t.Context(), viewOf("a"))
		if err != nil || len(demand.Pods) != 1 || !reflect.DeepEqual(demand.Pods[0].GraceSeconds, tc.want) {
			t.Errorf("%v: GetEvictPods: got %+v, %v", tc.options, demand, err)
		}
		reply, err := p.TopEvictionPods(t.Context(), viewOf("a"), arbiter.Question{})
		if err != nil || !reflect.DeepEqual(reply.GraceSeconds, tc.want) {
			t.Errorf("%v: GetTopEvictionPods: got %+v, %v", tc.options, reply, err)
		}
	}
}

// An invalid part of an answer costs that part, and is counted.
func TestInvalidPartsOfDemands(t *testing.T) {
	good := func(uid string) []byte {
		return field(1, encoded(t, &v1alpha1.EvictPod{Pod: marshalled(t, podNamed(uid))}))
	}
	notUTF8 := []byte{0xff, 'x'}
	for name, tc := range map[string]struct {
		between []byte
		want    arbiter.Demand
		left    leftOut
	}{
		"nothing":       {nil, arbiter.Demand{}, leftOut{}},
		"unknown field": {field(9, []byte("x")), arbiter.Demand{}, leftOut{}},
		"large unknown": {field(9, make([]byte, 1<<20)), arbiter.Demand{}, leftOut{}},
		"no pod":        {field(1, nil), arbiter.Demand{}, leftOut{invalidPod: 1}},
		"pod without UID": {
			field(1, field(1, field(1, field(1, []byte("name"))))), arbiter.Demand{}, leftOut{invalidPod: 1},
		},
		"broken pod":         {field(1, field(1, []byte{0xff})), arbiter.Demand{}, leftOut{invalidPod: 1}},
		"broken demand":      {field(1, []byte{0x0a, 0xff}), arbiter.Demand{}, leftOut{invalidPod: 1}},
		"pod that is a word": {field(1, varint(1, 1)), arbiter.Demand{}, leftOut{invalidPod: 1}},
		"force that is text": {
			field(1, append(field(1, marshalled(t, podNamed("c"))), field(4, nil)...)),
			arbiter.Demand{}, leftOut{invalidPod: 1},
		},
		"options that are text": {
			field(1, append(field(1, marshalled(t, podNamed("c"))), field(3, []byte("text"))...)),
			arbiter.Demand{Pods: []arbiter.PodDemand{{UID: "c"}}}, leftOut{invalidOptions: 1},
		},
		"reason that is no text": {
			field(1, append(field(1, marshalled(t, podNamed("c"))), field(2, notUTF8)...)),
			arbiter.Demand{Pods: []arbiter.PodDemand{{UID: "c", Reason: "x"}}}, leftOut{},
		},
		"long reason": {
			field(1, append(field(1, marshalled(t, podNamed("c"))), field(2, []byte(strings.Repeat("x", 1<<20)))...)),
			arbiter.Demand{Pods: []arbiter.PodDemand{{UID: "c", Reason: strings.Repeat("x", maxReason)}}}, leftOut{},
		},
		"broken condition":    {field(2, []byte("text")), arbiter.Demand{}, leftOut{invalidCondition: 1}},
		"condition not UTF-8": {field(2, field(3, notUTF8)), arbiter.Demand{}, leftOut{invalidCondition: 1}},
		"condition of unknown type": {
			field(2, varint(1, 2)), arbiter.Demand{}, leftOut{invalidCondition: 1},
		},
		"large condition": {
			field(2, field(3, make([]byte, maxPart))), arbiter.Demand{}, leftOut{invalidCondition: 1},
		},
		"two conditions": {
			append(field(2, field(3, []byte("First"))), field(2, field(3, []byte("Last")))...),
			arbiter.Demand{Condition: &arbiter.ConditionReport{Name: "Last"}}, leftOut{invalidCondition: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, left, err := demandOf(slices.Concat(good("a"), tc.between, good("b")))
			if err != nil {
				t.Fatal(err)
			}
			want := tc.want
			want.Pods = slices.Concat([]arbiter.PodDemand{{UID: "a"}}, want.Pods, []arbiter.PodDemand{{UID: "b"}})
			if !reflect.DeepEqual(*got, want) || !reflect.DeepEqual(left, tc.left) {
				t.Errorf("got %+v, left out %v; want %+v, %v", *got, left, want, tc.left)
			}
		})
	}
}

func TestInvalidAnswers(t *testing.T) {
	for name, answer := range map[string][]byte{
		"not a message":        []byte("text"),
		"ends early":           {0x0a},
		"pods of another sort": slices.Concat(varint(1, 1), varint(8, 1)),
		"end of a group":       {0x0c},
	} {
		if got, _, err := demandOf(answer); got != nil || err == nil {
			t.Errorf("%s: GetEvictPods: got %+v, %v", name, got, err)
		}
		if got, _, err := thresholdOf(answer); got != nil || err == nil {
			t.Errorf("%s: ThresholdMet: got %+v, %v", name, got, err)
		}
		if got, _, err := replyOf(answer); got != nil || err == nil {
			t.Errorf("%s: GetTopEvictionPods: got %+v, %v", name, got, err)
		}
	}
}

func TestThresholds(t *testing.T) {
	const below, above = v1alpha1.ThresholdOperator_LESS_THAN, v1alpha1.ThresholdOperator_GREATER_THAN
	hard := v1alpha1.ThresholdMetType_HARD_MET
	for name, tc := range map[string]struct {
		m    *v1alpha1.ThresholdMetResponse
		want *arbiter.Threshold
	}{
		"zero": {&v1alpha1.ThresholdMetResponse{}, &arbiter.Threshold{LessThan: true}},
		"negative grace": {
			&v1alpha1.ThresholdMetResponse{MetType: hard, GracePeriodSeconds: -5, ThresholdOperator: above},
			&arbiter.Threshold{Kind: arbiter.Hard},
		},
		"lowest grace": {
			&v1alpha1.ThresholdMetResponse{MetType: hard, GracePeriodSeconds: math.MinInt64, ThresholdOperator: above},
			&arbiter.Threshold{Kind: arbiter.Hard},
		},
		"huge grace": {
			&v1alpha1.ThresholdMetResponse{MetType: hard, GracePeriodSeconds: math.MaxInt64, ThresholdOperator: above},
			&arbiter.Threshold{Kind: arbiter.Hard, Grace: time.Hour},
		},
		"infinite": {
			&v1alpha1.ThresholdMetResponse{MetType: hard, ObservedValue: math.Inf(1), ThresholdValue: math.Inf(-1)},
			&arbiter.Threshold{Kind: arbiter.Hard, Observed: math.Inf(1), Target: math.Inf(-1), LessThan: true},
		},
		"scope of a resource": {
			&v1alpha1.ThresholdMetResponse{EvictionScope: "resource.katalyst.kubewharf.io/reclaimed_millicpu"},
			&arbiter.Threshold{Scope: "resource.katalyst.kubewharf.io/reclaimed_millicpu", LessThan: true},
		},
		"scope with other characters": {
			&v1alpha1.ThresholdMetResponse{EvictionScope: "a b\n\x00ü$(x)"},
			&arbiter.Threshold{Scope: "a_b_____x_", LessThan: true},
		},
		"long scope": {
			&v1alpha1.ThresholdMetResponse{EvictionScope: strings.Repeat("s", 1000)},
			&arbiter.Threshold{Scope: strings.Repeat("s", maxScope), LessThan: true},
		},
		"scope beyond the limit": {&v1alpha1.ThresholdMetResponse{EvictionScope: strings.Repeat("s", maxScalars)}, nil},
		"unknown type":           {&v1alpha1.ThresholdMetResponse{MetType: 3}, nil},
		"negative type":          {&v1alpha1.ThresholdMetResponse{MetType: -1}, nil},
		"unknown operator":       {&v1alpha1.ThresholdMetResponse{MetType: hard, ThresholdOperator: 2}, nil},
		"invalid condition": {
			&v1alpha1.ThresholdMetResponse{MetType: hard, Condition: &v1alpha1.Condition{ConditionType: 9}},
			&arbiter.Threshold{Kind: arbiter.Hard, LessThan: true},
		},
		"invalid candidate": {
			&v1alpha1.ThresholdMetResponse{
				MetType: hard, ThresholdOperator: below,
				CandidatePods: [][]byte{[]byte("text"), marshalled(t, podNamed("a")), nil},
			},
			&arbiter.Threshold{Kind: arbiter.Hard, Candidates: []types.UID{"a"}, LessThan: true},
		},
	} {
		got, _, err := thresholdOf(encoded(t, tc.m))
		if (err != nil) != (tc.want == nil) || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
	got, _, err := thresholdOf(encoded(t, &v1alpha1.ThresholdMetResponse{MetType: hard, ObservedValue: math.NaN()}))
	if err != nil || got.Kind != arbiter.Hard || !math.IsNaN(got.Observed) {
		t.Errorf("not a number: got %+v, %v", got, err)
	}
}

// Of an answer 500 pods count. The metric has the rest.
func TestExcessPods(t *testing.T) {
	s := &server{
		demand: &v1alpha1.GetEvictPodsResponse{}, threshold: &v1alpha1.ThresholdMetResponse{},
		top: &v1alpha1.GetTopEvictionPodsResponse{},
	}
	for i := range maxPods + 3 {
		pod := marshalled(t, podNamed(fmt.Sprint("u", i)))
		s.demand.EvictPods = append(s.demand.EvictPods, &v1alpha1.EvictPod{Pod: pod})
		s.threshold.CandidatePods = append(s.threshold.CandidatePods, pod)
		s.top.TargetPods = append(s.top.TargetPods, pod)
	}
	p, v := serve(t, s), viewOf("a")
	before := excess(t)
	demand, err := p.EvictPods(t.Context(), v)
	if err != nil || len(demand.Pods) != maxPods || demand.Pods[maxPods-1].UID != "u499" {
		t.Errorf("GetEvictPods: %d pods, %v", len(demand.Pods), err)
	}
	threshold, err := p.ThresholdMet(t.Context(), v)
	if err != nil || len(threshold.Candidates) != maxPods {
		t.Errorf("ThresholdMet: %d pods, %v", len(threshold.Candidates), err)
	}
	reply, err := p.TopEvictionPods(t.Context(), v, arbiter.Question{})
	if err != nil || len(reply.Pods) != maxPods {
		t.Errorf("GetTopEvictionPods: %d pods, %v", len(reply.Pods), err)
	}
	if counted := excess(t) - before; counted != 9 {
		t.Errorf("%v pods were counted, want 9", counted)
	}
}

func excess(t *testing.T) float64 {
	t.Helper()
	value, err := testutil.GetCounterMetricValue(partsLeftOut.WithLabelValues(string(excessPod)))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Decoding 4 MiB of the smallest parts allocates little.
func TestDecodingIsBounded(t *testing.T) {
	smallest := func(number protowire.Number) []byte {
		return slices.Repeat(field(number, nil), maxMessage/2)
	}
	var before, after runtime.MemStats
	for number := protowire.Number(1); number <= 9; number++ {
		answer := smallest(number)
		effects := field(2, slices.Repeat(field(2, nil), maxMessage/2))
		runtime.ReadMemStats(&before)
		_, _, _ = demandOf(answer)
		_, _, _ = thresholdOf(answer)
		_, _, _ = replyOf(answer)
		_, _, _ = demandOf(effects)
		runtime.ReadMemStats(&after)
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
			t.Errorf("field %d: %d bytes were allocated", number, allocated)
		}
	}
}

func TestPodUID(t *testing.T) {
	full := marshalled(t, fullPod())
	metadata := func(uid []byte) []byte { return field(podMetadata, field(metadataUID, uid)) }
	for name, tc := range map[string]struct {
		pod  []byte
		want types.UID
	}{
		"full":            {full, "u1"},
		"empty":           {nil, ""},
		"no UID":          {marshalled(t, &v1.Pod{}), ""},
		"the last counts": {slices.Concat(metadata([]byte("a")), metadata([]byte("b"))), "b"},
		"metadata merged": {slices.Concat(metadata([]byte("a")), field(podMetadata, nil)), "a"},
		"long":            {metadata(make([]byte, maxUID+1)), ""},
		"not UTF-8":       {metadata([]byte{0xff}), ""},
		"broken after":    {append(metadata([]byte("a")), 0xff), ""},
		"cut":             {full[:len(full)-1], ""},
		"UID is a number": {field(podMetadata, varint(metadataUID, 1)), ""},
	} {
		if got, err := podUID(tc.pod); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// FuzzPodUID compares with the decoder of pods.
func FuzzPodUID(f *testing.F) {
	f.Add(marshalled(f, fullPod()))
	f.Add(field(podMetadata, field(metadataUID, []byte("a"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		uid, err := podUID(data)
		if (err == nil) != (uid != "") || len(uid) > maxUID {
			t.Errorf("got %q, %v", uid, err)
		}
		var pod v1.Pod
		if pod.Unmarshal(data) == nil && err == nil && pod.UID != uid {
			t.Errorf("got %q, the decoder of pods %q", uid, pod.UID)
		}
	})
}

// FuzzAnswers holds the limits of what is decoded, and compares with the generated decoder where that accepts an
// answer.
func FuzzAnswers(f *testing.F) {
	pod := marshalled(f, podNamed("a"))
	condition := &v1alpha1.Condition{ConditionName: "Full", MetCondition: true, Effects: []string{"NoSchedule"}}
	options := &v1alpha1.DeletionOptions{GracePeriodSeconds: 1}
	f.Add(encoded(f, &v1alpha1.GetEvictPodsResponse{
		EvictPods: []*v1alpha1.EvictPod{{Pod: pod, Reason: "x", DeletionOptions: options, ForceEvict: true}},
		Condition: condition,
	}))
	f.Add(encoded(f, &v1alpha1.ThresholdMetResponse{
		ThresholdValue: 1, ObservedValue: 2, ThresholdOperator: 1, MetType: 2, EvictionScope: "memory",
		GracePeriodSeconds: 3, Condition: condition, CandidatePods: [][]byte{pod},
	}))
	f.Add(encoded(f, &v1alpha1.GetTopEvictionPodsResponse{TargetPods: [][]byte{pod}, DeletionOptions: options}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if d, _, err := demandOf(data); err == nil {
			checkDemand(t, data, d)
		}
		if threshold, _, err := thresholdOf(data); err == nil {
			checkThreshold(t, data, threshold)
		}
		reply, _, err := replyOf(data)
		if err == nil && len(reply.Pods) > maxPods {
			t.Errorf("%d pods", len(reply.Pods))
		}
	})
}

func checkDemand(t *testing.T, data []byte, d *arbiter.Demand) {
	if len(d.Pods) > maxPods {
		t.Errorf("%d pods", len(d.Pods))
	}
	for _, pod := range d.Pods {
		if pod.UID == "" || len(pod.UID) > maxUID || len(pod.Reason) > maxReason {
			t.Errorf("got %+v", pod)
		}
	}
	var m v1alpha1.GetEvictPodsResponse
	if proto.Unmarshal(data, &m) != nil || len(m.GetEvictPods()) != len(d.Pods) {
		return
	}
	for i, want := range m.GetEvictPods() {
		got, whole := d.Pods[i], len(want.GetReason()) <= maxReason
		if got.Force != want.GetForceEvict() || whole && got.Reason != want.GetReason() {
			t.Errorf("got %+v, the generated decoder %v", got, want)
		}
	}
}

func checkThreshold(t *testing.T, data []byte, got *arbiter.Threshold) {
	if len(got.Candidates) > maxPods || len(got.Scope) > maxScope || got.Grace < 0 || got.Grace > time.Hour ||
		got.Kind > arbiter.Hard {
		t.Errorf("got %+v", got)
	}
	var m v1alpha1.ThresholdMetResponse
	if proto.Unmarshal(data, &m) == nil && int32(got.Kind) != int32(m.GetMetType()) {
		t.Errorf("got %+v, the generated decoder %v", got, &m)
	}
}

func BenchmarkPodUID(b *testing.B) {
	data := marshalled(b, fullPod())
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := podUID(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var pod v1.Pod
			if err := pod.Unmarshal(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFullAnswer decodes 4 MiB of empty pods, and 4 MiB of conditions, of which one counts.
func BenchmarkFullAnswer(b *testing.B) {
	for name, one := range map[string][]byte{"pods": field(1, nil), "conditions": field(2, nil)} {
		answer := bytes.Repeat(one, maxMessage/len(one))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := demandOf(answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
