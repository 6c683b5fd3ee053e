//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const mebibyte = 1 << 20

// longTransition is a transition period that does not end during a test, unless the test calls endPressure.
const longTransition = 10 * time.Minute

// hogRate is how fast a hog grows, in MiB per second.
const hogRate = 25

// hog is a pod that would use up all memory of the pods. It takes half of it at once and reaches the threshold, which
// is at three quarters, 20 s later (15 s on the smallest machine), when the kubelet has statistics of it.
func hog(name string) *v1.Pod {
	memory := node.PodMemory() / mebibyte
	pod := kit.HogPod(name, fmt.Sprintf("--start=%d", memory/2), fmt.Sprintf("--rate=%d", hogRate),
		fmt.Sprintf("--limit=%d", 2*memory))
	pod.Spec.Containers[0].Resources.Requests = kit.Memory("32Mi")
	return pod
}

// pressure creates a hog and returns it when it is evicted and the node has the condition.
func (s *space) pressure() *v1.Pod {
	s.t.Helper()
	evicted := s.wait(s.create(hog("hog")), slowTimeout, endedFor("Evicted"))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.MemoryPressure(ctx, s.client, true) })
	return evicted
}

// noPressure waits until the node has no memory pressure.
func (s *space) noPressure() {
	s.t.Helper()
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.MemoryPressure(ctx, s.client, false) })
}

// endPressure ends a condition whose transition period is longTransition: it restarts the kubelet with a short one.
// That kubelet takes the condition over and ends it.
func (s *space) endPressure() {
	s.t.Helper()
	s.must(kit.MemoryPressure(s.ctx, s.client, true))
	s.restartKubelet(shortTransition)
	s.noPressure()
}

// restartKubelet restarts the kubelet with a changed configuration. The next test that does not do the same restarts it
// with its first one.
func (s *space) restartKubelet(tune func(*kubeletv1beta1.KubeletConfiguration)) {
	s.t.Helper()
	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, tune))
}

func TestMemoryPressureEvictsTheHogAlone(t *testing.T) {
	s := spaceForRestart(t)
	// Long enough for the pods that are created while the condition lasts.
	s.restartKubelet(transitionPeriod(longTransition))
	guaranteed, burstable, bestEffort := kit.IdlePod("guaranteed"), kit.IdlePod("burstable"), kit.IdlePod("besteffort")
	all := kit.Resources("50m", "64Mi")
	guaranteed.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	burstable.Spec.Containers[0].Resources.Requests = kit.Memory("64Mi")
	for _, pod := range []*v1.Pod{guaranteed, burstable, bestEffort} {
		s.ready(pod)
	}
	before := s.fingerprint()

	evicted := s.pressure()
	s.checkEvicted(evicted)
	s.must(s.sameAs(before))

	late := s.wait(s.create(kit.Bound(kit.IdlePod("late"))), podTimeout, endedFor("Evicted"))
	if !strings.Contains(late.Status.Message, "MemoryPressure") || len(late.Status.ContainerStatuses) > 0 {
		t.Errorf("a BestEffort pod under pressure must be rejected: %s", kit.Describe(late))
	}
	modest := kit.Bound(kit.IdlePod("modest"))
	modest.Spec.Containers[0].Resources.Requests = kit.Memory("16Mi")
	s.ready(modest)

	s.endPressure()
	s.ready(kit.Bound(kit.IdlePod("welcome")))
	s.must(s.sameAs(before))
}

// TestEvictedPodThatExitsWithZeroFails evicts a pod whose process exits with code 0 on SIGTERM. The pod is Failed with
// reason Evicted all the same.
func TestEvictedPodThatExitsWithZeroFails(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(shortTransition)
	polite := hog("polite")
	polite.Spec.Containers[0].Args = append(polite.Spec.Containers[0].Args, "--code=0")
	s.checkEvicted(s.wait(s.create(polite), slowTimeout, endedFor("Evicted")))
}

// checkEvicted checks the message, the condition and the event of an evicted pod.
func (s *space) checkEvicted(pod *v1.Pod) {
	s.t.Helper()
	if !strings.HasPrefix(pod.Status.Message, "The node was low on resource: memory.") {
		s.t.Errorf("message is %q", pod.Status.Message)
	}
	found := false
	for _, condition := range pod.Status.Conditions {
		found = found || condition.Type == v1.DisruptionTarget && condition.Status == v1.ConditionTrue &&
			condition.Reason == "TerminationByKubelet"
	}
	if !found {
		s.t.Errorf("no condition DisruptionTarget by the kubelet among %v", pod.Status.Conditions)
	}
	s.eventually(time.Minute, func(ctx context.Context) error { return s.evictionEvent(ctx, pod.Name) })
}

// evictionEvent is nil if the event of the eviction has the annotations about the signal.
func (s *space) evictionEvent(ctx context.Context, name string) error {
	events, err := s.client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
		FieldSelector: "reason=Evicted,involvedObject.name=" + name,
	})
	if err != nil {
		return err
	}
	for _, event := range events.Items {
		if event.Annotations["starved_resource"] == "memory" && event.Annotations["offending_containers"] == "main" {
			return nil
		}
	}
	return fmt.Errorf("none of %d events has the annotations about memory and container main", len(events.Items))
}

// TestKubeletCrashUnderPressure kills the kubelet while the node is under pressure. The next kubelet takes the
// condition over: no running pod is restarted or rejected, and the taint stays.
func TestKubeletCrashUnderPressure(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(transitionPeriod(longTransition))
	s.startMany(20)
	before := s.fingerprint()
	evicted := s.pressure()
	s.remove(evicted)

	s.must(node.KillKubelet(s.ctx))
	watch := s.watchPressure()
	s.must(node.StartKubelet(s.ctx, transitionPeriod(longTransition)))
	s.wait(s.create(kit.Bound(kit.IdlePod("late"))), podTimeout, endedFor("Evicted"))
	s.stays(inSoak(30*time.Second, 15*time.Second), func() error { return s.sameAs(before) })
	if lost := watch(); lost != nil {
		t.Errorf("the condition or the taint was removed by the restart: %v", lost)
	}
	s.endPressure()
	s.must(s.sameAs(before))
}

// startMany creates count pods, most of them BestEffort, and waits until all are Ready.
func (s *space) startMany(count int) {
	s.t.Helper()
	var pods []*v1.Pod
	for i := range count {
		pod := kit.IdlePod(fmt.Sprintf("many-%02d", i))
		if i%4 == 0 {
			pod.Spec.Containers[0].Resources.Requests = kit.Memory("16Mi")
		}
		pods = append(pods, s.create(pod))
	}
	for _, pod := range pods {
		s.wait(pod, slowTimeout, kit.Ready)
	}
}

// stays fails the test if check returns an error at any time within limit.
func (s *space) stays(limit time.Duration, check func() error) {
	s.t.Helper()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for range int(limit / time.Second) {
		s.must(check())
		<-ticker.C
	}
}

// watchPressure checks again and again that the node is under memory pressure. Function stop ends that and returns the
// first error.
func (s *space) watchPressure() (stop func() error) {
	return s.watch(func(ctx context.Context) error { return kit.MemoryPressure(ctx, s.client, true) })
}
