//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// fencedHeadroom is the threshold. fencedRest is what is left above it while the hog rests, fencedExcess by how much
	// it exceeds the threshold and then stops: less than a fence leaves it. All are in MiB.
	fencedHeadroom, fencedRest, fencedExcess = 100, 100, 4
	// fenceTime is the longest time from the signal to grow to the fence.
	fenceTime = 10 * time.Second
)

// TestFencesAndTheEndOfTheKubelet ends the kubelet while a pod is fenced: by SIGKILL, and by SIGTERM. The next kubelet
// goes on with the eviction, starts nothing again, and other pods have no fence. A limit on a running pod that looks
// like a fence of an earlier run is replaced by that of the pod's resources, and its status never shows it.
func TestFencesAndTheEndOfTheKubelet(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(littleHeadroom)
	bystander := kit.IdlePod("bystander")
	bystander.Spec.Containers[0].Resources.Limits = kit.Memory("256Mi")
	bystander = s.ready(bystander)
	before := s.fingerprint()
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(end.String(), func(t *testing.T) { s.in(t).kubeletEndsWhileFenced(end) })
	}
	t.Run("a fence that is left", func(t *testing.T) { s.in(t).fenceIsLifted(bystander) })
	s.must(s.sameAs(before))
}

// littleHeadroom sets a threshold that a kill without a fence is too slow for.
func littleHeadroom(config *kubeletv1beta1.KubeletConfiguration) {
	shortTransition(config)
	config.EvictionHard["memory.available"] = fmt.Sprintf("%dMi", fencedHeadroom)
}

func (s *space) kubeletEndsWhileFenced(end syscall.Signal) {
	pod := s.fencedHog("hog-" + strconv.Itoa(int(end)))
	if end == syscall.SIGKILL {
		s.must(node.KillKubelet(s.ctx))
	} else {
		s.must(node.StopKubelet(s.ctx))
		if limit, err := s.podLimit(pod); err == nil && fence.IsFence(limit) {
			s.t.Errorf("an orderly stop leaves the fence at %d", limit)
		}
	}
	s.must(node.StartKubelet(s.ctx, littleHeadroom))
	ended := s.wait(pod, podTimeout, func(pod *v1.Pod) error {
		if pod.Status.Phase == v1.PodFailed && len(pod.Status.ContainerStatuses) == 1 &&
			pod.Status.ContainerStatuses[0].State.Terminated != nil {
			return nil
		}
		return fmt.Errorf("not ended: %s", kit.Describe(pod))
	})
	s.t.Log(kit.Describe(ended))
	if ended.Status.Reason != "Evicted" || ended.Status.ContainerStatuses[0].RestartCount != 0 {
		s.t.Errorf("the fenced pod: %s", kit.Describe(ended))
	}
	s.remove(pod)
	s.noPressure()
}

// fencedHog starts a pod that ignores SIGTERM and is evicted, and returns when it has a fence.
func (s *space) fencedHog(name string) *v1.Pod {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	start := (node.PodMemory()-used+s.inactiveFile())/mebibyte - fencedHeadroom - fencedRest
	pod := kit.HogPod(name, fmt.Sprintf("--start=%d", start), "--rate=400",
		fmt.Sprintf("--limit=%d", start+fencedRest+fencedExcess), "--step=1ms", "--deaf", "--signal")
	pod = s.ready(kit.Bound(pod))
	s.eventually(podTimeout, func(context.Context) error {
		now, err := s.podNumber(pod, "memory.usage_in_bytes")
		if err == nil && now < start*mebibyte {
			err = fmt.Errorf("the hog uses %d MiB of %d", now/mebibyte, start)
		}
		return err
	})
	pid, err := node.ContainerPID(s.ctx, s.get(name).Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGUSR1))
	deadline := time.Now().Add(fenceTime)
	for time.Now().Before(deadline) {
		if limit, err := s.podLimit(pod); err == nil && fence.IsFence(limit) {
			return pod
		}
		<-time.After(time.Millisecond)
	}
	s.t.Fatalf("no fence: %s", kit.Describe(s.get(name)))
	return nil
}

// inactiveFile returns the page cache of all pods that counts as available.
func (s *space) inactiveFile() int64 {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", node.PodsCgroup(), "memory.stat"))
	s.must(err)
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), "total_inactive_file "); found {
			bytes, err := strconv.ParseInt(value, 10, 64)
			s.must(err)
			return bytes
		}
	}
	s.t.Fatal("memory.stat has no total_inactive_file")
	return 0
}

// fenceIsLifted sets a limit on the cgroup of a running pod that an earlier run may have left.
func (s *space) fenceIsLifted(pod *v1.Pod) {
	want, err := s.podLimit(pod)
	s.must(err)
	s.must(node.KillKubelet(s.ctx))
	left := int64(0)
	for page := int64(os.Getpagesize()); left < want-mebibyte; left += page {
		if fence.IsFence(left) && left > want/2 {
			break
		}
	}
	dir, err := s.podCgroup(pod)
	s.must(err)
	s.must(os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.FormatInt(left, 10)), 0))
	s.must(node.StartKubelet(s.ctx, littleHeadroom))
	s.eventually(podTimeout, func(context.Context) error {
		limit, err := s.podLimit(pod)
		if err == nil && limit != want {
			err = fmt.Errorf("the limit is %d, want %d", limit, want)
		}
		return err
	})
	limits := s.get(pod.Name).Status.ContainerStatuses[0].Resources.Limits
	s.expect("limit in the status", limits.Memory().String(), "256Mi")
}

func (s *space) podLimit(pod *v1.Pod) (int64, error) {
	return s.podNumber(pod, "memory.limit_in_bytes")
}

func (s *space) podNumber(pod *v1.Pod, name string) (int64, error) {
	dir, err := s.podCgroup(pod)
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// podCgroup returns the directory of the pod's cgroup in the hierarchy of memory.
func (s *space) podCgroup(pod *v1.Pod) (string, error) {
	cgroups, err := node.PodCgroups()
	if err != nil {
		return "", err
	}
	for _, dir := range cgroups[string(pod.UID)] {
		if strings.HasPrefix(dir, "/sys/fs/cgroup/memory/") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("pod %s has no cgroup", pod.Name)
}
