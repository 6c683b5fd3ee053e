// Package kit has what programs and tests need that use a development cluster: pods to start, and functions that wait
// for their states.
package kit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// shell runs a script that exits at once on SIGTERM, with code 143: as process 1 a shell ignores signals that it does
// not trap, and a container that was stopped must not exit with 0.
func shell(script string) []string {
	return []string{"sh", "-c", "trap 'exit 143' TERM INT\n" + script}
}

// Forever is the end of a script that keeps its container running.
const Forever = "\nwhile true; do sleep 3600 & wait $!; done"

// Container is a container that runs script in a shell.
func Container(name, script string) v1.Container {
	return v1.Container{
		Name:                     name,
		Image:                    build.ImageBusybox,
		ImagePullPolicy:          v1.PullIfNotPresent,
		Command:                  shell(script),
		TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError,
	}
}

// Pod is a pod of one container, called main, that runs script once.
func Pod(name, script string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			Containers:                    []v1.Container{Container("main", script)},
			RestartPolicy:                 v1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(5)),
		},
	}
}

// IdlePod is a pod that does nothing until it is stopped.
func IdlePod(name string) *v1.Pod {
	pod := Pod(name, Forever)
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	return pod
}

// HogPod is a pod that runs the hog with args.
func HogPod(name string, args ...string) *v1.Pod {
	pod := Pod(name, "")
	main := &pod.Spec.Containers[0]
	main.Image, main.Command, main.Args = build.ImageHog, nil, args
	return pod
}

// Bound binds pod to the node, so that the scheduler, and taints that only it respects, do not matter.
func Bound(pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeName = cluster.NodeName
	return pod
}

// Memory is a list with only that amount of memory, such as "64Mi".
func Memory(amount string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)}
}

// Mebibytes is a list with only that much memory.
func Mebibytes(amount int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(amount<<20, resource.BinarySI)}
}

// Resources is a list with that much CPU and memory.
func Resources(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

// FieldRef selects a field of a pod for an environment variable or a file.
func FieldRef(path string) *v1.ObjectFieldSelector { return &v1.ObjectFieldSelector{FieldPath: path} }

// NamedObject refers to an object in the namespace of a pod.
func NamedObject(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

// ConfigMapVolume is a volume with the keys of a ConfigMap.
func ConfigMapVolume(name string) v1.VolumeSource {
	return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: NamedObject(name)}}
}

// TokenProjection is a file called token with a service account token for that audience, which expires after ten
// minutes.
func TokenProjection(audience string) v1.VolumeProjection {
	return v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
		Audience: audience, ExpirationSeconds: new(int64(600)), Path: "token",
	}}
}

// IdlePodThat is a pod that runs script and then does nothing until it is stopped.
func IdlePodThat(name, script string) *v1.Pod {
	pod := Pod(name, script+Forever)
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	return pod
}
