//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// bombLimit is how many PIDs one pod may have. The node is under pressure with bombRoom more PIDs than at the start of
	// the test. The bomb crosses that threshold before its limit stops it, and goes on forking afterwards.
	bombLimit = 1500
	bombRoom  = 900
)

// bomb forks as fast as it can, also after failures.
const bomb = `exec awk 'BEGIN { while (1) if (system("sleep 3600 &") != 0) failures++ }'`

// TestForkBomb runs a pod that forks without end. Its cgroup limits it, it is evicted, and no other pod is restarted.
func TestForkBomb(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	s.startMany(3)
	before := s.fingerprint()
	limits := s.rlimit()
	threshold := *limits.MaxPID - *limits.NumOfRunningProcesses - bombRoom
	s.restartKubelet(func(config *kubeletv1beta1.KubeletConfiguration) {
		shortTransition(config)
		config.PodPidsLimit = new(int64(bombLimit))
		config.EvictionHard["pid.available"] = strconv.FormatInt(threshold, 10)
	})
	pod := kit.Pod("bomb", bomb)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", bomb}
	// The kubelet and the test need CPU time as well.
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	evicted := s.wait(s.create(pod), slowTimeout, endedFor("Evicted"))
	if !strings.HasPrefix(evicted.Status.Message, "The node was low on resource: pids.") {
		t.Errorf("message is %q", evicted.Status.Message)
	}
	if kit.ConditionStatus(evicted, v1.DisruptionTarget) != v1.ConditionTrue {
		t.Errorf("no condition DisruptionTarget among %v", evicted.Status.Conditions)
	}
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.PIDPressure(ctx, s.client, false) })
	s.eventually(time.Minute, func(context.Context) error {
		if now := s.rlimit(); *now.MaxPID-*now.NumOfRunningProcesses < threshold+bombRoom/2 {
			return fmt.Errorf("%d processes, before the bomb there were %d",
				*now.NumOfRunningProcesses, *limits.NumOfRunningProcesses)
		}
		return nil
	})
	s.remove(evicted)
	s.must(s.sameAs(before))
}

// rlimit returns the maximum and the current number of processes, from the kubelet's statistics.
func (s *space) rlimit() *statsapi.RlimitStats {
	s.t.Helper()
	summary := s.summary()
	if r := summary.Node.Rlimit; r == nil || r.MaxPID == nil || r.NumOfRunningProcesses == nil {
		s.must(errors.New("the statistics lack the number of processes"))
	}
	return summary.Node.Rlimit
}
