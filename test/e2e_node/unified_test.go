//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// swapSize is the size of the swap file of TestLimitedSwap, in MiB.
const swapSize = 512

// TestLimitedSwap gives pods swap by their memory requests, as KEP-2400 says: a Burstable container the share of the
// node's swap that it requests of the node's memory, unless it requests all that it is limited to, and other pods none.
func TestLimitedSwap(t *testing.T) {
	s := spaceForRestart(t)
	s.addSwap()
	s.restartKubelet(func(config *kubeletv1beta1.KubeletConfiguration) {
		config.MemorySwap.SwapBehavior = "LimitedSwap"
	})
	info, err := kit.Node(s.ctx, s.client)
	s.must(err)
	if swap := info.Status.NodeInfo.Swap; swap == nil || swap.Capacity == nil || *swap.Capacity>>20 != swapSize-1 {
		t.Errorf("the node reports the swap %+v, want %d MiB but a page", swap, swapSize)
	}
	const request = 256
	share := float64(request) * float64(mebibyte) / float64(info.Status.Capacity.Memory().Value())
	want := int64(share*swapSize) * mebibyte
	all := kit.Resources("500m", "64Mi")
	for _, test := range []struct {
		name      string
		resources v1.ResourceRequirements
		least     int64
		most      int64
	}{
		{"burstable", v1.ResourceRequirements{Requests: kit.Mebibytes(request)}, want - mebibyte, want + mebibyte},
		{"full", v1.ResourceRequirements{Requests: kit.Memory("64Mi"), Limits: kit.Memory("64Mi")}, 0, 0},
		{"guaranteed", v1.ResourceRequirements{Requests: all, Limits: all}, 0, 0},
		{"besteffort", v1.ResourceRequirements{}, 0, 0},
	} {
		pod := kit.IdlePod(test.name)
		pod.Spec.Containers[0].Resources = test.resources
		got, err := kit.ParseCgroupNumber([]byte(s.containerFile(s.ready(pod), "memory.swap.max")))
		s.must(err)
		if got < test.least || got > test.most {
			t.Errorf("the container of pod %s may swap %d bytes, want %d to %d", test.name, got, test.least, test.most)
		}
	}
	if swap := s.summary().Node.Swap; swap == nil || swap.SwapAvailableBytes == nil {
		t.Errorf("the statistics of swap are %+v", swap)
	}
}

// addSwap gives the node swap until the test ends.
func (s *space) addSwap() {
	s.t.Helper()
	file := filepath.Join(node.Layout().State, "swap")
	s.t.Cleanup(func() {
		// What was swapped out is read back.
		_ = exec.Command("swapoff", file).Run() // There is none if the test failed early.
		if err := os.Remove(file); err != nil {
			s.t.Error(err)
		}
	})
	for _, command := range [][]string{
		{"fallocate", "-l", fmt.Sprintf("%dMiB", swapSize), file}, {"chmod", "600", file}, {"mkswap", file}, {"swapon", file},
	} {
		if out, err := exec.CommandContext(s.ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
}

// TestOOMKillOfAContainer has a process of a container use more memory than the container is limited to. The kernel
// ends the whole container, or with singleProcessOOMKill only that process.
func TestOOMKillOfAContainer(t *testing.T) {
	s := spaceForRestart(t)
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single process %t", single), func(t *testing.T) {
			s := s.in(t)
			s.restartKubelet(func(config *kubeletv1beta1.KubeletConfiguration) { config.SingleProcessOOMKill = new(single) })
			// What tail reads has no end of a line, so that it keeps all of it.
			pod := kit.IdlePodThat(fmt.Sprintf("single-%t", single), "tail /dev/zero\necho survived")
			pod.Spec.RestartPolicy = v1.RestartPolicyNever
			pod.Spec.Containers[0].Resources.Limits = kit.Memory("32Mi")
			if single {
				pod = s.ready(pod)
				s.expectLog(pod, "Killed\nsurvived")
				s.expect("memory.oom.group", s.containerFile(pod, "memory.oom.group"), "0")
				return
			}
			ended := s.wait(s.create(pod), podTimeout, kit.InPhase(v1.PodFailed))
			// The reason is OOMKilled if the runtime has received the event before the container's end.
			s.expect("exit code", fmt.Sprint(ended.Status.ContainerStatuses[0].State.Terminated.ExitCode), "137")
		})
	}
}

