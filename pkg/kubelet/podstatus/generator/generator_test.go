package generator_test

import (
	"context"
	"errors"
	"net"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus/generator"
)

// TestMinimalConfig uses a generator that has only the required fields.
func TestMinimalConfig(t *testing.T) {
	statuses := &fakeStatuses{}
	g := generator.New(generator.Config{Statuses: statuses, Resizes: statuses, Reasons: podstatus.NewReasonCache()})
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}}}}
	if s := g.Generate(silentContext(), pod, nil, false); s.Phase != v1.PodPending || len(s.ContainerStatuses) != 1 {
		t.Errorf("status is %+v", s)
	}
	if statuses.cleared != 0 {
		t.Error("resize conditions of a pod that is not terminal were cleared")
	}
	g.Generate(silentContext(), pod, nil, true)
	if statuses.cleared != 2 {
		t.Errorf("%d resize conditions were cleared", statuses.cleared)
	}
}

// TestOOMVictims: the kernel log is read once for a status, and only if the runtime reports an OOM kill.
func TestOOMVictims(t *testing.T) {
	for reason, want := range map[string]struct {
		reads   int
		reasons []string // of a container that the kernel log does not name, and of one that it names
	}{
		"OOMKilled": {reads: 1, reasons: []string{"Error", "OOMKilled"}}, "Other": {reasons: []string{"Other", "Other"}},
	} {
		statuses, reads := &fakeStatuses{}, 0
		g := generator.New(generator.Config{
			Statuses: statuses, Resizes: statuses, Reasons: podstatus.NewReasonCache(),
			OOMVictims: func(*v1.Pod) func(string) bool {
				reads++
				return func(id string) bool { return id == "id-a" }
			},
		})
		pod, runtime := &v1.Pod{}, &kubecontainer.PodStatus{}
		for _, name := range []string{"a", "b"} {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
			runtime.ContainerStatuses = append(runtime.ContainerStatuses, &kubecontainer.Status{
				Name: name, ID: kubecontainer.ContainerID{Type: "test", ID: "id-" + name}, Reason: reason, ExitCode: 137,
				State: kubecontainer.ContainerStateExited,
			})
		}
		s := g.Generate(silentContext(), pod, runtime, true)
		for i, c := range s.ContainerStatuses {
			if got := c.State.Terminated.Reason; got != want.reasons[i] {
				t.Errorf("container %s: reason %s, want %s", c.Name, got, want.reasons[i])
			}
		}
		if reads != want.reads {
			t.Errorf("%s: %d reads of the kernel log, want %d", reason, reads, want.reads)
		}
	}
}

func TestNoHostIPsBeforeRegistration(t *testing.T) {
	statuses := &fakeStatuses{}
	g := generator.New(generator.Config{
		Statuses: statuses, Resizes: statuses, Reasons: podstatus.NewReasonCache(),
		HostIPs: func(context.Context) ([]net.IP, error) { return nil, errors.New("no node yet") },
	})
	pod := &v1.Pod{Spec: v1.PodSpec{HostNetwork: true}}
	if s := g.Generate(silentContext(), pod, nil, false); s.HostIP != "" || s.PodIP != "" {
		t.Errorf("addresses are %q and %q", s.HostIP, s.PodIP)
	}
}

type runtimeClasses map[string]string

func (r runtimeClasses) LookupRuntimeHandler(class *string) (string, error) {
	handler, ok := r[*class]
	if !ok {
		return "", errors.New("no such runtime class")
	}
	return handler, nil
}

func TestRecursiveReadOnly(t *testing.T) {
	enabled := v1.RecursiveReadOnlyIfPossible
	for class, want := range map[string]v1.RecursiveReadOnlyMode{
		"good": v1.RecursiveReadOnlyEnabled, "bad": v1.RecursiveReadOnlyDisabled,
		"gone": v1.RecursiveReadOnlyDisabled, "none": v1.RecursiveReadOnlyDisabled,
	} {
		statuses := &fakeStatuses{}
		g := generator.New(generator.Config{
			Statuses: statuses, Resizes: statuses, Reasons: podstatus.NewReasonCache(),
			RuntimeClasses: runtimeClasses{"good": "runc", "bad": "old", "gone": "unknown"},
			RuntimeHandlers: func() []kubecontainer.RuntimeHandler {
				return []kubecontainer.RuntimeHandler{{Name: "old"}, {Name: "runc", SupportsRecursiveReadOnlyMounts: true}}
			},
		})
		pod := &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: &class, Containers: []v1.Container{{
			Name: "a", VolumeMounts: []v1.VolumeMount{{Name: "v", ReadOnly: true, RecursiveReadOnly: &enabled}},
		}}}}
		s := g.Generate(silentContext(), pod, nil, false)
		if got := *s.ContainerStatuses[0].VolumeMounts[0].RecursiveReadOnly; got != want {
			t.Errorf("class %q: mode %q, want %q", class, got, want)
		}
	}
}
