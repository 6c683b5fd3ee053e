package chaos

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func podOf(uid string, phase v1.PodPhase, change ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
	pod.Name, pod.UID = "a", metaUID(uid)
	for _, c := range change {
		c(pod)
	}
	return pod
}

func ready(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
}

func exited(code int32, when time.Time) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		ended := &v1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(when)}
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Terminated: ended}}}
	}
}

func reason(text string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Reason = text } }

func terminates(pod *v1.Pod) { pod.DeletionTimestamp = new(metav1.NewTime(start)) }

func TestJudge(t *testing.T) {
	body := func(b Body) Shape { return Shape{Body: b, Restart: v1.RestartPolicyAlways}.consistent() }
	never := Shape{Body: Stubborn, Restart: v1.RestartPolicyNever}
	outages := Widened([]Outage{
		{Runtime: true, From: at(100), To: at(103)}, {Kubelet: true, From: at(300), To: at(303)},
	}, OutageMargin)
	for _, test := range []struct {
		name  string
		asked Asked
		pod   *v1.Pod
		want  string
	}{
		{"deleted and gone", Asked{Deleted: true}, nil, ""},
		{"deleted and another has its name", Asked{Deleted: true}, podOf("other", v1.PodRunning), ""},
		{"deleted and still there", Asked{Deleted: true}, podOf("u", v1.PodRunning), "is still there"},
		{"gone without a request", Asked{Shape: body(Idle)}, nil, "does not exist, although no deletion"},
		{
			"replaced without a request", Asked{Shape: body(Idle)}, podOf("other", v1.PodRunning, ready),
			"does not exist, although no deletion",
		},
		{
			"terminating without a request", Asked{Shape: body(Idle)}, podOf("u", v1.PodRunning, ready, terminates),
			"is being deleted, although no deletion",
		},
		{"idle and ready", Asked{Shape: body(Idle)}, podOf("u", v1.PodRunning, ready), ""},
		{"idle and not ready", Asked{Shape: body(Idle)}, podOf("u", v1.PodRunning), "not Ready"},
		{"idle and ended", Asked{Shape: body(Idle)}, podOf("u", v1.PodFailed), "not Ready"},
		{"filled and evicted", Asked{Shape: body(Idle), Filled: true}, podOf("u", v1.PodFailed, reason("Evicted")), ""},
		{"filled and ready", Asked{Shape: body(Idle), Filled: true}, podOf("u", v1.PodRunning, ready), "not evicted"},
		{"evicted without a request", Asked{Shape: body(Idle)}, podOf("u", v1.PodFailed, reason("Evicted")), "not Ready"},
		{"succeeded", Asked{Shape: body(Succeeds)}, podOf("u", v1.PodSucceeded, exited(0, at(1))), ""},
		{
			"succeeded with another code", Asked{Shape: body(Succeeds)}, podOf("u", v1.PodSucceeded, exited(1, at(1))),
			"not Succeeded with code 0",
		},
		{"succeeded without a code", Asked{Shape: body(Succeeds)}, podOf("u", v1.PodSucceeded), "not Succeeded"},
		{"not yet succeeded", Asked{Shape: body(Succeeds)}, podOf("u", v1.PodRunning, ready), "not Succeeded"},
		{"failed", Asked{Shape: body(Fails)}, podOf("u", v1.PodFailed, exited(3, at(1))), ""},
		{
			"failed with another code", Asked{Shape: body(Fails)}, podOf("u", v1.PodFailed, exited(137, at(1))),
			"not Failed with code 3",
		},
		{"crashes", Asked{Shape: body(Crashes)}, podOf("u", v1.PodRunning), ""},
		{"crashes and has ended", Asked{Shape: body(Crashes)}, podOf("u", v1.PodFailed), "must not end"},
		{"volume missing", Asked{Shape: body(VolumeMissing)}, podOf("u", v1.PodPending), ""},
		{"lost with the runtime", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(255, at(104))), ""},
		{"not started because of the runtime", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(128, at(99))), ""},
		{"not started for the kubelet", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(128, at(300))), ""},
		{"lost with the kubelet", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(255, at(300))), "not Ready"},
		{"lost at another time", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(255, at(200))), "not Ready"},
		{"killed with the runtime", Asked{Shape: never}, podOf("u", v1.PodFailed, exited(137, at(104))), "not Ready"},
		{"lost and restarted always", Asked{Shape: body(Idle)}, podOf("u", v1.PodFailed, exited(255, at(104))), "not Ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.asked.Name, test.asked.UID = "a", "u"
			expectError(t, Judge(test.asked, test.pod, outages), test.want)
		})
	}
}

func TestJudgeStatic(t *testing.T) {
	revision := func(text string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Labels = map[string]string{RevisionLabel: text} }
	}
	present := Manifest{Name: "static-0", Revision: 2, Present: true}
	for _, test := range []struct {
		name     string
		manifest Manifest
		mirror   *v1.Pod
		want     string
	}{
		{"absent", Manifest{}, nil, ""},
		{"left over", Manifest{}, podOf("u", v1.PodRunning), "its mirror pod exists"},
		{"missing", present, nil, "no mirror pod"},
		{"old", present, podOf("u", v1.PodRunning, ready, revision("1")), "shows revision 1"},
		{"terminating", present, podOf("u", v1.PodRunning, ready, revision("2"), terminates), "being deleted"},
		{"not ready", present, podOf("u", v1.PodRunning, revision("2")), "not Ready"},
		{"present", present, podOf("u", v1.PodRunning, ready, revision("2")), ""},
	} {
		t.Run(test.name, func(t *testing.T) { expectError(t, JudgeStatic(test.manifest, test.mirror), test.want) })
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error is %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error is %v, want %q", err, want)
	}
}
