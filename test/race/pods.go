package race

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// neighbourUse is what each neighbour uses, in MiB, plenty the limit of hogs, which no run reaches.
	neighbourUse, plenty = 16, 16 << 10
	// hogName is the name of the hog's container, and the beginning of the names of its pods.
	hogName = "hog"
	// cacheName is the pod that fills the page cache.
	cacheName = "cache"
)

// neighbours returns the small pods beside the hog, of each QoS class.
func neighbours() []*v1.Pod {
	var pods []*v1.Pod
	add := func(name string, resources v1.ResourceRequirements) {
		use := fmt.Sprint(neighbourUse)
		pod := kit.Bound(kit.HogPod(name, "--start="+use, "--limit="+use))
		pod.Spec.RestartPolicy = v1.RestartPolicyAlways
		pod.Spec.Containers[0].Resources = resources
		pods = append(pods, pod)
	}
	for i := range 4 {
		add(fmt.Sprintf("besteffort-%d", i), v1.ResourceRequirements{})
	}
	for i := range 2 {
		add(fmt.Sprintf("burstable-%d", i), v1.ResourceRequirements{Requests: kit.Memory("32Mi")})
	}
	all := kit.Resources("10m", "64Mi")
	add("guaranteed", v1.ResourceRequirements{Requests: all, Limits: all})
	return pods
}

// hogs returns the pods that use up memory: start is what they use at rest together, in MiB.
func hogs(c Cell, start int64) []*v1.Pod {
	count := int64(1)
	if c.Kind == Three {
		count = 3
	}
	var pods []*v1.Pod
	for i := range count {
		pods = append(pods, hogPod(c, fmt.Sprintf("%s-%d", hogName, i), start/count))
	}
	return pods
}

func hogPod(c Cell, name string, start int64) *v1.Pod {
	args := []string{
		fmt.Sprintf("--start=%d", start), fmt.Sprintf("--rate=%d", c.Rate), fmt.Sprintf("--limit=%d", plenty),
		"--step=1ms", "--signal",
	}
	if c.Kind != Mild {
		args = append(args, "--deaf")
	}
	pod := kit.Bound(kit.HogPod(name, args...))
	hog := &pod.Spec.Containers[0]
	hog.Name = hogName
	switch c.Kind {
	case Burstable:
		hog.Resources.Requests = kit.Memory("64Mi")
	case Critical:
		pod.Spec.PriorityClassName = scheduling.SystemNodeCritical
	case Init:
		pod.Spec.InitContainers = []v1.Container{*hog}
		pod.Spec.Containers = []v1.Container{kit.Container("main", kit.Forever)}
	case Mild:
		pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("beside", kit.Forever))
	case Sidecar:
		sidecar := kit.Container("sidecar", kit.Forever)
		sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []v1.Container{sidecar}
		pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("beside", kit.Forever))
	case Forking:
		hog.Args = append(hog.Args, "--fork")
	case MemoryFile:
		hog.Args = append(hog.Args, "--file=/memory/file")
		hog.VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/memory"}}
		pod.Spec.Volumes = []v1.Volume{{Name: "memory", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory},
		}}}
	}
	return pod
}

// cachePod reads the file at path, which fills page cache, and then does nothing. Large reads leave the pages on the
// inactive list: they are available memory.
func cachePod(path string) *v1.Pod {
	pod := kit.Bound(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: cacheName},
		Spec: v1.PodSpec{
			Containers:                    []v1.Container{kit.Container("main", "dd if=/cache of=/dev/null bs=4M"+kit.Forever)},
			TerminationGracePeriodSeconds: new(int64(1)),
			Volumes: []v1.Volume{{Name: "cache", VolumeSource: v1.VolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: path},
			}}},
		},
	})
	main := &pod.Spec.Containers[0]
	main.Image = build.ImageBusybox
	main.VolumeMounts = []v1.VolumeMount{{Name: "cache", MountPath: "/cache", ReadOnly: true}}
	return pod
}

// statusOf returns the final status of a pod.
func statusOf(pod *v1.Pod) Status {
	s := Status{
		Pod: pod.Name, Phase: string(pod.Status.Phase), Reason: pod.Status.Reason, Message: pod.Status.Message,
		oomKilled: map[string]bool{},
	}
	for _, c := range containers(pod) {
		switch {
		case c.State.Terminated != nil:
			_, id, _ := strings.Cut(c.ContainerID, "://")
			s.oomKilled[id] = c.State.Terminated.Reason == "OOMKilled"
			s.Containers = append(s.Containers,
				fmt.Sprintf("%s %s %d", c.Name, c.State.Terminated.Reason, c.State.Terminated.ExitCode))
		case c.State.Running != nil:
			s.Containers = append(s.Containers, c.Name+" running")
		case c.State.Waiting != nil:
			s.Containers = append(s.Containers, c.Name+" "+c.State.Waiting.Reason)
		}
	}
	return s
}

func containers(pod *v1.Pod) []v1.ContainerStatus {
	return append(append([]v1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// stopped reports whether a pod has ended, with all its containers.
func stopped(pod *v1.Pod) error {
	if pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
		return fmt.Errorf("pod %s has not ended: %s", pod.Name, kit.Describe(pod))
	}
	for _, c := range containers(pod) {
		if c.State.Running != nil {
			return fmt.Errorf("container %s of pod %s still runs", c.Name, pod.Name)
		}
	}
	return nil
}
