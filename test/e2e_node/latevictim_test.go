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
	// settled is for how long a test looks for a pod that is stopped although none has to be.
	settled = 2 * time.Second
	// The constant messages of log lines that name a pod which the kubelet has chosen.
	logPreempting = "Preempting pod to free up resources"
	logEvicting   = "Eviction manager: evicting pod"
)

// TestLatePreemptionVictimIsTheOnlyOne halts the runtime's shim of a preemption victim, so that the victim takes
// longer to stop than the kubelet waits for a kill, but not as long as the kubelet needs to kill it without the
// runtime. The kubelet preempts no other pod, and the critical pod runs once the victim has stopped.
func TestLatePreemptionVictimIsTheOnlyOne(t *testing.T) {
	s := newSpace(t)
	victim, before := s.fullNode(podThat("victim", endsAtOnce, 1))
	goOn := s.halt(s.shimOf(s.mainPID(victim)))
	critical := s.create(s.criticalPod())
	s.killTimesOut(victim)
	s.stays(settled, func() error { return errors.Join(s.onlyPreempted(victim), s.sameAs(before)) })

	goOn()
	s.wait(critical, podTimeout, kit.Ready)
	s.must(errors.Join(s.onlyPreempted(victim), s.sameAs(before)))
}

// killTimesOut waits until the kubelet says that the pod has not stopped in time.
func (s *space) killTimesOut(pod *v1.Pod) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, pod.Name, "ExceededGracePeriod", "did not kill the pod within specified grace period")
	})
}

// The parts of what pods may request of the node's memory, in percent.
const (
	victimPart, otherPart, otherPods = 40, 10, 5
	criticalPart                     = 45
)

// fullNode starts victim and others, which request nearly all memory of the node. The prints are those of the
// others. A critical pod gets room by the end of the victim, or of most of the others.
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

// percentOfMemory is that part of the memory that pods may request on the node, in MiB.
func (s *space) percentOfMemory(part int64) int64 {
	s.t.Helper()
	got, err := kit.Node(s.ctx, s.client)
	s.must(err)
	return got.Status.Allocatable.Memory().Value() / mebibyte * part / 100
}

func (s *space) onlyPreempted(pod *v1.Pod) error {
	return s.onlyChosen("Preempting", logPreempting, pod.Name)
}

// onlyChosen is nil if the kubelets have chosen these pods of the namespace and no others: there are events for
// that reason about exactly these, and exactly these are named by log lines with that message. A kubelet that ends
// may log a choice and send no event about it any more.
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

// loggedPods are the names of the namespace's pods about which the kubelets have logged that message.
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
