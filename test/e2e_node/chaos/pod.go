package chaos

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// SettingsName is the configMap that pods with volumes mount; nobody makes
	// the one that holds a pod of HoldsVolume.
	SettingsName = "settings"
	missingName  = "missing"
	// RevisionLabel is the label of a static pod with the number of its manifest.
	RevisionLabel = "chaos/revision"
	// folder is where every container sees the folder of notes.
	folder = "/chaos"
	// fillLimit is what the emptyDir may hold, and fillSize, in MiB, what a pod
	// writes into it that is told to.
	fillLimit = "8Mi"
	fillSize  = 16
)

// FillFile is the name, in the folder of notes, of the file that tells a
// Fillable pod to fill its emptyDir.
func FillFile(uid string) string { return "fill-" + uid }

// NotesFile is the name, in the folder of notes, of what the pods called name
// wrote.
func NotesFile(name string) string { return name + ".notes" }

// note is a shell function that appends a line about this container to the
// notes. Field 22 of the first process's stat is when it was started: no two
// lives of a container have it in common.
const note = `note() { echo "$1 $POD_UID/$CONTAINER/$(cut -d' ' -f22 /proc/1/stat) $(date +%s)" >> ` + folder + `/$POD_NAME.notes; }
`

// Build makes the pod. Notes is the folder of notes on the node.
func Build(name string, shape Shape, notes string) *v1.Pod {
	pod := kit.Bound(kit.Pod(name, ""))
	pod.Spec.RestartPolicy = shape.Restart
	pod.Spec.TerminationGracePeriodSeconds = new(shape.Grace)
	pod.Spec.Containers[0] = mainContainer(shape)
	if shape.Parts.Init {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container("first", "sleep 1"))
	}
	if shape.Parts.Sidecar {
		sidecar := container("side", kit.Forever)
		sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, sidecar)
	}
	if shape.Body == HoldsInit {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container("holds", kit.Forever))
	}
	addVolume(pod, "notes", folder, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: notes}})
	addVolume(pod, "scratch", "/scratch", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(fillLimit))}})
	if shape.Parts.Volumes {
		addVolume(pod, "settings", "/settings", configMap(SettingsName))
		addVolume(pod, "all", "/all", projected())
	}
	if shape.Body == HoldsVolume {
		addVolume(pod, "missing", "/missing", configMap(missingName))
	}
	return pod
}

// BuildStatic makes the pod of a manifest.
func BuildStatic(action Action, notes string) *v1.Pod {
	shape := action.Shape
	volumes := shape.Parts.Volumes
	shape.Parts.Volumes = false
	pod := Build(action.Pod, shape, notes)
	pod.Spec.NodeName = ""
	pod.Labels = map[string]string{RevisionLabel: fmt.Sprint(action.Revision)}
	if volumes {
		addVolume(pod, "info", "/info", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}},
		}})
	}
	return pod
}

// container runs script after it left a note.
func container(name, script string) v1.Container {
	c := kit.Container(name, note+"note start\n"+script)
	c.Env = []v1.EnvVar{
		{Name: "CONTAINER", Value: name},
		{Name: "POD_NAME", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "POD_UID", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
	}
	return c
}

func mainContainer(shape Shape) v1.Container {
	c := container("main", script(shape))
	if hook := preStop(shape); hook != nil {
		c.Lifecycle = &v1.Lifecycle{PreStop: hook}
	}
	if shape.Body == HoldsStart {
		if c.Lifecycle == nil {
			c.Lifecycle = &v1.Lifecycle{}
		}
		c.Lifecycle.PostStart = exec("while true; do sleep 3600; done")
	}
	if shape.Parts.Probes {
		probe := &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: exec("test -e /tmp/up").Exec}, PeriodSeconds: 5, TimeoutSeconds: 10, FailureThreshold: 6}
		c.ReadinessProbe, c.LivenessProbe = probe, probe.DeepCopy()
	}
	switch shape.Class {
	case v1.PodQOSBurstable:
		c.Resources.Requests = kit.Resources("10m", "16Mi")
	case v1.PodQOSGuaranteed:
		c.Resources = v1.ResourceRequirements{Requests: kit.Resources("100m", "32Mi"), Limits: kit.Resources("100m", "32Mi")}
	case v1.PodQOSBestEffort:
	}
	return c
}

// script is what the main container does after its first note.
func script(shape Shape) string {
	const up = "touch /tmp/up\n"
	switch shape.Body {
	case Stubborn:
		return up + "trap '' TERM" + kit.Forever
	case Succeeds:
		return up + nap(shape.Seconds) + "exit 0"
	case Fails:
		return up + nap(shape.Seconds) + fmt.Sprintf("exit %d", FailureCode)
	case Crashes:
		return up + nap(shape.Seconds) + "exit 1"
	case Idle, HoldsInit, HoldsStart, HoldsVolume:
	}
	if !shape.Fillable {
		return up + kit.Forever
	}
	return up + fmt.Sprintf(`while true; do
	if [ -e %s/%s ] && ! [ -e /scratch/fill ]; then dd if=/dev/zero of=/scratch/fill bs=1M count=%d; fi
	sleep 1 & wait $!
done`, folder, FillFile("$POD_UID"), fillSize)
}

// nap waits such that the shell still hears signals.
func nap(seconds int64) string { return fmt.Sprintf("sleep %d & wait $!\n", seconds) }

func preStop(shape Shape) *v1.LifecycleHandler {
	switch shape.Hook {
	case NoteHook:
		return exec(note + "note stop")
	case HangHook:
		return exec(note + "note stop\nwhile true; do sleep 3600; done")
	case SleepHook:
		return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: shape.Seconds}}
	case NoHook:
	}
	return nil
}

func exec(script string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", script}}}
}

func configMap(name string) v1.VolumeSource {
	return v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}
}

func projected() v1.VolumeSource {
	return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: SettingsName}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "chaos", ExpirationSeconds: new(int64(600)), Path: "token"}},
	}}}
}

// addVolume shows the volume to every container.
func addVolume(pod *v1.Pod, name, path string, source v1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, v1.VolumeMount{Name: name, MountPath: path})
		}
	}
}
