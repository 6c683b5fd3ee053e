//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// The groups of pods by priority, and how long each may take to stop, long enough for a machine that is emulated beside
// others.
const (
	important                = int32(10_000)
	ordinaryTime, urgentTime = 10 * time.Minute, 5 * time.Minute
	// ignoredFor is the grace period of a pod that does not end on SIGTERM.
	ignoredFor = 20 * time.Second
)

func gracefulShutdown(config *kubeletv1beta1.KubeletConfiguration) {
	config.ShutdownGracePeriodByPodPriority = []kubeletv1beta1.ShutdownGracePeriodByPodPriority{
		{Priority: 0, ShutdownGracePeriodSeconds: int64(ordinaryTime.Seconds())},
		{Priority: important, ShutdownGracePeriodSeconds: int64(urgentTime.Seconds())},
	}
}

// The kubelet holds a delay lock of logind, and systemd grants it as much time as it needs.
func TestKubeletHoldsADelayLock(t *testing.T) {
	lock := inMachine(t, "systemd-inhibit --list --no-legend | grep kubelet")
	if !strings.Contains(lock, "shutdown") || !strings.HasSuffix(strings.TrimSpace(lock), "delay") {
		t.Errorf("the lock is %q", lock)
	}
	got := inMachine(t, "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 "+
		"org.freedesktop.login1.Manager InhibitDelayMaxUSec")
	if want := fmt.Sprintf("t %d", (ordinaryTime + urgentTime).Microseconds()); got != want {
		t.Errorf("logind grants %q, want %q", got, want)
	}
}

// A reboot that logind announces, delays and carries out.
func TestReboot(t *testing.T) {
	pods := startShutdownPods(t, "reboot")
	before := bootID(t)
	inMachine(t, "systemctl reboot")
	pods.stopInOrder(t)
	must(t, node.WaitForBoot(t.Context(), before))
	pods.afterwards(t)
}

// The machine switches itself off. It is switched on again later.
func TestPoweroff(t *testing.T) {
	pods := startShutdownPods(t, "poweroff")
	before := bootID(t)
	inMachine(t, "systemctl poweroff")
	pods.stopInOrder(t)
	must(t, kit.Poll(t.Context(), limit(), node.PoweredOff))
	must(t, node.PowerOn(t.Context()))
	must(t, node.WaitForBoot(t.Context(), before))
	pods.afterwards(t)
}

// A reboot that logind announces, and cannot carry out when the pods have ended. The node is Ready again, and what
// restarts with the node is started.
func TestShutdownIsCancelled(t *testing.T) {
	pods := startShutdownPods(t, "cancelled")
	before := bootID(t)
	t.Cleanup(func() {
		if _, err := node.Run(context.WithoutCancel(t.Context()), "systemctl unmask --runtime reboot.target"); err != nil {
			t.Error(err)
		}
	})
	since := now(t)
	// Logind refuses at once to reboot to a target that is masked. Masked while pods stop, it cannot be started.
	inMachine(t, "systemctl reboot && systemctl mask --runtime reboot.target")
	pods.stopInOrder(t)
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error { return node.Ready(ctx, since) }))
	pods.afterwards(t)
	if now := bootID(t); now != before {
		t.Error("the machine has booted")
	}
	if lock := inMachine(t, "systemd-inhibit --list --no-legend | grep -c kubelet"); lock != "1" {
		t.Errorf("the kubelet has %s locks after the shutdown was cancelled", lock)
	}
	welcome := create(t, "cancelled-welcome", kit.Pod("welcome", "true"))
	waitPod(t, welcome[0], kit.InPhase(v1.PodSucceeded))
}

func bootID(t *testing.T) string {
	t.Helper()
	id, err := node.BootID(t.Context())
	must(t, err)
	return id
}

// shutdownPods are pods of every kind that a shutdown distinguishes.
type shutdownPods struct {
	// ending get a final phase: in the order in which they are stopped.
	ending []*v1.Pod
	// staying restart with the node: a static pod and that of a DaemonSet.
	staying []*v1.Pod
}

func startShutdownPods(t *testing.T, namespace string) shutdownPods {
	t.Helper()
	const endsAtOnce = "trap 'exit 0' TERM" + kit.Forever
	client := node.Client()
	class := &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "important-" + namespace}, Value: important,
		PreemptionPolicy: new(v1.PreemptNever),
	}
	_, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{})
	must(t, existing(err))
	ignores, urgent := podThat("ignores", "trap '' TERM"+kit.Forever), podThat("urgent", endsAtOnce)
	ignores.Spec.TerminationGracePeriodSeconds = new(int64(ignoredFor.Seconds()))
	urgent.Spec.PriorityClassName = class.Name
	var pods shutdownPods
	for _, pod := range create(t, namespace, podThat("exits", endsAtOnce), ignores, urgent) {
		pods.ending = append(pods.ending, waitPod(t, pod, kit.Ready))
	}
	static := podThat("static", endsAtOnce)
	static.Namespace, static.TypeMeta = namespace, metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	manifest, err := yaml.Marshal(static)
	must(t, err)
	file := nodeManifests + "/" + namespace + ".yaml"
	inMachine(t, fmt.Sprintf("cat >%s <<'EOF'\n%s\nEOF\n", file, manifest))
	t.Cleanup(func() {
		if _, err := node.Run(context.WithoutCancel(t.Context()), "rm "+file); err != nil {
			t.Error(err)
		}
	})
	labels := map[string]string{"app": "daemon"}
	_, err = client.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       alwaysRestarted(podThat("daemon", endsAtOnce)).Spec,
			},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		err := client.AppsV1().DaemonSets(namespace).Delete(context.WithoutCancel(t.Context()), "daemon",
			metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	pods.staying = []*v1.Pod{onlyPod(t, namespace, "static-"), onlyPod(t, namespace, "daemon-")}
	return pods
}

