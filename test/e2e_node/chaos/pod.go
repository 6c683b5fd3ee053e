package chaos

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// SettingsName is the ConfigMap that pods with volumes mount. missingName, that of a pod of VolumeMissing, does not
	// exist.
	SettingsName = "settings"
	missingName  = "missing"
	// RevisionLabel is the label of a static pod with the number of its manifest.
	RevisionLabel = "chaos/revision"
	// holdsContainer is the init container of InitNeverEnds that never ends.
	holdsContainer = "holds"
	// folder is where the directory of notes is mounted in every container.
	folder = "/chaos"
	// fillLimit is the size limit of the emptyDir, and fillSize, in MiB, what a pod writes to exceed it.
	fillLimit = "8Mi"
	fillSize  = 16
)

// FillFile returns the name, in the directory of notes, of the file that makes a Fillable pod fill its emptyDir.
func FillFile(uid string) string { return "fill-" + uid }

// NotesFile returns the name, in the directory of notes, of the file into which the pods of that name write.
func NotesFile(name string) string { return name + ".notes" }

// note is a shell function that appends a line about this container to the notes. Field 22 of the first process's stat
// is when it was started, which distinguishes the instances of a container. A container that is killed meanwhile writes
// nothing.
const note = `note() {
	started=$(cut -d' ' -f22 /proc/1/stat) && now=$(date +%s) || return
	echo "$1 $POD_UID/$CONTAINER/$started $now" >> ` + folder + `/$POD_NAME.notes
}
`

// Build returns the pod. Notes is the directory of notes on the node.
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
	if shape.Body == InitNeverEnds {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container(holdsContainer, kit.Forever))
	}
	addVolume(pod, "notes", folder, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: notes}})
	scratch := &v1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse(fillLimit))}
	addVolume(pod, "scratch", "/scratch", v1.VolumeSource{EmptyDir: scratch})
	if shape.Parts.Volumes {
		addVolume(pod, "settings", "/settings", kit.ConfigMapVolume(SettingsName))
		addVolume(pod, "all", "/all", projected())
	}
	if shape.Body == VolumeMissing {
		addVolume(pod, "missing", "/missing", kit.ConfigMapVolume(missingName))
	}
	return pod
}

// BuildStatic returns the pod of a manifest.
func BuildStatic(action Action, notes string) *v1.Pod {
	shape := action.Shape
	volumes := shape.Parts.Volumes
	shape.Parts.Volumes = false
	pod := Build(action.Pod, shape, notes)
	pod.Spec.NodeName = ""
	pod.Labels = map[string]string{RevisionLabel: fmt.Sprint(action.Revision)}
	if volumes {
		addVolume(pod, "info", "/info", v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: kit.FieldRef("metadata.labels")}},
		}})
	}
	return pod
}

// container writes a note and then runs script.
func container(name, script string) v1.Container {
	c := kit.Container(name, note+"note start\n"+script)
	c.Env = []v1.EnvVar{
		{Name: "CONTAINER", Value: name},
		{Name: "POD_NAME", ValueFrom: &v1.EnvVarSource{FieldRef: kit.FieldRef("metadata.name")}},
		{Name: "POD_UID", ValueFrom: &v1.EnvVarSource{FieldRef: kit.FieldRef("metadata.uid")}},
	}
	return c
}

func mainContainer(shape Shape) v1.Container {
	c := container(MainContainer, script(shape))
	if hook := preStop(shape); hook != nil {
		c.Lifecycle = &v1.Lifecycle{PreStop: hook}
	}
	if shape.Body == PostStartNeverEnds {
		if c.Lifecycle == nil {
			c.Lifecycle = &v1.Lifecycle{}
		}
		c.Lifecycle.PostStart = exec("while true; do sleep 3600; done")
	}
	if shape.Parts.Probes {
		probe := &v1.Probe{
			ProbeHandler:  v1.ProbeHandler{Exec: exec("test -e /tmp/up").Exec},
			PeriodSeconds: int32(shape.ProbeSeconds), TimeoutSeconds: int32(2 * shape.ProbeSeconds), FailureThreshold: 6,
		}
		c.ReadinessProbe, c.LivenessProbe = probe, probe.DeepCopy()
	}
	switch shape.Class {
	case v1.PodQOSBurstable:
		c.Resources.Requests = kit.Resources("10m", "16Mi")
	case v1.PodQOSGuaranteed:
		all := kit.Resources("100m", "32Mi")
		c.Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	case v1.PodQOSBestEffort:
	}
	return c
}

// script is what the main container runs after its first note.
func script(shape Shape) string {
	const up = "touch /tmp/up\n"
	switch shape.Body {
	case Stubborn:
		return up + "trap '' TERM" + kit.Forever
	case Succeeds:
		return up + sleepFor(shape.Seconds) + "exit 0"
	case Fails:
		return up + sleepFor(shape.Seconds) + fmt.Sprintf("exit %d", FailureCode)
	case Crashes:
		return up + sleepFor(shape.Seconds) + "exit 1"
	case Idle, InitNeverEnds, PostStartNeverEnds, VolumeMissing:
	}
	if !shape.Fillable {
		return up + kit.Forever
	}
	return up + fmt.Sprintf(`while true; do
	if [ -e %s/%s ] && ! [ -e /scratch/fill ]; then dd if=/dev/zero of=/scratch/fill bs=1M count=%d; fi
	sleep 1 & wait $!
done`, folder, FillFile("$POD_UID"), fillSize)
}

// sleepFor is a script that waits, and in which the shell handles signals meanwhile.
func sleepFor(seconds int64) string { return fmt.Sprintf("sleep %d & wait $!\n", seconds) }

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

func projected() v1.VolumeSource {
	return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: kit.NamedObject(SettingsName)}},
		{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: kit.FieldRef("metadata.name")}},
		}},
		kit.TokenProjection("chaos"),
	}}}
}

// addVolume adds a volume and mounts it into every container.
func addVolume(pod *v1.Pod, name, path string, source v1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, v1.VolumeMount{Name: name, MountPath: path})
		}
	}
}
