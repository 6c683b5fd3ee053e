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

// softGrace is the grace period, in seconds, of a pod that is evicted softly. A kubelet can be killed and another one
// started within it.
const softGrace = 20

// longGrace is a grace period, in seconds, of which softGrace takes something away.
const longGrace = 60

// softEviction sets a soft threshold that is always met, and a maximum grace period of softGrace.
func softEviction(config *kubeletv1beta1.KubeletConfiguration) {
	config.EvictionSoft = map[string]string{"memory.available": "99.9%"}
	config.EvictionSoftGracePeriod = map[string]string{"memory.available": "2s"}
	config.EvictionMaxPodGracePeriod = softGrace
}

// begunEviction is what the kubelet writes to disk about an eviction.
type begunEviction struct {
	Cause        string    `json:"cause"`
	GraceSeconds int64     `json:"graceSeconds"`
	Deadline     time.Time `json:"deadline"`
	file         string
}

// evictSoftly creates a pod, and kills the kubelet when its soft eviction has begun.
func (s *space) evictSoftly(pod *v1.Pod) (*v1.Pod, begunEviction) {
	s.t.Helper()
	created, begun := s.beginSoftEviction(pod)
	// Events are sent beside the eviction, as by stock: a kubelet that is killed before that has lost it.
	s.eventually(podTimeout, func(ctx context.Context) error { return s.evictionEvent(ctx, pod.Name) })
	s.killWhileTerminating(created)
	return created, begun
}

// beginSoftEviction creates a pod and waits until its soft eviction is on disk, which may be before the kubelet
// requests the runtime to stop anything.
func (s *space) beginSoftEviction(pod *v1.Pod) (*v1.Pod, begunEviction) {
	s.t.Helper()
	s.noPressure()
	created := s.ready(pod)
	s.restartKubelet(softEviction)
	begun := begunEviction{file: terminationFile(created)}
	s.eventually(podTimeout, func(context.Context) error {
		data, err := os.ReadFile(begun.file)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &begun)
	})
	if begun.Cause != "eviction" || begun.GraceSeconds != softGrace {
		s.t.Errorf("the eviction on disk is %+v", begun)
	}
	return created, begun
}

// terminationFile is where the kubelet writes, beside ending a pod, that it must be ended, for its next start.
func terminationFile(pod *v1.Pod) string {
	return filepath.Join(node.Layout().KubeletRoot(), "plimsoll", "terminations", string(pod.UID)+".json")
}

func (s *space) killWhileTerminating(pod *v1.Pod) {
	s.t.Helper()
	s.must(node.KillKubelet(s.ctx))
	if status := s.get(pod.Name).Status; status.Phase != v1.PodRunning {
		s.t.Fatalf("the pod is %s, the kubelet was killed too late", status.Phase)
	}
}

// becomesSleep is nil once the program of a process is sleep.
func becomesSleep(pid int) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil && !bytes.HasPrefix(data, []byte("sleep\x00")) {
		err = fmt.Errorf("process %d is %q", pid, data)
	}
	return err
}

// endedSoftly waits until the pod is evicted, and checks that it was not restarted and that nothing is left on disk.
func (s *space) endedSoftly(pod *v1.Pod, begun begunEviction) *v1.Pod {
	s.t.Helper()
	after := s.wait(pod, podTimeout, endedFor("Evicted"))
	s.checkEvicted(after)
	for _, status := range after.Status.ContainerStatuses {
		if status.RestartCount != 0 || status.State.Terminated == nil {
			s.t.Fatalf("the container must have run once: %s", kit.Describe(after))
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

// TestEvictionGoesOnAfterACrash kills the kubelet while a pod that ignores SIGTERM is being evicted. The next kubelet,
// which has no soft threshold, completes the eviction with what is left of the grace period.
func TestEvictionGoesOnAfterACrash(t *testing.T) {
	s := newSpace(t)
	pod, begun := s.evictSoftly(podThat("stubborn", neverEnds, longGrace))
	// A whole grace period from now on would end too late.
	pause(s.ctx, time.Until(begun.Deadline)-8*time.Second)
	s.must(node.StartKubelet(s.ctx, shortTransition))
	after := s.endedSoftly(pod, begun)
	ended := after.Status.ContainerStatuses[0].State.Terminated.FinishedAt
	early, late := begun.Deadline.Add(-5*time.Second), begun.Deadline.Add(10*time.Second)
	if ended.Time.Before(early) || ended.After(late) {
		t.Errorf("it ended at %v, its grace period at %v", ended.Format(time.TimeOnly), begun.Deadline.Format(time.TimeOnly))
	}
	t.Logf("ended %v after its deadline", ended.Sub(begun.Deadline).Round(time.Second))
}

// TestEvictedPodThatEndsWhileNoKubeletRuns has the containers of an evicted pod end before the next kubelet is started.
// They are not restarted, although the restart policy is Always, and the status reports the eviction.
func TestEvictedPodThatEndsWhileNoKubeletRuns(t *testing.T) {
	s := newSpace(t)
	slow := podThat("slow", "trap 'exec sleep 8' TERM; while true; do sleep 1; done", longGrace)
	pod, begun := s.beginSoftEviction(slow)
	pid, err := node.ContainerPID(s.ctx, s.get(pod.Name).Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	s.eventually(podTimeout, func(context.Context) error { return becomesSleep(pid) })
	s.killWhileTerminating(pod)
	s.eventually(podTimeout, func(context.Context) error { return gone(pid) })
	s.must(node.StartKubelet(s.ctx, shortTransition))
	s.endedSoftly(pod, begun)
}

// TestDeletionOfAnEvictedPodAfterACrash deletes a pod whose eviction had begun before a crash, with a long grace
// period. The pod is removed no later than the eviction would have ended.
func TestDeletionOfAnEvictedPodAfterACrash(t *testing.T) {
	s := newSpace(t)
	pod, begun := s.evictSoftly(podThat("stubborn", neverEnds, longGrace))
	anHour := metav1.DeleteOptions{GracePeriodSeconds: new(int64(3600))}
	s.must(s.client.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, anHour))
	s.must(node.StartKubelet(s.ctx, shortTransition))
	s.must(kit.WaitGone(s.ctx, s.client, pod, time.Until(begun.Deadline)+30*time.Second))
}