// podThat runs script as process 1, without the signal handlers of other pods.
func podThat(name, script string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
	return pod
}

func alwaysRestarted(pod *v1.Pod) *v1.Pod {
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	return pod
}

// onlyPod returns the pod whose name begins with prefix when it is Ready.
func onlyPod(t *testing.T, namespace, prefix string) *v1.Pod {
	t.Helper()
	var found *v1.Pod
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		named := podsNamed(t, namespace, prefix)
		if len(named) != 1 {
			return fmt.Errorf("%d pods are called %s", len(named), prefix)
		}
		found = &named[0]
		return kit.Ready(found)
	}))
	return found
}

func podsNamed(t *testing.T, namespace, prefix string) []v1.Pod {
	t.Helper()
	list, err := node.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	return slices.DeleteFunc(list.Items, func(pod v1.Pod) bool { return !strings.HasPrefix(pod.Name, prefix) })
}

// stopInOrder waits until the pods have ended: ordinary ones first, each in its time.
func (p shutdownPods) stopInOrder(t *testing.T) {
	t.Helper()
	must(t, kit.Poll(t.Context(), limit(), shuttingDown))
	var last time.Time
	for i, pod := range p.ending {
		ended := waitPod(t, pod, func(pod *v1.Pod) error {
			if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
				return errors.New("not ended: " + kit.Describe(pod))
			}
			return nil
		})
		succeeded, ignores := ended.Status.Phase == v1.PodSucceeded, pod.Name == "ignores"
		if succeeded == ignores || ignores && ended.Status.Reason != "Terminated" {
			t.Errorf("pod %s: %s", pod.Name, kit.Describe(ended))
		}
		if kit.ConditionStatus(ended, v1.DisruptionTarget) != v1.ConditionTrue {
			t.Errorf("pod %s has no condition DisruptionTarget", pod.Name)
		}
		terminated := ended.Status.ContainerStatuses[0].State.Terminated
		if terminated == nil {
			t.Errorf("pod %s: its container has not ended: %s", pod.Name, kit.Describe(ended))
			continue
		}
		if i == len(p.ending)-1 && terminated.FinishedAt.Time.Before(last) {
			t.Errorf("pod %s ended at %v, before the others of lower priority at %v", pod.Name, terminated.FinishedAt, last)
		}
		if terminated.FinishedAt.After(last) {
			last = terminated.FinishedAt.Time
		}
	}
}

// shuttingDown is nil if the Ready condition of the node reports the shutdown.
func shuttingDown(ctx context.Context) error {
	got, err := kit.Node(ctx, node.Client())
	if err != nil {
		return err
	}
	ready := kit.NodeCondition(got, v1.NodeReady)
	if ready.Status == v1.ConditionFalse && strings.Contains(ready.Message, "node is shutting down") {
		return nil
	}
	return fmt.Errorf("Ready is %s: %s", ready.Status, ready.Message)
}

// afterwards checks that the pods that have ended stay so, and waits until those that restart with the node are Ready:
// the same pods, restarted, and no others in their places.
func (p shutdownPods) afterwards(t *testing.T) {
	t.Helper()
	for _, before := range p.staying {
		pod := waitPod(t, before, func(pod *v1.Pod) error {
			if kit.ConditionStatus(pod, v1.PodReady) != v1.ConditionTrue {
				return errors.New("not Ready again: " + kit.Describe(pod))
			}
			if pod.Status.ContainerStatuses[0].RestartCount == 0 {
				return errors.New("not restarted: " + kit.Describe(pod))
			}
			return nil
		})
		prefix, _, _ := strings.Cut(before.Name, "-")
		var uids []types.UID
		for _, named := range podsNamed(t, before.Namespace, prefix+"-") {
			uids = append(uids, named.UID)
		}
		if !slices.Equal(uids, []types.UID{before.UID}) {
			t.Errorf("%s has UID %s, had %s; there are %v", pod.Name, pod.UID, before.UID, uids)
		}
	}
	for _, before := range p.ending {
		pod := waitPod(t, before, func(*v1.Pod) error { return nil })
		if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
			t.Errorf("after the shutdown pod %s is %s", pod.Name, kit.Describe(pod))
		}
	}
}
