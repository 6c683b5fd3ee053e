package policy

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// violatorPod has an emptyDir volume with a limit.
func violatorPod(name string, limit, used int64) snapshot.Pod {
	object := spec{name: name}.object()
	object.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(limit, resource.BinarySI)},
	}}}
	pod := spec{name: name, memory: mi}.pod(start)
	pod.Facts = snapshot.NewFacts(object, true)
	pod.Usage.Volumes = []snapshot.VolumeUsage{volumeOf("scratch", used)}
	return pod
}

func volumeOf(name string, used int64) snapshot.VolumeUsage {
	return snapshot.VolumeUsage{Name: name, FsUsage: fsOf(used)}
}

func fsOf(bytes int64) snapshot.FsUsage {
	return snapshot.FsUsage{Bytes: snapshot.Bytes(bytes), Inodes: snapshot.Unknown}
}

func limited(name string, quantity string) v1.Container {
	return v1.Container{Name: name,
		Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(quantity)}}}
}

func TestLocalStorageLimits(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	tests := []struct {
		name            string
		change          func(pod *v1.Pod, used *snapshot.Usage)
		metric, message string
	}{
		{"within", func(*v1.Pod, *snapshot.Usage) {}, "", ""},
		{"emptyDir", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Spec.Volumes = []v1.Volume{{Name: "v",
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mi,
					resource.BinarySI)}}}}
			used.Volumes = []snapshot.VolumeUsage{volumeOf("v", mi+1)}
		}, EmptyDirLimit, `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `},
		{"emptyDir with limit zero", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Spec.Volumes = []v1.Volume{{Name: "v",
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(0,
					resource.BinarySI)}}}}
			used.Volumes = []snapshot.VolumeUsage{volumeOf("v", mi+1)}
		}, "", ""},
		{"pod", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Spec.Containers = []v1.Container{limited("c", "2Mi"), limited("d", "1Mi")}
			used.LocalStorage = snapshot.Bytes(4 * mi)
		}, PodStorageLimit, "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "},
		{"container", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Spec.Containers = []v1.Container{limited("c", "2Mi")}
			c := &used.Containers[0]
			c.WritableLayer.Bytes, c.Logs.Bytes = snapshot.Bytes(mi), snapshot.Bytes(mi+1)
		}, ContainerStorageLimit, `Container c exceeded its local ephemeral storage limit "2Mi". `},
		{"D30 sidecar", func(pod *v1.Pod, used *snapshot.Usage) {
			sidecar := limited("s", "2Mi")
			sidecar.RestartPolicy = &always
			pod.Spec.InitContainers = []v1.Container{sidecar}
			used.Containers = append(used.Containers, snapshot.ContainerUsage{
				Name: "s", Memory: snapshot.Unknown, Logs: fsOf(3 * mi), WritableLayer: fsOf(snapshot.Unknown),
			})
		}, ContainerStorageLimit, `Container s exceeded its local ephemeral storage limit "2Mi". `},
		{"critical", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Annotations["kubernetes.io/config.source"] = "file"
			pod.Spec.Containers = []v1.Container{limited("c", "2Mi")}
			used.LocalStorage = snapshot.Bytes(4 * mi)
		}, "", ""},
		{"no stats", func(pod *v1.Pod, used *snapshot.Usage) {
			pod.Spec.Containers = []v1.Container{limited("c", "2Mi")}
			*used = snapshot.Usage{Memory: snapshot.Unknown, LocalStorage: snapshot.Unknown}
		}, "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object, pod := spec{name: "pod"}.object(), spec{name: "pod"}.pod(start)
			test.change(object, pod.Usage)
			pod.Facts = snapshot.NewFacts(object, true)
			rules := rulesOf()
			rules.LocalStorageLimits = true
			// Writable layers count also where images have a device of their own (D30).
			s := &snapshot.Snapshot{Taken: start, Layout: layoutOf(true, false), Pods: []snapshot.Pod{pod}}
			d, _ := Decide(s, rules, State{})
			if test.metric == "" {
				if len(d.Victims) != 0 {
					t.Fatalf("evicted: %+v", d.Victims)
				}
				return
			}
			if len(d.Victims) != 1 {
				t.Fatal("not evicted")
			}
			if v := d.Victims[0]; v.Cause.Name() != test.metric || v.Message != test.message || v.GraceSeconds != 1 {
				t.Errorf("%q %q grace %d", v.Cause.Name(), v.Message, v.GraceSeconds)
			}
		})
	}
}
