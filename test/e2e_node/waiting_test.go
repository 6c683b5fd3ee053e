//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// reasonWaiting is the reason of pods that wait to be admitted, in their status and in events.
const reasonWaiting = "WaitingForRoom"

// TestDaemonSetPodWaitsUnderPressure keeps a hard threshold met by a critical pod, which is never evicted. The pod of a
// DaemonSet that is created meanwhile waits, and runs when the critical pod is deleted. Stock admits it since it
// tolerates the taint, and evicts it; the controller creates the next one, again and again (kubernetes issues 65240 and
// 124388).
func TestDaemonSetPodWaitsUnderPressure(t *testing.T) {
	s := spaceForRestart(t)
	// For how long the hard threshold stays met: if each pod is evicted, the DaemonSet controller, which backs off,
	// creates four in 30 s. A pod waits no longer than the transition period.
	shortage := inSoak(45*time.Second, 30*time.Second)
	s.restartKubelet(transitionPeriod(longTransition))
	s.must(kit.MemoryPressure(s.ctx, s.client, false))
	critical := holding("critical", node.PodMemory()*3/4/mebibyte+100)
	critical.Spec.PriorityClassName = "system-node-critical"
	critical = s.ready(kit.Bound(critical))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.MemoryPressure(ctx, s.client, true) })

	began, created := time.Now(), s.countPods("app=web")
	s.startDaemonSet("agent")
	s.untilDone(time.After(shortage))
	t.Logf("in %v under pressure the controller created %d pods", time.Since(began).Round(time.Second), len(created()))
	waiting := s.onlyWaiting("app=web")
	if pods := created(); len(pods) > 2 {
		t.Errorf("the controller created %d pods under pressure, want at most 2", len(pods))
	}
	if err := kit.Ready(s.get("critical")); err != nil {
		t.Errorf("the critical pod ended: %v", err)
	}

	freed := time.Now()
	s.remove(critical)
	s.wait(waiting, podTimeout, kit.Ready)
	t.Logf("the waiting pod was Ready %v after the critical pod was deleted; the controller created %d pods",
		time.Since(freed).Round(100*time.Millisecond), len(created()))
	s.endPressure()
	s.must(kit.Ready(s.get(waiting.Name)))
}

// onlyWaiting returns the only Pending pod with that label, and checks that it waits and that no container of it was
// started.
func (s *space) onlyWaiting(label string) *v1.Pod {
	s.t.Helper()
	var found *v1.Pod
	s.eventually(podTimeout, func(ctx context.Context) error {
		list, err := s.client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{
			LabelSelector: label, FieldSelector: "status.phase=Pending",
		})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d pods are Pending, want one", len(list.Items))
		}
		found = &list.Items[0]
		return waitsForRoom(found)
	})
	hasMessage := strings.Contains(found.Status.Message, "The node had condition: [MemoryPressure]. ")
	if !hasMessage || len(found.Status.ContainerStatuses) > 0 {
		s.t.Errorf("status of the waiting pod: %s", kit.Describe(found))
	}
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, found.Name, reasonWaiting, "MemoryPressure")
	})
	return found
}

func waitsForRoom(pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodPending && pod.Status.Reason == reasonWaiting {
		return nil
	}
	return kit.IfEnded(pod, errors.New("does not wait for room: "+kit.Describe(pod)))
}

func (s *space) startDaemonSet(name string) {
	s.t.Helper()
	_, err := s.client.AppsV1().DaemonSets(s.name).Create(s.ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: appSelector(), Template: appTemplate()},
	}, metav1.CreateOptions{})
	s.must(err)
}

// untilDone waits for the channel, or for the end of the test.
func (s *space) untilDone(done <-chan time.Time) {
	s.t.Helper()
	select {
	case <-done:
	case <-s.ctx.Done():
		s.t.Fatal(s.ctx.Err())
	}
}

// countPods watches which pods with that label are created from now on, including those that are deleted soon.
func (s *space) countPods(label string) (created func() []types.UID) {
	s.t.Helper()
	list, err := s.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{LabelSelector: label})
	s.must(err)
	watcher, err := s.client.CoreV1().Pods(s.name).Watch(s.ctx, metav1.ListOptions{
		LabelSelector: label, ResourceVersion: list.ResourceVersion,
	})
	s.must(err)
	s.t.Cleanup(watcher.Stop)
	var (
		mu   sync.Mutex
		uids []types.UID
	)
	go func() {
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*v1.Pod); ok && event.Type == watch.Added {
				mu.Lock()
				uids = append(uids, pod.UID)
				mu.Unlock()
			}
		}
	}()
	return func() []types.UID {
		mu.Lock()
		defer mu.Unlock()
		return append([]types.UID(nil), uids...)
	}
}
