//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// settled is for how long a test checks that no further pod is stopped.
	settled = 2 * time.Second
	// The messages of log lines about a pod that the kubelet has chosen as a victim.
	logPreempting = "Preempting pod to free up resources"
	logEvicting   = "Eviction manager: evicting pod"
)

// TestLatePreemptionVictimIsTheOnlyOne halts the shim of a preemption victim, so that the victim takes longer to stop
// than the kubelet waits for a kill, but not so long that the kubelet kills it without the runtime. The kubelet
// preempts no other pod, and the critical pod runs once the victim has stopped.
func TestLatePreemptionVictimIsTheOnlyOne(t *testing.T) {
	s := newSpace(t)
	victim, before := s.fullNode(podThat("victim", endsAtOnce, 1))
	resume := s.halt(s.shimOf(s.mainPID(victim)))
	critical := s.create(s.criticalPod())
	s.killTimesOut(victim)
	s.stays(settled, func() error { return errors.Join(s.onlyPreempted(victim), s.sameAs(before)) })

	resume()
	s.wait(critical, podTimeout, kit.Ready)
	s.must(errors.Join(s.onlyPreempted(victim), s.sameAs(before)))
}

// killTimesOut waits for the event that the pod has not stopped in time.
func (s *space) killTimesOut(pod *v1.Pod) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, pod.Name, "ExceededGracePeriod", "did not kill the pod within specified grace period")
	})
}

// Requests of memory, in percent of the allocatable memory of the node.
const (
	victimPart, otherPart, otherPods = 40, 10, 5
	criticalPart                     = 45
)

// fullNode starts victim and other pods, which together request nearly all allocatable memory, and returns the
// fingerprint of the others. A critical pod fits once the victim, or most of the others, have ended.
func (s *space) fullNode(victim *v1.Pod) (started *v1.Pod, others map[string]string) {
	s.t.Helper()
	s.noPressure()
	var pods []*v1.Pod
	for i := range otherPods {
		pods = append(pods, s.create(requesting(fmt.Sprintf("other-%d", i), s.percentOfMemory(otherPart))))
	}
	for _, pod := range pods {
		s.wait(pod, podTimeout, kit.Ready)
	}
	others = s.fingerprint()
	victim.Spec.Containers[0].Resources.Requests = kit.Mebibytes(s.percentOfMemory(victimPart))
	return s.ready(victim), others
}

func (s *space) criticalPod() *v1.Pod {
	s.t.Helper()
	pod := requesting("critical", s.percentOfMemory(criticalPart))
	pod.Spec.PriorityClassName = "system-node-critical"
	return kit.Bound(pod)
}

// percentOfMemory returns that part of the node's allocatable memory, in MiB.
func (s *space) percentOfMemory(part int64) int64 {
	s.t.Helper()
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	return got.Status.Allocatable.Memory().Value() / mebibyte * part / 100
}

func (s *space) onlyPreempted(pod *v1.Pod) error {
	return s.onlyChosen("Preempting", logPreempting, pod.Name)
}

// onlyChosen is nil if the kubelets have chosen exactly these pods of the namespace: the events with that reason are
// about them, and so are the log lines with that message. A kubelet that stops may log a choice without sending the
// event.
func (s *space) onlyChosen(reason, message string, names ...string) error {
	events, err := s.client.CoreV1().Events(s.name).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return err
	}
	var reported []string
	for i := range events.Items {
		reported = append(reported, events.Items[i].InvolvedObject.Name)
	}
	logged, err := s.loggedPods(message)
	if err != nil {
		return err
	}
	for _, list := range []*[]string{&names, &reported, &logged} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Equal(reported, names) || !slices.Equal(logged, names) {
		return fmt.Errorf("events %s are about %v, log lines %q about %v, want only %v",
			reason, reported, message, logged, names)
	}
	return nil
}

// loggedPods returns the names of the namespace's pods about which the kubelets have logged that message.
func (s *space) loggedPods(message string) (names []string, err error) {
	data, err := os.ReadFile(node.KubeletLog())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(data)) {
		if _, about, found := strings.Cut(line, `pod="`+s.name+"/"); found && strings.Contains(line, `"`+message+`"`) {
			name, _, _ := strings.Cut(about, `"`)
			names = append(names, name)
		}
	}
	return names, nil
}
