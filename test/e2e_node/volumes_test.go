//go:build e2e

package e2enode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// mount adds a volume to the pod and mounts it into every container at path.
func mount(pod *v1.Pod, source v1.VolumeSource, path string) *v1.VolumeMount {
	name := fmt.Sprintf("volume-%d", len(pod.Spec.Volumes))
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	var last *v1.VolumeMount
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, v1.VolumeMount{Name: name, MountPath: path})
			last = &list[i].VolumeMounts[len(list[i].VolumeMounts)-1]
		}
	}
	return last
}

func mountEmptyDir(pod *v1.Pod, path string) {
	mount(pod, v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}, path)
}

func (s *space) configMap(name string, data map[string]string) {
	s.t.Helper()
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	_, err := s.client.CoreV1().ConfigMaps(s.name).Create(s.ctx, object, metav1.CreateOptions{})
	s.must(err)
}

func (s *space) secret(name string, data map[string]string) {
	s.t.Helper()
	object := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	_, err := s.client.CoreV1().Secrets(s.name).Create(s.ctx, object, metav1.CreateOptions{})
	s.must(err)
}

func TestConfigMapVolumeIsUpdated(t *testing.T) {
	s := parallelSpace(t)
	s.configMap("settings", map[string]string{"color": "red"})
	pod := kit.IdlePod("reader")
	mount(pod, kit.ConfigMapVolume("settings"), "/settings")
	created := s.ready(pod)
	s.expect("file", s.sh(created, "cat /settings/color"), "red")
	s.kubectl("patch", "configmap", "settings", "-p", `{"data":{"color":"blue"}}`)
	s.eventually(slowTimeout, func(context.Context) error {
		if got := s.sh(created, "cat /settings/color"); got != "blue" {
			return fmt.Errorf("file holds %q", got)
		}
		return nil
	})
}

func TestPodWaitsForAMissingConfigMap(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("waiting")
	mount(pod, kit.ConfigMapVolume("late"), "/settings")
	created := s.create(pod)
	s.eventually(podTimeout, func(ctx context.Context) error { return s.hasEvent(ctx, "waiting", "FailedMount", "late") })
	s.configMap("late", map[string]string{"key": "value"})
	s.wait(created, slowTimeout, kit.Ready)
}

func TestSecretVolume(t *testing.T) {
	s := parallelSpace(t)
	s.secret("login", map[string]string{"password": "sesame"})
	pod := kit.IdlePod("reader")
	login := &v1.SecretVolumeSource{SecretName: "login", DefaultMode: new(int32(0o400))}
	mount(pod, v1.VolumeSource{Secret: login}, "/login")
	created := s.ready(pod)
	s.expect("file", s.sh(created, "cat /login/password"), "sesame")
	s.expect("mode", s.sh(created, "stat -Lc %a /login/password"), "400")
	s.expect("file system", s.sh(created, "grep ' /login ' /proc/mounts | cut -d' ' -f3"), "tmpfs")
}

func TestProjectedVolume(t *testing.T) {
	s := parallelSpace(t)
	s.configMap("settings", map[string]string{"color": "red"})
	s.secret("login", map[string]string{"password": "sesame"})
	pod := kit.IdlePod("reader")
	mount(pod, v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: kit.NamedObject("settings")}},
		{Secret: &v1.SecretProjection{
			LocalObjectReference: kit.NamedObject("login"), Items: []v1.KeyToPath{{Key: "password", Path: "deep/secret"}},
		}},
		{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name", FieldRef: kit.FieldRef("metadata.name")}},
		}},
		kit.TokenProjection("vault"),
	}}}, "/all")
	created := s.ready(pod)
	s.expect("files", s.sh(created, "cat /all/color /all/deep/secret /all/name"), "redsesamereader")
	audience, subject := claims(t, s.sh(created, "cat /all/token"))
	if !slices.Equal(audience, []string{"vault"}) || subject != "system:serviceaccount:"+s.name+":default" {
		t.Errorf("the audience of the token is %v, its subject %s", audience, subject)
	}
}

