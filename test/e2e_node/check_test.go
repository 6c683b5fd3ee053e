//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// ended is a check for a pod in that phase.
func ended(phase v1.PodPhase) func(*v1.Pod) error { return kit.InPhase(phase) }

// endedFor is a check for a Failed pod whose status has that reason.
func endedFor(reason string) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		if pod.Status.Phase == v1.PodFailed && pod.Status.Reason == reason {
			return nil
		}
		return kit.IfEnded(pod, fmt.Errorf("not failed for reason %s: %s", reason, kit.Describe(pod)))
	}
}

// restarted is a check for a pod whose first container was restarted at least count times.
func restarted(count int32) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		if statuses := pod.Status.ContainerStatuses; len(statuses) > 0 && statuses[0].RestartCount >= count {
			return nil
		}
		return fmt.Errorf("not restarted %d times: %s", count, kit.Describe(pod))
	}
}

// container returns the status of a container of any kind by its name.
func container(pod *v1.Pod, name string) (v1.ContainerStatus, error) {
	status := pod.Status
	for _, list := range [][]v1.ContainerStatus{
		status.ContainerStatuses, status.InitContainerStatuses, status.EphemeralContainerStatuses,
	} {
		for _, container := range list {
			if container.Name == name {
				return container, nil
			}
		}
	}
	return v1.ContainerStatus{}, fmt.Errorf("pod %s has no status of container %s", pod.Name, name)
}

// hasEvent is nil if there is an event about the object called name with that reason and a message that contains text.
func (s *space) hasEvent(ctx context.Context, name, reason, text string) error {
	events, err := s.client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + name + ",reason=" + reason,
	})
	if err != nil {
		return err
	}
	for _, event := range events.Items {
		if strings.Contains(event.Message, text) {
			return nil
		}
	}
	return fmt.Errorf("no event %s about %s contains %q, of %d with that reason", reason, name, text, len(events.Items))
}

// fingerprint returns, for each pod of the namespace by name, a text that changes when a container is restarted or the
// pod is replaced, and only then.
func (s *space) fingerprint() map[string]string {
	s.t.Helper()
	prints := map[string]string{}
	for _, pod := range s.pods() {
		prints[pod.Name] = fingerprintOf(&pod)
	}
	return prints
}

func fingerprintOf(pod *v1.Pod) string {
	text := string(pod.UID)
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		text += fmt.Sprintf(" %s=%s/%d", status.Name, status.ContainerID, status.RestartCount)
	}
	return text
}

// pods returns the pods of the namespace.
func (s *space) pods() []v1.Pod {
	s.t.Helper()
	list, err := s.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	return list.Items
}

// sameAs is nil if no pod or container of before was replaced or restarted, and all are Ready.
func (s *space) sameAs(before map[string]string) error {
	pods := map[string]*v1.Pod{}
	for _, pod := range s.pods() {
		pods[pod.Name] = &pod
	}
	var errs []error
	for name, was := range before {
		pod := pods[name]
		if pod == nil {
			errs = append(errs, fmt.Errorf("pod %s is gone, was %s", name, was))
			continue
		}
		if now := fingerprintOf(pod); now != was {
			errs = append(errs, fmt.Errorf("pod %s was %s, is %s", name, was, now))
			continue
		}
		errs = append(errs, kit.Ready(pod))
	}
	return errors.Join(errs...)
}
