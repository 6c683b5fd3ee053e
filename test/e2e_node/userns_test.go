//go:build e2e

package e2enode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// idsPerPod is the number of user IDs in the user namespace of a pod.
const idsPerPod = 65536

// TestUserNamespacesSurviveRestarts runs pods in user namespaces: root in the pod is not root on the node, and the user
// IDs of pods do not overlap. The pods keep them when the kubelet crashes or is replaced by the stock kubelet, as
// containers show that are started afterwards.
func TestUserNamespacesSurviveRestarts(t *testing.T) {
	s := newSpace(t)
	s.openDirectories()
	s.secret("login", map[string]string{"password": "sesame"})
	first, second := s.ready(podWithUsers("first")), s.ready(podWithUsers("second"))
	users := map[string]uint32{"first": s.firstUser(first), "second": s.firstUser(second)}
	s.disjoint(users)
	s.runsAs(first, users["first"])
	s.expect("owners in the pod", s.sh(first, "touch /data/new; stat -c %u /data/new; id -u"), "0\n0")
	if mappedTmpfs.met() {
		s.expect("owner of the secret", s.sh(first, "stat -c %u /login/password"), "0")
	}
	s.swapKubelets(nil, func() {
		s.waitUntilListed("first")
	})
	first = s.crash(first)
	third := s.ready(podWithUsers("third"))
	s.expect("first user ID of the pod", fmt.Sprint(s.firstUser(first)), fmt.Sprint(users["first"]))
	s.runsAs(first, users["first"])
	users["third"] = s.firstUser(third)
	s.disjoint(users)

	s.remove(second)
	if _, err := os.Stat(mappingFile(second)); !os.IsNotExist(err) {
		t.Errorf("the file of a deleted pod: %v, want none", err)
	}
}

// openDirectories makes the directories above the containers' root file systems searchable by all users until the test
// ends. Otherwise the users of a pod could not enter them where the repository is below a directory of root. The files
// in those directories keep their modes.
func (s *space) openDirectories() {
	s.t.Helper()
	for dir := node.Layout().State; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		s.must(err)
		if info.Mode().Perm()&0o001 != 0 {
			continue
		}
		s.t.Logf("%s is made searchable by all users until this test ends", dir)
		s.must(os.Chmod(dir, info.Mode()|0o001))
		s.t.Cleanup(func() {
			if err := os.Chmod(dir, info.Mode()); err != nil {
				s.t.Error(err)
			}
		})
	}
}

// podWithUsers is an idle pod in a user namespace, with volumes that root of the pod owns: one on the disk, and, where
// the kernel can do that, one in memory.
func podWithUsers(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.HostUsers = new(false)
	mountEmptyDir(pod, "/data")
	if !mappedTmpfs.met() {
		pod.Spec.AutomountServiceAccountToken = new(false) // It would be in memory.
		return pod
	}
	mount(pod, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "login"}}, "/login")
	return pod
}

// firstUser returns the user ID on the node that is root in the pod, from the kernel.
func (s *space) firstUser(pod *v1.Pod) uint32 {
	s.t.Helper()
	var inside, outside, count uint32
	text := s.sh(pod, "cat /proc/self/uid_map")
	_, err := fmt.Sscan(text, &inside, &outside, &count)
	if err != nil || inside != 0 || outside == 0 || count != idsPerPod {
		s.t.Fatalf("the user IDs of pod %s are %q, want %d from 0 on, mapped to others", pod.Name, text, idsPerPod)
	}
	s.expect("groups of the pod", s.sh(pod, "cat /proc/self/gid_map"), text)
	data, err := os.ReadFile(mappingFile(pod))
	s.must(err)
	want := fmt.Sprintf(`"hostId":%d,"containerId":0,"length":%d`, outside, idsPerPod)
	if strings.Count(string(data), want) != 2 {
		s.t.Errorf("the file of the pod's user namespace is %s, want %s for users and groups", data, want)
	}
	return outside
}

// mappingFile is the kubelet's file of the user namespace of a pod.
func mappingFile(pod *v1.Pod) string {
	return filepath.Join(node.Layout().KubeletRoot(), "pods", string(pod.UID), "userns")
}

// runsAs checks the user ID of the container called main on the node.
func (s *space) runsAs(pod *v1.Pod, user uint32) {
	s.t.Helper()
	now, err := s.client.CoreV1().Pods(s.name).Get(s.ctx, pod.Name, metav1.GetOptions{})
	s.must(err)
	pid, err := node.ContainerPID(s.ctx, now.Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	s.must(err)
	if want := fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", user); !strings.Contains(string(data), want) {
		s.t.Errorf("the process of %s does not run as %d on the node:\n%s", pod.Name, user, data)
	}
}

func (s *space) disjoint(users map[string]uint32) {
	s.t.Helper()
	taken := map[uint32]string{}
	for name, first := range users {
		if first%idsPerPod != 0 || taken[first] != "" {
			s.t.Errorf("the user IDs of pods begin at %v, want different multiples of %d", users, idsPerPod)
		}
		taken[first] = name
	}
}
