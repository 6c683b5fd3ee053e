//go:build e2e

package e2enode

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// overuseConfig allows the writable layer of a pod 6 % of the disk with writable layers, which is a loop device of
// 1 GiB.
const overuseConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
monitoringPeriod: %s
plugins:
  eviction:
    inTree: [rootfs-overuse-eviction-plugin]
    period: %s
    softKiller: PodWorker
    settings:
      rootfs-overuse-eviction-plugin:
        sharedUsed: 6%%
`

// TestRootfsOveruseOnASmallDisk has a pod whose writable layer uses less than the threshold of
// rootfs-overuse-eviction-plugin, which is a share of the disk, and one that uses more. Only the latter is evicted.
// PLIMSOLL_PLUGIN_ROUNDS repeats it.
func TestRootfsOveruseOnASmallDisk(t *testing.T) {
	rounds, _ := pluginRounds(t)
	s := spaceOnSmallDisks(t)
	s.withPressureConfig(fmt.Sprintf(overuseConfig, inTreeMonitoring, inTreePeriod), nil)
	for round := range rounds {
		t.Run(fmt.Sprint("round ", round+1), func(t *testing.T) {
			s.in(t).evictedByPlugin(inTreeCase{
				play: (*space).overuseOfDisk, reason: "writable layers use", within: inTreeDiskTime,
			})
		})
	}
}

// overuseOfDisk has a pod that writes less than the threshold to its writable layer, and one that writes more.
func (s *space) overuseOfDisk() (*v1.Pod, time.Time) {
	s.t.Helper()
	writing := func(name string, mebibytes int) *v1.Pod {
		return kit.Pod(name, fmt.Sprintf("dd if=/dev/zero of=/file bs=1M count=%d\n%s", mebibytes, kit.Forever))
	}
	s.ready(writing("little", 20))
	return s.ready(writing("much", 100)), time.Now()
}
