package containerspec_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/containerspec"
)

func generate(h *containerspec.Helper, pod *v1.Pod) (*kubecontainer.RunContainerOptions, func(), error) {
	return h.GenerateRunContainerOptions(context.Background(), pod, &pod.Spec.Containers[0], "", nil, nil)
}

func TestNewNamesMissingFields(t *testing.T) {
	_, err := containerspec.New(containerspec.Config{Services: newWorld(t)})
	if err == nil {
		t.Fatal("an empty configuration was accepted")
	}
	for _, field := range []string{"Layout", "Volumes", "ServicesSynced", "OnPodSandboxReady"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in %q", field, err)
		}
	}
}

// TestVariablesAreSorted: two containers of the same specification get the same list, and of two services with
// colliding variables always the same one is used. In stock both depend on the order of a map.
func TestVariablesAreSorted(t *testing.T) {
	w := newWorld(t)
	// The link variable of "a" and the port variable of "a-port-80-tcp"'s kind: A_SERVICE_PORT.
	w.services = []*v1.Service{
		clusterService(namespace, "a-service", "10.0.0.9", 9),
		clusterService(namespace, "a", "10.0.0.1", 80),
	}
	pod := basicPod()
	pod.Spec.Containers[0].Env = []v1.EnvVar{
		{Name: "Z", Value: "1"}, {Name: "B", Value: "2"}, {Name: "A_PORT", Value: "mine"},
	}
	for range 20 {
		slices.Reverse(w.services)
		opts, _, err := generate(w.helper(t), pod)
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, len(opts.Envs))
		for i, env := range opts.Envs {
			names[i] = env.Name
			if env.Name == "A_SERVICE_PORT" && env.Value != "tcp://10.0.0.9:9" {
				t.Fatalf("A_SERVICE_PORT is %q", env.Value)
			}
		}
		if own := names[:3]; !slices.Equal(own, []string{"A_PORT", "B", "Z"}) {
			t.Fatalf("own variables %v", own)
		}
		if rest := names[3:]; !slices.IsSorted(rest) || slices.Contains(rest, "A_PORT") {
			t.Fatalf("service variables %v", rest)
		}
	}
}

