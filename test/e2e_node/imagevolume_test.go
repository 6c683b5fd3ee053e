//go:build e2e

package e2enode

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// imageVolume is a volume with the files of an image.
func imageVolume(image string) v1.VolumeSource {
	return v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: image, PullPolicy: v1.PullIfNotPresent}}
}

// TestImageVolume mounts another image, and a directory of it, read-only into a container. They are also there after a
// restart of the container.
func TestImageVolume(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePodThat("pod",
		"cat /folder/passwd > /dev/null; ls /files; touch /files/new 2>/dev/null || echo read-only")
	mount(pod, imageVolume(build.ImageHog), "/files")
	mount(pod, imageVolume(build.ImageBusybox), "/folder").SubPath = "etc"
	pod = s.ready(pod)
	s.expectLog(pod, "hog\nroot\ntmp\nread-only")
	s.expect("files of the folder", s.sh(pod, "ls /folder"), "group\npasswd")

	pod = s.crash(pod)
	s.expectLog(pod, "hog\nroot\ntmp\nread-only")
	s.remove(pod)
}

// TestImageVolumeThatIsNotAvailable has images that do not exist, must not be pulled, or lack the directory. The
// container is not created, and its status has the reason.
func TestImageVolumeThatIsNotAvailable(t *testing.T) {
	s := parallelSpace(t)
	nowhere, never, noFolder := kit.IdlePod("nowhere"), kit.IdlePod("never"), kit.IdlePod("no-folder")
	mount(nowhere, imageVolume("localhost/there-is-no-such-image:1"), "/files")
	mount(never, imageVolume("localhost/there-is-no-such-image:1"), "/files")
	never.Spec.Volumes[0].Image.PullPolicy = v1.PullNever
	mount(noFolder, imageVolume(build.ImageHog), "/files").SubPath = "there/is/no/such/folder"
	for _, pod := range []*v1.Pod{nowhere, never, noFolder} {
		s.create(pod)
	}
	s.wait(s.get("nowhere"), podTimeout, waitingFor("ErrImagePull", "ImagePullBackOff"))
	s.wait(s.get("never"), podTimeout, waitingFor("ErrImageNeverPull"))
	got := s.wait(s.get("no-folder"), podTimeout, waitingFor("CreateContainerError", "ImageVolumeMountFailed"))
	message := got.Status.ContainerStatuses[0].State.Waiting.Message
	if !strings.Contains(message, "there/is/no/such/folder") {
		t.Errorf("the message is %q, want the name of the directory in it", message)
	}
}
