package kit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// pollDelays are the times between two checks: short ones at first, since most of what tests await happens soon, and
// later such that a long wait takes little CPU time from what it waits for.
var pollDelays = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Cap: 250 * time.Millisecond, Steps: 20}

// hopeless is an error that is permanent.
type hopeless struct{ error }

func (h hopeless) Unwrap() error { return h.error }

// Hopeless marks an error of a check as permanent: waiting longer does not help.
func Hopeless(err error) error { return hopeless{err} }

// Poll calls check until it returns nil or a Hopeless error, at most for limit times cluster.TimeFactor. The error has
// the last error of check.
func Poll(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	var last error
	limit *= cluster.TimeFactor()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := pollDelays.DelayFunc().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || err == nil || !cutOff(ctx, err) {
			last = err
		}
		if errors.As(err, &hopeless{}) {
			return false, err
		}
		return err == nil, nil
	})
	if errors.As(err, &hopeless{}) {
		return err
	}
	if err != nil {
		return fmt.Errorf("gave up after %v: %w", limit, errors.Join(last, context.Cause(ctx)))
	}
	return nil
}

// cutOff returns whether err only reports that the time is up: then the previous error says more.
func cutOff(ctx context.Context, err error) bool {
	return ctx.Err() != nil || strings.Contains(err.Error(), "would exceed context deadline")
}

// WaitPod waits until check returns nil for the pod, and returns that pod.
func WaitPod(
	ctx context.Context, client kubernetes.Interface, pod *v1.Pod, limit time.Duration, check func(*v1.Pod) error,
) (*v1.Pod, error) {
	var seen *v1.Pod
	err := Poll(ctx, limit, func(ctx context.Context) error {
		got, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		seen = got
		return check(got)
	})
	if err != nil {
		return seen, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return seen, nil
}

// WaitGone waits until the API server has no such pod any more.
func WaitGone(ctx context.Context, client kubernetes.Interface, pod *v1.Pod, limit time.Duration) error {
	return Poll(ctx, limit, func(ctx context.Context) error {
		got, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case got.UID != pod.UID:
			return nil
		}
		return fmt.Errorf("pod %s/%s is still there: %s", pod.Namespace, pod.Name, Describe(got))
	})
}

// Ready is a check for a pod whose containers all pass their probes.
func Ready(pod *v1.Pod) error {
	if ConditionStatus(pod, v1.PodReady) == v1.ConditionTrue {
		return nil
	}
	return IfEnded(pod, errors.New("not Ready: "+Describe(pod)))
}

// InPhase is a check for a pod in that phase. The error for a pod that ended in another one is Hopeless.
func InPhase(phase v1.PodPhase) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		if pod.Status.Phase == phase {
			return nil
		}
		return IfEnded(pod, fmt.Errorf("phase is not %s: %s", phase, Describe(pod)))
	}
}

// IfEnded marks err as Hopeless for a pod whose phase is final.
func IfEnded(pod *v1.Pod, err error) error {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return Hopeless(err)
	}
	return err
}

// ConditionStatus returns the status of one of the pod's conditions, Unknown if the pod does not have it.
func ConditionStatus(pod *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return v1.ConditionUnknown
}

// Describe returns a pod's status in one line.
func Describe(pod *v1.Pod) string {
	text := fmt.Sprintf("phase %s, reason %q, message %q", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		text += fmt.Sprintf("; %s: ready %v, restarts %d", status.Name, status.Ready, status.RestartCount)
		if waiting := status.State.Waiting; waiting != nil {
			text += fmt.Sprintf(", waiting %s %s", waiting.Reason, waiting.Message)
		}
		if ended := status.State.Terminated; ended != nil {
			text += fmt.Sprintf(", ended %s, code %d, %s", ended.Reason, ended.ExitCode, ended.Message)
		}
	}
	return text
}

// Node gets the only node of the cluster.
func Node(ctx context.Context, client kubernetes.Interface) (*v1.Node, error) {
	return client.CoreV1().Nodes().Get(ctx, cluster.NodeName, metav1.GetOptions{})
}

// NodeCondition returns one of the node's conditions; the zero value if it has no such condition.
func NodeCondition(node *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, condition := range node.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return v1.NodeCondition{}
}

// HasTaint returns whether the node has a taint with that key.
func HasTaint(node *v1.Node, key string) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}

// MemoryPressure is a check that both the condition and the taint exist, or with want false that neither does.
func MemoryPressure(ctx context.Context, client kubernetes.Interface, want bool) error {
	return pressure(ctx, client, v1.NodeMemoryPressure, v1.TaintNodeMemoryPressure, want)
}

// DiskPressure is MemoryPressure for disks.
func DiskPressure(ctx context.Context, client kubernetes.Interface, want bool) error {
	return pressure(ctx, client, v1.NodeDiskPressure, v1.TaintNodeDiskPressure, want)
}

// PIDPressure is MemoryPressure for process IDs.
func PIDPressure(ctx context.Context, client kubernetes.Interface, want bool) error {
	return pressure(ctx, client, v1.NodePIDPressure, v1.TaintNodePIDPressure, want)
}

func pressure(
	ctx context.Context, client kubernetes.Interface, kind v1.NodeConditionType, key string, want bool,
) error {
	node, err := Node(ctx, client)
	if err != nil {
		return err
	}
	condition, taint := NodeCondition(node, kind).Status == v1.ConditionTrue, HasTaint(node, key)
	if condition != want || taint != want {
		return fmt.Errorf("condition %s is %v and its taint is there %v, want both %v", kind, condition, taint, want)
	}
	return nil
}
