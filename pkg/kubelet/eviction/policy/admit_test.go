package policy

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAdmit(t *testing.T) {
	lingering := func(types ...v1.NodeConditionType) (list []Condition) {
		for _, c := range types {
			list = append(list, Condition{Type: c, True: true})
		}
		return list
	}
	hard := []Condition{{Type: v1.NodeMemoryPressure, True: true, HardMet: true}}
	tolerating := func(pod *v1.Pod, keys ...string) *v1.Pod {
		for _, k := range keys {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: k, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})
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
		applicant  Applicant
		want       Verdict
		message    string
	}{
		{"no condition", []Condition{{Type: memory}}, Applicant{Pod: bestEffort()}, Admitted, ""},
		{"best effort under memory pressure", lingering(memory), Applicant{Pod: bestEffort()}, Rejected, "The node had condition: [MemoryPressure]. "},
		{"best effort that tolerates it", lingering(memory), Applicant{Pod: tolerating(bestEffort(), v1.TaintNodeMemoryPressure)}, Admitted, ""},
		{"best effort that tolerates another", lingering(memory), Applicant{Pod: tolerating(bestEffort(), v1.TaintNodeDiskPressure)}, Rejected, "The node had condition: [MemoryPressure]. "},
		{"burstable under memory pressure", lingering(memory), Applicant{Pod: burstable()}, Admitted, ""},
		{"burstable under disk pressure", lingering(disk), Applicant{Pod: burstable()}, Rejected, "The node had condition: [DiskPressure]. "},
		{"D17 tolerates disk pressure", lingering(disk), Applicant{Pod: tolerating(burstable(), v1.TaintNodeDiskPressure)}, Admitted, ""},
		{"two conditions", lingering(memory, disk), Applicant{Pod: burstable()}, Rejected, "The node had condition: [DiskPressure MemoryPressure]. "},
		{"D17 hard threshold met", hard, Applicant{Pod: burstable()}, Rejected, "The node had condition: [MemoryPressure]. "},
		{"D17 hard threshold met, would come back", hard, Applicant{Pod: daemon(burstable())}, Waits, "The node had condition: [MemoryPressure]. "},
		{"critical", hard, Applicant{Pod: spec{name: "static", static: true}.object()}, Admitted, ""},
		{"D37 runs already", hard, Applicant{Pod: bestEffort(), Running: true}, Admitted, ""},
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
