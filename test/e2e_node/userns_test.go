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

// idsPerPod is how many users a pod has whose users are its own.
const idsPerPod = 65536

// TestUserNamespacesSurviveRestarts gives pods users of their own: root in the pod is nobody on the node, and no two pods share a user.
// The pods keep them when the kubelet crashes, or is the upstream one, which the containers show that are started afterwards.
func TestUserNamespacesSurviveRestarts(t *testing.T) {
	s := newSpace(t)
	s.openToPods()
	s.secret("login", map[string]string{"password": "sesame"})
	first, second := s.ready(podWithUsers("first")), s.ready(podWithUsers("second"))
	users := map[string]uint32{"first": s.firstUser(first), "second": s.firstUser(second)}
	s.disjoint(users)
	s.runsAs(first, users["first"])
	s.expect("owners in the pod", s.sh(first, "touch /data/new; stat -c %u /data/new /login/password; id -u"), "0\n0\n0")
	s.swapKubelets(nil, func() {
		s.knows("first")
	})
	first = s.crash(first)
	third := s.ready(podWithUsers("third"))
	s.expect("first user of the pod", fmt.Sprint(s.firstUser(first)), fmt.Sprint(users["first"]))
	s.runsAs(first, users["first"])
	users["third"] = s.firstUser(third)
	s.disjoint(users)

	s.remove(second)
	if _, err := os.Stat(mappingFile(second)); !os.IsNotExist(err) {
		t.Errorf("the users of a pod that is gone: %v, want no file", err)
	}
}

// openToPods lets everybody enter the folders above the containers' root file systems while the test runs: no user of a pod could otherwise, where
// the repository is below a folder that is root's alone. What is in those folders stays as closed as it was.
func (s *space) openToPods() {
	s.t.Helper()
	for dir := node.Layout().State; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		s.must(err)
		if info.Mode().Perm()&0o001 != 0 {
			continue
		}
		s.t.Logf("%s is entered by root only, until this test has ended by everybody", dir)
		s.must(os.Chmod(dir, info.Mode()|0o001))
		s.t.Cleanup(func() {
			if err := os.Chmod(dir, info.Mode()); err != nil {
				s.t.Error(err)
			}
		})
	}
}

// podWithUsers is an idle pod with users of its own, and volumes that it must be the owner of.
func podWithUsers(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.HostUsers = new(false)
	mountEmptyDir(pod, "/data")
	mount(pod, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "login"}}, "/login")
	return pod
}

// firstUser is the user of the node that is root in the pod, as the kernel tells.
func (s *space) firstUser(pod *v1.Pod) uint32 {
	s.t.Helper()
	var inside, outside, count uint32
	text := s.sh(pod, "cat /proc/self/uid_map")
	if _, err := fmt.Sscan(text, &inside, &outside, &count); err != nil || inside != 0 || outside == 0 || count != idsPerPod {
		s.t.Fatalf("the users of pod %s are %q, want %d from 0 on that are not those of the node", pod.Name, text, idsPerPod)
	}
	s.expect("groups of the pod", s.sh(pod, "cat /proc/self/gid_map"), text)
	data, err := os.ReadFile(mappingFile(pod))
	s.must(err)
	if want := fmt.Sprintf(`"hostId":%d,"containerId":0,"length":%d`, outside, idsPerPod); strings.Count(string(data), want) != 2 {
		s.t.Errorf("the file of the pod's users says %s, want %s for users and groups", data, want)
	}
	return outside
}

// mappingFile is where the kubelet remembers the users of a pod.
func mappingFile(pod *v1.Pod) string {
	return filepath.Join(node.Layout().KubeletRoot(), "pods", string(pod.UID), "userns")
}

// runsAs checks who the container called main is on the node.
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
			s.t.Errorf("the users of pods begin at %v, want different multiples of %d", users, idsPerPod)
		}
		taken[first] = name
	}
}