// claims decodes a token without verifying it.
func claims(t *testing.T, token string) (audience []string, subject string) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("not a token: %q", token)
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Audience []string `json:"aud"`
		Subject  string   `json:"sub"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		t.Fatal(err)
	}
	return body.Audience, body.Subject
}

func TestEmptyDirIsSharedAndGoesWithThePod(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("pair", "while ! test -e /shared/word; do sleep 0.2; done; cat /shared/word")
	pod.Spec.Containers = append(pod.Spec.Containers, kit.Container("writer", "echo hello > /shared/word"))
	mountEmptyDir(pod, "/shared")
	created := s.succeeded(pod)
	s.expectLog(created, "hello")

	dir := filepath.Join(node.Layout().KubeletRoot(), "pods", string(created.UID))
	s.remove(created)
	s.eventually(podTimeout, func(context.Context) error {
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("the directory of the deleted pod still exists: %s", dir)
		}
		return nil
	})
}

func TestEmptyDirInMemory(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("memory")
	limit := resource.MustParse("16Mi")
	cache := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}
	mount(pod, v1.VolumeSource{EmptyDir: cache}, "/cache")
	created := s.ready(pod)
	s.expect("file system and size", s.sh(created, "df -T /cache | awk 'NR==2 {print $2, $3}'"), "tmpfs 16384")
}

func TestHostPath(t *testing.T) {
	s := parallelSpace(t)
	dir := t.TempDir()
	s.must(os.WriteFile(filepath.Join(dir, "in"), []byte("from the host"), 0o644))
	pod := kit.Pod("host", "cat /host/in; echo from the pod > /host/out")
	mount(pod, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir, Type: new(v1.HostPathDirectory)}}, "/host")
	created := s.succeeded(pod)
	s.expectLog(created, "from the host")
	data, err := os.ReadFile(filepath.Join(dir, "out"))
	s.must(err)
	s.expect("file on the host", string(data), "from the pod\n")
}

func TestSubPath(t *testing.T) {
	s := parallelSpace(t)
	s.configMap("settings", map[string]string{"one": "1", "two": "2"})
	pod := kit.Pod("part", "ls /etc/app; cat /etc/app/two; echo mine > /data/file")
	pod.Spec.Containers[0].Env = []v1.EnvVar{fieldEnv("POD_NAME", "metadata.name")}
	mount(pod, kit.ConfigMapVolume("settings"), "/etc/app/two").SubPath = "two"
	dir := t.TempDir()
	mount(pod, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}, "/data").SubPathExpr = "logs/$(POD_NAME)"
	created := s.succeeded(pod)
	s.expectLog(created, "two\n2")
	data, err := os.ReadFile(filepath.Join(dir, "logs", "part", "file"))
	s.must(err)
	s.expect("file on the host", string(data), "mine\n")
}

func TestDownwardAPIVolumeFollowsLabels(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.IdlePod("labelled")
	pod.Labels = map[string]string{"tier": "front"}
	mount(pod, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: kit.FieldRef("metadata.labels")},
		{Path: "memory", ResourceFieldRef: &v1.ResourceFieldSelector{
			ContainerName: "main", Resource: "limits.memory", Divisor: resource.MustParse("1Mi"),
		}},
	}}}, "/info")
	pod.Spec.Containers[0].Resources.Limits = kit.Memory("64Mi")
	created := s.ready(pod)
	s.expect("files", s.sh(created, "cat /info/labels; echo; cat /info/memory"), "tier=\"front\"\n64")
	s.kubectl("label", "pod", "labelled", "tier=back", "--overwrite")
	s.eventually(slowTimeout, func(context.Context) error {
		if got := s.sh(created, "cat /info/labels"); got != `tier="back"` {
			return fmt.Errorf("labels are %s", got)
		}
		return nil
	})
}

func TestFSGroup(t *testing.T) {
	s := parallelSpace(t)
	pod := kit.Pod("grouped", "id -u; id -G; stat -c %g /data; touch /data/file && stat -c %g /data/file")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{
		RunAsUser: new(int64(1000)), RunAsGroup: new(int64(2000)), FSGroup: new(int64(3000)),
	}
	mountEmptyDir(pod, "/data")
	created := s.succeeded(pod)
	s.expectLog(created, "1000\n2000 3000\n3000\n3000")
}
