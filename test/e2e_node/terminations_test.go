//go:build e2e

package e2enode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// softGrace is how many seconds a pod that is evicted softly has to end: time for a kubelet to be killed and another one
// to be started.
const softGrace = 20

// gently makes the kubelet evict softly at once, and give pods up to softGrace.
func gently(config *kubeletv1beta1.KubeletConfiguration) {
	config.EvictionSoft = map[string]string{"memory.available": "99.9%"}
	config.EvictionSoftGracePeriod = map[string]string{"memory.available": "2s"}
	config.EvictionMaxPodGracePeriod = softGrace
}

// begunEviction is what the kubelet keeps of an eviction on disk.
type begunEviction struct {
	Cause        string    `json:"cause"`
	GraceSeconds int64     `json:"graceSeconds"`
	Deadline     time.Time `json:"deadline"`
	file         string
}

// evictSoftly starts a pod, has it evicted with a long grace period, and kills the kubelet when it has begun.
func (s *space) evictSoftly(pod *v1.Pod) (*v1.Pod, begunEviction) {
	s.t.Helper()
	created, begun := s.beginSoftEviction(pod)
	s.killWhileTerminating(created)
	return created, begun
}

// beginSoftEviction starts a pod and has it evicted with a long grace period. It returns when that is on disk, which may be before the
// container runtime is asked to stop anything.
func (s *space) beginSoftEviction(pod *v1.Pod) (*v1.Pod, begunEviction) {
	s.t.Helper()
	s.noPressure()
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
	created := s.ready(pod)
	s.restartKubelet(gently)
	begun := begunEviction{file: filepath.Join(node.Layout().KubeletRoot(), "plimsoll", "terminations", string(created.UID)+".json")}
	s.eventually(podTimeout, func(context.Context) error {
		data, err := os.ReadFile(begun.file)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &begun)
	})
	if begun.Cause != "eviction" || begun.GraceSeconds != softGrace {
		s.t.Errorf("begun is %+v", begun)
	}
	return created, begun
}

func (s *space) killWhileTerminating(pod *v1.Pod) {
	s.t.Helper()
	s.must(node.KillKubelet(s.ctx))
	if status := s.get(pod.Name).Status; status.Phase != v1.PodRunning {
		s.t.Fatalf("the pod is %s, the kubelet was killed too late", status.Phase)
	}
}

// becomesSleep is nil once a process has replaced its program by sleep.
func becomesSleep(pid int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil && !bytes.HasPrefix(data, []byte("sleep\x00")) {
		err = fmt.Errorf("process %d is %q", pid, data)
	}
	return err
}

// endedSoftly wants the pod evicted, never started again, and nothing of its end left on disk.
func (s *space) endedSoftly(pod *v1.Pod, begun begunEviction) *v1.Pod {
	s.t.Helper()
	after := s.wait(pod, podTimeout, endedFor("Evicted"))
	s.checkEvicted(after)
	for _, status := range after.Status.ContainerStatuses {
		if status.RestartCount != 0 || status.State.Terminated == nil {
			s.t.Fatalf("the container is to have run once: %s", kit.Describe(after))
		}
	}
	s.eventually(time.Minute, func(context.Context) error {
		if _, err := os.Stat(begun.file); !os.IsNotExist(err) {
			return os.ErrExist
		}
		return nil
	})
	return after
}

// TestEvictionGoesOnAfterACrash kills the kubelet while a pod that does not stop is being evicted. The next kubelet, which would evict nobody,
// gives it what is left of its grace period.
func TestEvictionGoesOnAfterACrash(t *testing.T) {
	s := newSpace(t)
	stubborn := kit.IdlePod("stubborn")
	stubborn.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while true; do sleep 1; done"}
	pod, begun := s.evictSoftly(stubborn)
	// A whole grace period from now on would end too late.
	pause(s.ctx, time.Until(begun.Deadline)-8*time.Second)
	s.must(node.StartKubelet(s.ctx, nil))
	after := s.endedSoftly(pod, begun)
	ended := after.Status.ContainerStatuses[0].State.Terminated.FinishedAt
	if early, late := begun.Deadline.Add(-5*time.Second), begun.Deadline.Add(10*time.Second); ended.Time.Before(early) || ended.After(late) {
		t.Errorf("it ended at %v, its grace period at %v", ended.Format(time.TimeOnly), begun.Deadline.Format(time.TimeOnly))
	}
	t.Logf("ended %v after its deadline", ended.Sub(begun.Deadline).Round(time.Second))
}

// TestEvictedPodThatEndsWhileNoKubeletRuns has ended when the next kubelet comes. It is not started again, although its restart policy says so, and
// everybody learns that it was evicted.
func TestEvictedPodThatEndsWhileNoKubeletRuns(t *testing.T) {
	s := newSpace(t)
	slow := kit.IdlePod("slow")
	slow.Spec.Containers[0].Command = []string{"sh", "-c", "trap 'exec sleep 8' TERM; while true; do sleep 1; done"}
	pod, begun := s.beginSoftEviction(slow)
	pid, err := node.ContainerPID(s.ctx, s.get(pod.Name).Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	s.eventually(podTimeout, func(context.Context) error { return becomesSleep(pid) })
	s.killWhileTerminating(pod)
	s.eventually(podTimeout, func(context.Context) error { return gone(pid) })
	s.must(node.StartKubelet(s.ctx, nil))
	s.endedSoftly(pod, begun)
}

// TestDeletionOfAnEvictedPodAfterACrash ends in the pod's removal, and not later than the eviction would have ended it.
func TestDeletionOfAnEvictedPodAfterACrash(t *testing.T) {
	s := newSpace(t)
	stubborn := kit.IdlePod("stubborn")
	stubborn.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while true; do sleep 1; done"}
	pod, begun := s.evictSoftly(stubborn)
	s.must(s.client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(3600))}))
	s.must(node.StartKubelet(s.ctx, nil))
	s.must(kit.WaitGone(s.ctx, s.client, pod, time.Until(begun.Deadline)+30*time.Second))
}