// TestWithoutAPIServer: a static pod in standalone mode.
func TestWithoutAPIServer(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Services, cfg.ServicesSynced, cfg.ConfigMaps, cfg.Secrets, cfg.RuntimeClasses = nil, nil, nil, nil, nil
	h := newHelper(t, cfg)
	pod := basicPod()
	c := &pod.Spec.Containers[0]
	opts, _, err := generate(h, pod)
	if err != nil || len(opts.Envs) != 0 {
		t.Fatalf("got %+v, %v", opts, err)
	}
	optional := true
	c.EnvFrom = []v1.EnvFromSource{
		{SecretRef: &v1.SecretEnvSource{Optional: &optional, LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
	}
	if _, _, err := generate(h, pod); err == nil || err.Error() != "couldn't get secret apps/s, no kubeClient defined" {
		t.Fatalf("got %v", err)
	}
	c.EnvFrom = []v1.EnvFromSource{
		{ConfigMapRef: &v1.ConfigMapEnvSource{Optional: &optional, LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
	}
	if _, _, err := generate(h, pod); err == nil || err.Error() != "couldn't get configMap apps/c, no kubeClient defined" {
		t.Fatalf("got %v", err)
	}
}

// TestCleanUp: every sub-path is cleaned up, last first: by the caller after a start, at once after an error. Stock
// cleans up only the last.
func TestCleanUp(t *testing.T) {
	w := richWorld(t)
	pod := basicPod()
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/a", SubPath: "there"},
		{Name: "data", MountPath: "/b"},
		{Name: "host", MountPath: "/c", SubPath: "there"},
	}
	_, cleanUp, err := generate(w.helper(t), pod)
	if err != nil {
		t.Fatal(err)
	}
	cleanUp()
	w.wantCalls(t, "prepare", "prepare", "clean up 2", "clean up 0")

	c.VolumeMounts[2].SubPath = "cannot-bind"
	if _, cleanUp, err = generate(w.helper(t), pod); err == nil || cleanUp != nil {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Fatalf("the error shows paths of the host: %v", err)
	}
	w.wantCalls(t, "prepare", "make", "prepare", "clean up 2", "clean up 0")

	c.VolumeMounts = nil
	if _, cleanUp, err = generate(w.helper(t), pod); err != nil || cleanUp != nil {
		t.Fatalf("nothing to clean up: got %v", err)
	}
}

// wantCalls compares the prefixes of the recorded sub-path calls, and clears them.
func (w *world) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	matches := func(call, prefix string) bool { return strings.HasPrefix(call, prefix) }
	if !slices.EqualFunc(w.subpaths.calls, want, matches) {
		t.Fatalf("calls %q, want %q", w.subpaths.calls, want)
	}
	w.subpaths.calls = nil
}

func TestImageSubPathStaysWithImages(t *testing.T) {
	w := richWorld(t)
	pod := basicPod()
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/a", SubPath: "there"},
		{Name: "artifact", MountPath: "/b", SubPath: "in/image"},
	}
	images := kubecontainer.ImageVolumes{"artifact": {Image: "sha256:1"}}
	opts, _, err := w.helper(t).GenerateRunContainerOptions(context.Background(), pod, &pod.Spec.Containers[0], "", nil,
		images)
	if err != nil {
		t.Fatal(err)
	}
	plain, image := opts.Mounts[1], opts.Mounts[2]
	if plain.ImageSubPath != "" || !strings.HasSuffix(plain.HostPath, "data/there-bound") || plain.Image != nil {
		t.Errorf("plain mount %+v", plain)
	}
	if image.ImageSubPath != "in/image" || image.HostPath != "" || image.Image.Image != "sha256:1" || !image.ReadOnly {
		t.Errorf("image mount %+v", image)
	}
}

// TestTerminationLogDirectory: a container whose directory for termination logs cannot be created is started without.
func TestTerminationLogDirectory(t *testing.T) {
	w := newWorld(t)
	pod := basicPod()
	dir := w.layout().PodContainer(podUID, "main")
	opts, _, err := generate(w.helper(t), pod)
	if err != nil || opts.PodContainerDir != dir {
		t.Fatalf("got %q, %v", opts.PodContainerDir, err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts, _, err = generate(w.helper(t), pod)
	if err != nil || opts.PodContainerDir != "" {
		t.Fatalf("got %q, %v", opts.PodContainerDir, err)
	}
}

func TestMakePodDataDirs(t *testing.T) {
	w := newWorld(t)
	if err := os.RemoveAll(w.layout().Pods()); err != nil {
		t.Fatal(err)
	}
	h, pod := w.helper(t), basicPod()
	for range 2 {
		if err := h.MakePodDataDirs(pod); err != nil {
			t.Fatal(err)
		}
	}
	layout := w.layout()
	for _, dir := range []string{layout.Pod(podUID), layout.PodVolumes(podUID), layout.PodPlugins(podUID)} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	pod.UID = "blocked"
	if err := os.WriteFile(filepath.Join(layout.Pods(), "blocked"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.MakePodDataDirs(pod); err == nil {
		t.Error("no error although the directory cannot be made")
	}
}

func TestPodLevelMethods(t *testing.T) {
	w := newWorld(t)
	h, pod := w.helper(t), basicPod()
	if got := h.GetPodCgroupParent(pod); got != "/kubepods/pod-uid" {
		t.Errorf("cgroup parent %q", got)
	}
	if got := h.GetPodDir(podUID); got != w.layout().Pod(podUID) {
		t.Errorf("pod directory %q", got)
	}
	if got := h.GetExtraSupplementalGroupsForPod(pod); !slices.Equal(got, []int64{4711}) {
		t.Errorf("groups %v", got)
	}
	if got, err := h.GetPodDNS(context.Background(), pod); err != nil || got.Servers[0] != "10.0.0.10" {
		t.Errorf("DNS %v, %v", got, err)
	}
}

// TestOnlyStaticPodsStartBeforeServicesAreListed: a static pod must start without an API server, others would be
// started without KUBERNETES_SERVICE_HOST for their whole life.
func TestOnlyStaticPodsStartBeforeServicesAreListed(t *testing.T) {
	w := newWorld(t)
	w.synced = false
	pod := basicPod()
	if _, _, err := generate(w.helper(t), pod); err == nil ||
		!strings.HasPrefix(err.Error(), "services have not yet been read") {
		t.Fatalf("got %v", err)
	}
	pod.Annotations["kubernetes.io/config.source"] = "file"
	if _, _, err := generate(w.helper(t), pod); err != nil {
		t.Fatal(err)
	}
}
