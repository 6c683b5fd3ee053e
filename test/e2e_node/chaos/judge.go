package chaos

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// Judge says what is wrong with a pod, once all is quiet. The pod is what the
// API server shows under the name that was asked for, nil for none.
func Judge(asked Asked, pod *v1.Pod, outages []Outage) error {
	there := pod != nil && string(pod.UID) == asked.UID
	switch {
	case asked.Left && there:
		return fmt.Errorf("pod %s (%s) was deleted and is still there: %s", asked.Name, asked.UID, kit.Describe(pod))
	case asked.Left:
		return nil
	case !there:
		return fmt.Errorf("pod %s (%s) is gone, and nobody deleted it", asked.Name, asked.UID)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s (%s) is being deleted, and nobody asked for it", asked.Name, asked.UID)
	}
	if err := asked.outcome()(pod); err != nil && !excused(asked, pod, outages) {
		return fmt.Errorf("pod %s (%s; %v): %w", asked.Name, asked.UID, asked.Shape, err)
	}
	return nil
}

// outcome is the check for a pod that was left alone.
func (a Asked) outcome() func(*v1.Pod) error {
	if a.Filled {
		return evicted
	}
	switch a.Shape.Body {
	case Idle, Stubborn:
		return kit.Ready
	case Succeeds:
		return endedWith(v1.PodSucceeded, 0)
	case Fails:
		return endedWith(v1.PodFailed, FailureCode)
	case Crashes, HoldsInit, HoldsStart, HoldsVolume:
	}
	return goesOn
}

func evicted(pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted" {
		return nil
	}
	return errors.New("not evicted: " + kit.Describe(pod))
}

func goesOn(pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodPending || pod.Status.Phase == v1.PodRunning {
		return nil
	}
	return errors.New("it is to go on for ever: " + kit.Describe(pod))
}

func endedWith(phase v1.PodPhase, code int32) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		for _, status := range pod.Status.ContainerStatuses {
			ended := status.State.Terminated
			if status.Name == "main" && pod.Status.Phase == phase && ended != nil && ended.ExitCode == code {
				return nil
			}
		}
		return fmt.Errorf("not %s with code %d: %s", phase, code, kit.Describe(pod))
	}
}

// excuse is how long before containerd was killed, or after it was there again,
// a container may end whose start or end it missed.
const excuse = 15 * time.Second

// excused says whether the pod failed because containerd was killed while it
// started one of its containers: containerd reports such a container as failed
// to start, or ended with code 255 or 128, and the pod is not to be run again.
func excused(asked Asked, pod *v1.Pod, outages []Outage) bool {
	if asked.Shape.Restart != v1.RestartPolicyNever || pod.Status.Phase != v1.PodFailed {
		return false
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		ended := status.State.Terminated
		if ended == nil || ended.ExitCode != 255 && ended.ExitCode != 128 {
			continue
		}
		for _, outage := range outages {
			if outage.Runtime && !ended.FinishedAt.Time.Before(outage.From.Add(-excuse)) && !ended.FinishedAt.After(outage.To.Add(excuse)) {
				return true
			}
		}
	}
	return false
}

// JudgeStatic says what is wrong with the mirror pod of a static pod, once all
// is quiet; nil for none.
func JudgeStatic(manifest Manifest, mirror *v1.Pod) error {
	switch {
	case !manifest.Present && mirror != nil:
		return fmt.Errorf("the manifest of %s was removed, its mirror pod is there: %s", manifest.Name, kit.Describe(mirror))
	case !manifest.Present:
		return nil
	case mirror == nil:
		return fmt.Errorf("%s revision %d has no mirror pod", manifest.Name, manifest.Revision)
	case mirror.DeletionTimestamp != nil:
		return fmt.Errorf("the mirror pod of %s revision %d is being deleted", manifest.Name, manifest.Revision)
	case mirror.Labels[RevisionLabel] != fmt.Sprint(manifest.Revision):
		return fmt.Errorf("the mirror pod of %s shows revision %s, want %d", manifest.Name, mirror.Labels[RevisionLabel], manifest.Revision)
	}
	if err := kit.Ready(mirror); err != nil {
		return fmt.Errorf("%s revision %d: %w", manifest.Name, manifest.Revision, err)
	}
	return nil
}