// TestMemoryQoS has the kernel protect what pods request, and throttle containers that are about to reach their limits
// (KEP-2570).
func TestMemoryQoS(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(func(config *kubeletv1beta1.KubeletConfiguration) {
		config.FeatureGates = map[string]bool{"MemoryQoS": true}
		config.MemoryReservationPolicy = kubeletv1beta1.TieredReservationMemoryReservationPolicy
		config.MemoryThrottlingFactor = new(0.5)
	})
	burstable := kit.IdlePod("burstable")
	burstable.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: kit.Memory("64Mi"), Limits: kit.Memory("128Mi"),
	}
	guaranteed := kit.IdlePod("guaranteed")
	all := kit.Resources("500m", "64Mi")
	guaranteed.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	burstable, guaranteed = s.ready(burstable), s.ready(guaranteed)
	for _, test := range []struct {
		pod        *v1.Pod
		file, want string
	}{
		{burstable, "memory.low", strconv.FormatInt(64*mebibyte, 10)},
		{burstable, "memory.min", "0"},
		{burstable, "memory.high", strconv.FormatInt(96*mebibyte, 10)},
		{guaranteed, "memory.min", strconv.FormatInt(64*mebibyte, 10)},
		{guaranteed, "memory.high", "max"},
	} {
		s.expect(test.file+" of "+test.pod.Name, s.containerFile(test.pod, test.file), test.want)
	}
}

// TestStallsAreReported: summary and metrics have the pressure stall information of the node and of containers
// (KEP-4205), and tasks that wait for a CPU show in it.
func TestStallsAreReported(t *testing.T) {
	s := newSpace(t)
	busy := kit.IdlePodThat("busy", "while :; do :; done & while :; do :; done &")
	busy.Spec.Containers[0].Resources.Limits = kit.Resources("200m", "32Mi")
	busy = s.ready(busy)
	s.eventually(slowTimeout, func(context.Context) error {
		summary := s.summary()
		if summary.Node.CPU.PSI == nil || summary.Node.Memory.PSI == nil || summary.Node.IO == nil {
			return errors.New("the statistics of the node have no stalls")
		}
		for _, pod := range summary.Pods {
			if pod.PodRef.UID != string(busy.UID) {
				continue
			}
			if len(pod.Containers) != 1 || pod.Containers[0].CPU == nil || pod.Containers[0].CPU.PSI == nil {
				return errors.New("the statistics of the container have no stalls of CPUs")
			}
			if psi := pod.Containers[0].CPU.PSI; psi.Some.Total == 0 {
				return fmt.Errorf("two processes that share a fifth of a CPU were not stalled: %+v", psi)
			}
			return nil
		}
		return errors.New("the pod has no statistics")
	})
	code, body, err := node.KubeletGet(s.ctx, "/metrics/cadvisor", true)
	s.must(err)
	if code != http.StatusOK || !strings.Contains(string(body), "\ncontainer_pressure_cpu_waiting_seconds_total{") {
		t.Errorf("code %d, no metric of stalls", code)
	}
}

// summary returns the statistics that the kubelet serves.
func (s *space) summary() *statsapi.Summary {
	s.t.Helper()
	code, body, err := node.KubeletGet(s.ctx, "/stats/summary", true)
	s.must(err)
	if code != http.StatusOK {
		s.t.Fatalf("statistics: code %d, %s", code, body)
	}
	summary := &statsapi.Summary{}
	s.must(json.Unmarshal(body, summary))
	return summary
}

// containerFile returns the content of a file of the cgroup of the pod's first container. The node has cgroup v2.
func (s *space) containerFile(pod *v1.Pod, name string) string {
	s.t.Helper()
	pid, err := node.ContainerPID(s.ctx, s.get(pod.Name).Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	s.must(err)
	group, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "0::")
	if !ok {
		s.t.Fatalf("process %d is in %q, want cgroup v2 only", pid, data)
	}
	content, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, name))
	s.must(err)
	return strings.TrimSpace(string(content))
}
