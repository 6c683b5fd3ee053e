package policy

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func TestAdmit(t *testing.T) {
	lingering := func(types ...v1.NodeConditionType) (list []Condition) {
		for _, c := range types {
			list = append(list, Condition{Type: c, True: true})
		}
		return list
	}
	hard := []Condition{{Type: v1.NodeMemoryPressure, True: true, HardMet: true}}
	unsure := []Condition{{Type: v1.NodeMemoryPressure, True: true, Restored: true}}
	tolerating := func(pod *v1.Pod, keys ...string) *v1.Pod {
		for _, k := range keys {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations,
				v1.Toleration{Key: k, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})
		}
		return pod
	}
	bestEffort := func() *v1.Pod { return spec{name: "best-effort"}.object() }
	burstable := func() *v1.Pod { return spec{name: "burstable", request: mi}.object() }
	daemon := func(pod *v1.Pod) *v1.Pod {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
		return pod
	}
	memory, disk := v1.NodeMemoryPressure, v1.NodeDiskPressure
	tests := []struct {
		name       string
		conditions []Condition
		applicant  AdmitAttributes
		want       Verdict
		message    string
	}{
		{"no condition", []Condition{{Type: memory}}, AdmitAttributes{Pod: bestEffort()}, Admitted, ""},
		{"best effort under memory pressure", lingering(memory), AdmitAttributes{Pod: bestEffort()}, Rejected,
			"The node had condition: [MemoryPressure]. "},
		{"best effort that tolerates it", lingering(memory),
			AdmitAttributes{Pod: tolerating(bestEffort(), v1.TaintNodeMemoryPressure)}, Admitted, ""},
		{"best effort that tolerates another", lingering(memory),
			AdmitAttributes{Pod: tolerating(bestEffort(), v1.TaintNodeDiskPressure)}, Rejected,
			"The node had condition: [MemoryPressure]. "},
		{"burstable under memory pressure", lingering(memory), AdmitAttributes{Pod: burstable()}, Admitted, ""},
		{"burstable under disk pressure", lingering(disk), AdmitAttributes{Pod: burstable()}, Rejected,
			"The node had condition: [DiskPressure]. "},
		{"D17 tolerates disk pressure", lingering(disk),
			AdmitAttributes{Pod: tolerating(burstable(), v1.TaintNodeDiskPressure)},
			Admitted, ""},
		{"two conditions", lingering(memory, disk), AdmitAttributes{Pod: burstable()}, Rejected,
			"The node had condition: [DiskPressure MemoryPressure]. "},
		{"D17 hard threshold met", hard, AdmitAttributes{Pod: burstable()}, Rejected,
			"The node had condition: [MemoryPressure]. "},
		{"D17 hard threshold met, replaced on this node", hard, AdmitAttributes{Pod: daemon(burstable())}, Waits,
			"The node had condition: [MemoryPressure]. "},
		{"unconfirmed whether it is met", unsure, AdmitAttributes{Pod: burstable()}, Admitted, ""},
		{"unconfirmed, replaced on this node", unsure, AdmitAttributes{Pod: daemon(burstable())}, Waits,
			"The node had condition: [MemoryPressure]. "},
		{"unconfirmed, runs already", unsure, AdmitAttributes{Pod: daemon(burstable()), Running: true}, Admitted, ""},
		{"critical", hard, AdmitAttributes{Pod: spec{name: "static", static: true}.object()}, Admitted, ""},
		{"D37 runs already", hard, AdmitAttributes{Pod: bestEffort(), Running: true}, Admitted, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, message := Admit(test.conditions, test.applicant)
			if got != test.want || message != test.message {
				t.Errorf("%v %q, want %v %q", got, message, test.want, test.message)
			}
		})
	}
}

