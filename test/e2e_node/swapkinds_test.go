//go:build e2e

package e2enode

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// allKinds returns pods of every kind that a kubelet handles differently, and plain ones up to thirty pods.
func (s *space) allKinds() []*v1.Pod {
	pods := []*v1.Pod{
		guaranteed("exclusive-cpu"), podWithDevice("device"), podWithProbes("probed"), podWithSidecar("sidecar"),
		podWithHooks("hooked"), resizable("resized"),
	}
	pods = append(pods, s.podsWithVolumes()...)
	pods = append(pods, podsOfTheHost()...)
	for i := 0; len(pods) < 30; i++ {
		pod := kit.IdlePod(fmt.Sprintf("plain-%02d", i))
		if i%2 == 0 {
			pod.Spec.Containers[0].Resources.Requests = kit.Memory("16Mi")
		}
		pods = append(pods, pod)
	}
	return pods
}

// podWithProbes has probes of every kind, by every handler.
func podWithProbes(name string) *v1.Pod {
	pod := kit.IdlePodThat(name,
		"mkdir -p /tmp/www; echo ok > /tmp/www/index.html; httpd -p 8080 -h /tmp/www; touch /tmp/up")
	main := &pod.Spec.Containers[0]
	main.StartupProbe = execProbe("test -e /tmp/up")
	main.StartupProbe.FailureThreshold = 60
	main.ReadinessProbe = probe(v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}})
	main.LivenessProbe = probe(v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(8080)}})
	for _, p := range []*v1.Probe{main.ReadinessProbe, main.LivenessProbe} {
		p.FailureThreshold = 10 // thirty pods start on two CPUs
	}
	return pod
}

func podWithSidecar(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	sidecar := kit.Container("side", "touch /tmp/up"+kit.Forever)
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	sidecar.StartupProbe = execProbe("test -e /tmp/up")
	sidecar.StartupProbe.FailureThreshold = 60
	pod.Spec.InitContainers = []v1.Container{sidecar, kit.Container("init", "true")}
	pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("second", kit.Forever))
	return pod
}

func podWithHooks(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PreStop:   &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 1}},
	}
	return pod
}

func resizable(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: kit.Resources("10m", "16Mi"), Limits: kit.Resources("100m", "64Mi"),
	}
	return pod
}

// podsOfTheHost returns pods that share namespaces with the node, or have a security context or a deadline.
func podsOfTheHost() []*v1.Pod {
	network, processes, user := kit.IdlePod("host-network"), kit.IdlePod("host-pid"), kit.IdlePod("other-user")
	network.Spec.HostNetwork = true
	processes.Spec.HostPID, processes.Spec.HostIPC = true, true
	user.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000)), FSGroup: new(int64(3000)),
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
	}
	mountEmptyDir(user, "/data")
	deadline := kit.IdlePod("deadline")
	deadline.Spec.ActiveDeadlineSeconds = new(int64(3600))
	return []*v1.Pod{network, processes, user, deadline}
}

// podsWithVolumes returns one pod for each kind of volume that needs only this node.
func (s *space) podsWithVolumes() []*v1.Pod {
	small, tiny := resource.MustParse("16Mi"), resource.MustParse("4Mi")
	kinds := map[string]v1.VolumeSource{
		"empty-dir":  {EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &small}},
		"memory":     {EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &tiny}},
		"config-map": kit.ConfigMapVolume("settings"),
		"secret":     {Secret: &v1.SecretVolumeSource{SecretName: "login"}},
		"host-path":  {HostPath: &v1.HostPathVolumeSource{Path: s.t.TempDir(), Type: new(v1.HostPathDirectory)}},
		"downward-api": {DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: kit.FieldRef("metadata.name")}},
		}},
		"projected": {Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: kit.NamedObject("settings")}},
			kit.TokenProjection("vault"),
		}}},
	}
	var pods []*v1.Pod
	for name, source := range kinds {
		pod := kit.IdlePod("volume-" + name)
		mount(pod, source, "/volume")
		pods = append(pods, pod)
	}
	subPath := kit.IdlePod("volume-sub-path")
	mount(subPath, kit.ConfigMapVolume("settings"), "/etc/two").SubPath = "two"
	environment := kit.IdlePod("environment")
	environment.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
		{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: kit.NamedObject("settings")}},
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: kit.NamedObject("login")}},
	}
	claimed := kit.IdlePod("volume-claim")
	s.claim("disk")
	claim := &v1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}
	mount(claimed, v1.VolumeSource{PersistentVolumeClaim: claim}, "/volume")
	return append(pods, subPath, environment, claimed)
}

// claim creates a persistent volume on a directory of this node, and the claim that is bound to it.
func (s *space) claim(name string) {
	s.t.Helper()
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}
	volume := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.name + "-" + name},
		Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: s.t.TempDir()}},
			ClaimRef:               &v1.ObjectReference{Namespace: s.name, Name: name},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{cluster.NodeName}},
				},
			}}}},
		},
	}
	volumes := s.client.CoreV1().PersistentVolumes()
	_, err := volumes.Create(s.ctx, volume, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		if err := volumes.Delete(context.Background(), volume.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	_, err = s.client.CoreV1().PersistentVolumeClaims(s.name).Create(s.ctx, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: volume.Spec.AccessModes, VolumeName: volume.Name, StorageClassName: new(""),
			Resources: v1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}
