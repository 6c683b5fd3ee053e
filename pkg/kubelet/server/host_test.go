package server

import (
	"bytes"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

func TestStreamsReachTheRunningContainer(t *testing.T) {
	static := testPod("static", "static-uid", true)
	mirror := mirrorOf(static, "mirror-uid")
	plain := testPod("plain", "plain-uid", false)
	tests := []struct {
		name     string
		fullName string
		uid      types.UID
		want     string // container, or UID for port-forward; empty: not found
	}{
		{"by name", "plain_ns", "", "plain-c"},
		{"by UID", "", "plain-uid", "plain-c"},
		{"static pod by the UID of its mirror", "static_ns", "mirror-uid", "static-c"},
		{"other UID", "", "other", ""},
		{"unknown pod", "gone_ns", "", ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(static, mirror, plain)
			w.running = []*kubecontainer.Pod{runningPod(plain, "plain-c"), runningPod(static, "static-c")}
			host := w.host()
			_, execErr := host.GetExec(t.Context(), tc.fullName, tc.uid, "c", []string{"ls"}, remotecommand.Options{})
			output, runErr := host.RunInContainer(t.Context(), tc.fullName, tc.uid, "c", []string{"ls"})
			if tc.want == "" {
				if execErr == nil || runErr == nil || execErr.Error() != `container not found ("c")` || len(w.calls) > 0 {
					t.Errorf("got %v, %v and calls %v; want not found and none", execErr, runErr, w.calls)
				}
				return
			}
			if execErr != nil || runErr != nil || string(output) != "output" {
				t.Fatalf("got %v, %v, %q", execErr, runErr, output)
			}
			if got := strings.Join(w.calls, ","); got != "exec "+tc.want+",run "+tc.want {
				t.Errorf("reached %s, want %s", got, tc.want)
			}
		})
	}
}

// Whether an attached stream is a terminal depends on the pod and not on the request.
func TestAttachTakesTerminalFromPod(t *testing.T) {
	pod := testPod("p", "u", false)
	w := newWorld(pod)
	w.running = []*kubecontainer.Pod{runningPod(pod, "id")}
	if _, err := w.host().GetAttach(t.Context(), "p_ns", "u", "c", remotecommand.Options{TTY: false}); err != nil {
		t.Fatal(err)
	}
	if !w.tty {
		t.Error("attached without a terminal to a container that has one")
	}
	for _, tc := range []struct{ fullName, uid, container, want string }{
		{"p_ns", "u", "other", "container other not found in pod p_ns"},
		{"", "u", "c", "pod  not found"},
	} {
		if _, err := w.host().GetAttach(t.Context(), tc.fullName, types.UID(tc.uid), tc.container,
			remotecommand.Options{}); err == nil || err.Error() != tc.want {
			t.Errorf("attach to %v: %v, want %q", tc, err, tc.want)
		}
	}
}

func TestPortForward(t *testing.T) {
	static := testPod("s", "static-uid", true)
	w := newWorld(static, mirrorOf(static, "mirror-uid"))
	w.running = []*kubecontainer.Pod{runningPod(static, "id")}
	if _, err := w.host().GetPortForward(t.Context(), "s", "ns", "mirror-uid", portforward.V4Options{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.calls, ","); got != "portforward static-uid" {
		t.Errorf("reached %q", got)
	}
	if _, err := w.host().GetPortForward(t.Context(), "gone", "ns", "", portforward.V4Options{}); err == nil ||
		err.Error() != `pod not found ("gone_ns")` {
		t.Errorf("pod that does not run: %v", err)
	}
}

func TestCheckpoint(t *testing.T) {
	pod := testPod("p", "u", false)
	w := newWorld(pod)
	w.running = []*kubecontainer.Pod{runningPod(pod, "id")}
	request := &runtimeapi.CheckpointContainerRequest{Timeout: 7}
	if err := w.host().CheckpointContainer(t.Context(), "u", "p_ns", "c", request); err != nil {
		t.Fatal(err)
	}
	if request.Location != "/checkpoints/checkpoint-p_ns-c-2026-01-02T03:04:05Z.tar" || request.ContainerId != "id" ||
		w.checkpoint != request {
		t.Errorf("request %+v", request)
	}
	if err := w.host().CheckpointContainer(t.Context(), "u", "p_ns", "other", request); err == nil ||
		err.Error() != "container other not found" {
		t.Errorf("missing container: %v", err)
	}
}

func TestContainerLogs(t *testing.T) {
	static := testPod("s", "static-uid", true)
	static.Status = runningStatus("from-spec")
	tests := []struct {
		name     string
		fullName string
		statuses map[types.UID]v1.PodStatus
		want     string
		wantErr  string
	}{
		{
			name: "status manager knows", fullName: "s_ns",
			statuses: map[types.UID]v1.PodStatus{"static-uid": runningStatus("known")}, want: "known",
		},
		{name: "just started", fullName: "s_ns", want: "from-spec"},
		{name: "unknown", fullName: "gone_ns", wantErr: `pod "gone" cannot be found - no logs available`},
		{name: "no full name", fullName: "x", wantErr: "unable to parse pod full name"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(static, mirrorOf(static, "mirror-uid"))
			w.statuses = tc.statuses
			var out bytes.Buffer
			err := w.host().GetKubeletContainerLogs(t.Context(), tc.fullName, "c", &v1.PodLogOptions{}, &out, nil)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("got %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || w.logged.ID != tc.want || out.String() != "a line\n" {
				t.Errorf("read %q of %q: %v", out.String(), w.logged, err)
			}
		})
	}
}

func runningStatus(id string) v1.PodStatus {
	return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "c", ContainerID: "t://" + id, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
	}}}
}

// Static pods have the status that the agent set; the pod manager's objects are not modified.
func TestGetPodsShowsStatusOfStaticPods(t *testing.T) {
	static, plain := testPod("s", "s", true), testPod("p", "p", false)
	w := newWorld(static, plain)
	w.statuses = map[types.UID]v1.PodStatus{"s": {Phase: v1.PodRunning}, "p": {Phase: v1.PodFailed}}
	phases := map[string]v1.PodPhase{}
	for _, pod := range w.host().GetPods() {
		phases[pod.Name] = pod.Status.Phase
	}
	if phases["s"] != v1.PodRunning || phases["p"] != "" || static.Status.Phase != "" {
		t.Errorf("shown %v; the original says %q", phases, static.Status.Phase)
	}
}

func TestStatsHost(t *testing.T) {
	pod := testPod("p", "u", false)
	w := newWorld(pod)
	w.cgroupPod = "u"
	w.running = []*kubecontainer.Pod{runningPod(pod, "id")}
	host := w.host()
	if found, ok := host.GetPodByCgroupfs("/kubepods/podu"); !ok || found.Name != "p" {
		t.Errorf("pod of a cgroup: %v %v", found, ok)
	}
	if _, ok := host.GetPodByCgroupfs("/system.slice"); ok {
		t.Error("a pod for a cgroup that is no pod's")
	}
	running, err := host.GetRunningPods(t.Context())
	if err != nil || len(running) != 1 || running[0].Name != "p" || running[0].Spec.Containers[0].Name != "c" {
		t.Errorf("running pods: %v %v", running, err)
	}
	if _, found := host.ListVolumesForPod("u"); found {
		t.Error("volumes of a pod that has none")
	}
	w.mounted = kubecontainer.VolumeMap{"recovered": {}}
	if volumes, found := host.ListVolumesForPod("u"); found || len(volumes) > 0 {
		t.Errorf("volume without mounter listed: %v", volumes)
	}
}