func TestPodsReplacedOnTheSameNode(t *testing.T) {
	on := func(key string, op v1.NodeSelectorOperator, values ...string) []v1.NodeSelectorRequirement {
		return []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}
	}
	requires := func(terms ...v1.NodeSelectorTerm) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Spec.Affinity = &v1.Affinity{
				NodeAffinity: &v1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
		}
	}
	owned := func(kind string) func(*v1.Pod) {
		yes := true
		return func(pod *v1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: &yes}}
		}
	}
	bound := func(pod *v1.Pod) {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}
	}
	byName := v1.NodeSelectorTerm{MatchFields: on("metadata.name", v1.NodeSelectorOpIn, "here")}
	byHost := v1.NodeSelectorTerm{MatchExpressions: on(v1.LabelHostname, v1.NodeSelectorOpIn, "here")}
	for name, test := range map[string]struct {
		changes []func(*v1.Pod)
		want    bool
	}{
		"a naked pod":                      {nil, false},
		"a scheduled pod of a ReplicaSet":  {[]func(*v1.Pod){owned("ReplicaSet"), bound}, false},
		"a pod of a DaemonSet":             {[]func(*v1.Pod){owned("DaemonSet"), bound}, true},
		"its template names the node":      {[]func(*v1.Pod){owned("ReplicaSet")}, true},
		"required by the node's name":      {[]func(*v1.Pod){requires(byName), bound}, true},
		"required by the node's host name": {[]func(*v1.Pod){requires(byHost), bound}, true},
		"either of two nodes by name":      {[]func(*v1.Pod){requires(byName, byHost), bound}, true},
		"by name, or anywhere with a label": {[]func(*v1.Pod){requires(byName,
			v1.NodeSelectorTerm{MatchExpressions: on("x", v1.NodeSelectorOpExists)}), bound}, false},
		"anywhere but on one node": {[]func(*v1.Pod){requires(v1.NodeSelectorTerm{MatchFields: on("metadata.name",
			v1.NodeSelectorOpNotIn, "there")}), bound}, false},
		"on one of several host names": {
			[]func(*v1.Pod){requires(v1.NodeSelectorTerm{MatchExpressions: on(v1.LabelHostname, v1.NodeSelectorOpIn, "here",
				"there")}), bound}, false},
		"a node selector with the host name": {
			[]func(*v1.Pod){func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "here"} }, bound}, true},
		"a node selector with another label": {
			[]func(*v1.Pod){func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "here"} }, bound}, false},
		"no terms at all, which matches none": {[]func(*v1.Pod){requires(), bound}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := spec{name: "p"}.object()
			for _, change := range test.changes {
				change(pod)
			}
			want := Rejected
			if test.want {
				want = Waits
			}
			if got, _ := Admit([]Condition{{Type: v1.NodeMemoryPressure, True: true, HardMet: true}},
				AdmitAttributes{Pod: pod}); got != want {
				t.Errorf("verdict %v, want %v", got, want)
			}
		})
	}
}

// TestABlindSignalLetsNobodyIn: a hard threshold is met, and then its signal is unknown. Pods that tolerate the taint
// are rejected until the signal is known again.
func TestABlindSignalLetsNobodyIn(t *testing.T) {
	tolerating := spec{name: "tolerating"}.object()
	tolerating.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}}
	w := newWorld(t, rulesOf(threshold(snapshot.ImageFsAvailable, "10Gi")))
	w.layout = layoutOf(true, false)
	for _, test := range []struct {
		available int64
		known     bool
		want      Verdict
	}{{gi, true, Rejected}, {0, false, Rejected}, {20 * gi, true, Admitted}, {0, false, Admitted}} {
		if w.missing(snapshot.ImageFsAvailable); test.known {
			w.available(snapshot.ImageFsAvailable, test.available)
		}
		d := w.after(time.Second)
		w.condition(d, v1.NodeDiskPressure, true)
		if got, _ := Admit(d.Conditions[:], AdmitAttributes{Pod: tolerating}); got != test.want {
			t.Errorf("%+v: verdict %v", test, got)
		}
	}
}
