package chaos

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// Judge returns an error if a pod is not as requested once every action has taken effect. The pod is the one that the
// API server shows under the requested name, nil for none. Outages are those of containerd with some time before and
// after them, by Widened, in which containers may fail because containerd missed their start or end.
func Judge(asked Asked, pod *v1.Pod, outages []Outage) error {
	there := pod != nil && string(pod.UID) == asked.UID
	switch {
	case asked.Deleted && there:
		return fmt.Errorf("pod %s (%s) was deleted and is still there: %s", asked.Name, asked.UID, kit.Describe(pod))
	case asked.Deleted:
		return nil
	case !there:
		return fmt.Errorf("pod %s (%s) does not exist, although no deletion was requested", asked.Name, asked.UID)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s (%s) is being deleted, although no deletion was requested", asked.Name, asked.UID)
	}
	if err := asked.outcome()(pod); err != nil && !failedByOutage(asked, pod, outages) {
		return fmt.Errorf("pod %s (%s; %v): %w", asked.Name, asked.UID, asked.Shape, err)
	}
	return nil
}

// outcome is the check for a pod whose deletion was not requested.
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
	case Crashes, InitNeverEnds, PostStartNeverEnds, VolumeMissing:
	}
	return notEnded
}

func evicted(pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted" {
		return nil
	}
	return errors.New("not evicted: " + kit.Describe(pod))
}

func notEnded(pod *v1.Pod) error {
	if pod.Status.Phase == v1.PodPending || pod.Status.Phase == v1.PodRunning {
		return nil
	}
	return errors.New("it must not end: " + kit.Describe(pod))
}

func endedWith(phase v1.PodPhase, code int32) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		for _, status := range pod.Status.ContainerStatuses {
			ended := status.State.Terminated
			if status.Name == MainContainer && pod.Status.Phase == phase && ended != nil && ended.ExitCode == code {
				return nil
			}
		}
		return fmt.Errorf("not %s with code %d: %s", phase, code, kit.Describe(pod))
	}
}

// failedByOutage is true if the pod failed because containerd or the kubelet was killed while one of its containers was
// started, and the restart policy is Never. Containerd reports a container that was lost with it as ended with code
// 255, and as failed to start with code 128. The latter it also does if the kubelet is gone that had asked for the
// start: the request is canceled.
func failedByOutage(asked Asked, pod *v1.Pod, outages []Outage) bool {
	if asked.Shape.Restart != v1.RestartPolicyNever || pod.Status.Phase != v1.PodFailed {
		return false
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		ended := status.State.Terminated
		if ended == nil || ended.ExitCode != 255 && ended.ExitCode != 128 {
			continue
		}
		for _, outage := range outages {
			explains := outage.Runtime || outage.Kubelet && ended.ExitCode == 128
			if at := ended.FinishedAt.Time; explains && !at.Before(outage.From) && !at.After(outage.To) {
				return true
			}
		}
	}
	return false
}

// JudgeStatic returns an error if the mirror pod of a static pod is not as requested once every action has taken
// effect. Without a mirror pod it is nil.
func JudgeStatic(manifest Manifest, mirror *v1.Pod) error {
	switch {
	case !manifest.Present && mirror != nil:
		return fmt.Errorf("the manifest of %s was removed, its mirror pod exists: %s", manifest.Name, kit.Describe(mirror))
	case !manifest.Present:
		return nil
	case mirror == nil:
		return fmt.Errorf("%s revision %d has no mirror pod", manifest.Name, manifest.Revision)
	case mirror.DeletionTimestamp != nil:
		return fmt.Errorf("the mirror pod of %s revision %d is being deleted", manifest.Name, manifest.Revision)
	case mirror.Labels[RevisionLabel] != fmt.Sprint(manifest.Revision):
		return fmt.Errorf("the mirror pod of %s shows revision %s, want %d",
			manifest.Name, mirror.Labels[RevisionLabel], manifest.Revision)
	}
	if err := kit.Ready(mirror); err != nil {
		return fmt.Errorf("%s revision %d: %w", manifest.Name, manifest.Revision, err)
	}
	return nil
}
