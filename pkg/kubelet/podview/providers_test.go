package podview

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// uids answers a question about single pods: yes for those in the list.
type uids []types.UID

func (u uids) CouldHaveRunningContainers(uid types.UID) bool       { return slices.Contains(u, uid) }
func (u uids) PodMightNeedToUnprepareResources(uid types.UID) bool { return slices.Contains(u, uid) }

func TestDeletionSafety(t *testing.T) {
	without := DeletionSafety{Containers: uids{"running"}}
	with := DeletionSafety{Containers: uids{"running"}, Devices: uids{"prepared"}}
	got := map[string][2]bool{}
	for _, name := range []string{"running", "prepared", "neither"} {
		pod := fixture.Pod(name)
		got[name] = [2]bool{without.PodCouldHaveRunningContainers(pod), with.PodCouldHaveRunningContainers(pod)}
	}
	fixture.ExpectEqual(t, "pods that must not be deleted, without and with the gate", got, map[string][2]bool{
		"running": {true, true}, "prepared": {false, true}, "neither": {false, false},
	})
}

func (s *sources) GetPodByName(_, name string) (*v1.Pod, bool) {
	return s.GetPodByUID(types.UID(name))
}

func TestPodResources(t *testing.T) {
	s := podsOfEachKind()
	p := PodResources{View: New(s, s, s), Pods: s}
	active := []string{"running", "failed-and-terminating"}
	fixture.ExpectEqual(t, "active pods", fixture.Names(p.GetActivePods()), active)
	fixture.ExpectEqual(t, "all pods", fixture.Names(p.GetPods()), fixture.Names(s.pods))
	var found []string
	for _, name := range append(fixture.Names(s.pods), "unknown") {
		if pod, ok := p.GetPodByName("ns", name); ok {
			found = append(found, pod.Name)
		}
	}
	fixture.ExpectEqual(t, "pods found by their names", found, active)
}
