//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// inTreeConfig enables plugins in the agent. Soft victims are evicted by the pod workers, so that their status stays.
	inTreeConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
monitoringPeriod: 2s
plugins:
  eviction:
    inTree:
    - rss-overuse-eviction-plugin
    - reclaimed-resource-pressure-eviction-plugin
    - rootfs-overuse-eviction-plugin
    period: 1s
    softKiller: PodWorker
    settings:
      rootfs-overuse-eviction-plugin:
        sharedUsed: 60Mi
`
	// reclaimedMilliCPU is the resource that the test publishes on the Node.
	reclaimedMilliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
)

// TestEvictionPluginsInTheAgent has pods that exceed the threshold of one plugin each, beside pods that do not. Only
// the former are evicted, for the reason of that plugin. PLIMSOLL_PLUGIN_ROUNDS repeats it.
func TestEvictionPluginsInTheAgent(t *testing.T) {
	rounds, _ := pluginRounds(t)
	s := spaceForRestart(t)
	s.noOtherPods()
	s.withPressureConfig(inTreeConfig, nil)
	for round := range rounds {
		for _, tc := range []struct {
			name   string
			play   func(*space) (victim *v1.Pod)
			reason string
		}{
			{"rss-overuse", (*space).overuseOfMemory, "resident set"},
			{"reclaimed-resource-pressure", (*space).shrinkingResources, reclaimedMilliCPU},
			{"rootfs-overuse", (*space).overuseOfDisk, "writable layers use"},
		} {
			t.Run(fmt.Sprintf("%s %d", tc.name, round+1), func(t *testing.T) {
				s := s.in(t)
				victim := tc.play(s)
				s.eventually(pluginTimeout, func(ctx context.Context) error {
					return s.hasEvent(ctx, victim.Name, "Evicted", tc.reason)
				})
				s.wait(victim, podTimeout, endedFor("Evicted"))
				for _, pod := range s.pods() {
					if pod.Name != victim.Name && pod.Status.Phase != v1.PodRunning {
						t.Errorf("%s: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)
					}
				}
				for _, pod := range s.pods() {
					s.remove(&pod)
				}
			})
		}
	}
}

// overuseOfMemory has a steady pod within its request, one above it whose annotation allows that, and one that grows
// beyond its request.
func (s *space) overuseOfMemory() *v1.Pod {
	s.t.Helper()
	hog := func(name string, args ...string) *v1.Pod {
		pod := kit.HogPod(name, args...)
		pod.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
		return pod
	}
	s.ready(hog("steady", "--start=40", "--limit=40"))
	allowed := hog("allowed", "--start=100", "--limit=100")
	allowed.Annotations = map[string]string{"katalyst.kubewharf.io/memory_enhancement": `{"rss_overuse_threshold":"3"}`}
	s.ready(allowed)
	return s.ready(hog("grows", "--start=20", "--rate=10", "--limit=200"))
}

// shrinkingResources has two reclaimed pods and a shared one, and patches down what is allocatable of reclaimed CPUs.
func (s *space) shrinkingResources() *v1.Pod {
	s.t.Helper()
	s.publish(`"10000"`)
	s.t.Cleanup(func() { s.publish("null") })
	pod := func(name, amount string) *v1.Pod {
		p := kit.Bound(kit.IdlePod(name))
		p.Annotations = map[string]string{"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}
		list := v1.ResourceList{reclaimedMilliCPU: resource.MustParse(amount)}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		return p
	}
	s.ready(pod("less", "2000"))
	most := s.ready(pod("most", "3000"))
	s.ready(kit.Bound(kit.IdlePod("shared")))
	s.publish(`"999"`)
	return most
}

// publish sets what the Node has of reclaimed CPUs.
func (s *space) publish(amount string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{"capacity":{%[1]q:%[2]s},"allocatable":{%[1]q:%[2]s}}}`, reclaimedMilliCPU, amount)
	n, err := kit.Node(context.Background(), s.client)
	s.must(err)
	_, err = s.client.CoreV1().Nodes().Patch(context.Background(), n.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	s.must(err)
}

// overuseOfDisk has a pod that writes less than the threshold to its writable layer, and one that writes more.
func (s *space) overuseOfDisk() *v1.Pod {
	s.t.Helper()
	writing := func(name string, mebibytes int) *v1.Pod {
		return kit.Pod(name, fmt.Sprintf("dd if=/dev/zero of=/file bs=1M count=%d\n%s", mebibytes, kit.Forever))
	}
	s.ready(writing("little", 20))
	return s.ready(writing("much", 100))
}
