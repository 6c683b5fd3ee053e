//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// writeManifest makes pod a static pod of the namespace; the manifest goes
// with the test.
func (s *space) writeManifest(pod *v1.Pod) (file string) {
	s.t.Helper()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Namespace = s.name
	data, err := yaml.Marshal(pod)
	s.must(err)
	file = filepath.Join(node.Layout().Manifests(), s.name+"-"+pod.Name+".yaml")
	s.must(os.WriteFile(file, data, 0o644))
	s.t.Cleanup(func() { _ = os.Remove(file) })
	return file
}

// mirror waits for the mirror pod of the static pod called name, until check
// holds for it.
func (s *space) mirror(name string, check func(*v1.Pod) error) *v1.Pod {
	s.t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name + "-" + cluster.NodeName}}
	return s.wait(pod, podTimeout, check)
}

func TestStaticPodHasAMirrorPod(t *testing.T) {
	s := parallelSpace(t)
	file := s.writeManifest(kit.IdlePod("static"))
	mirror := s.mirror("static", kit.Ready)
	if mirror.Annotations["kubernetes.io/config.mirror"] == "" || mirror.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the mirror pod are %v", mirror.Annotations)
	}
	if owners := mirror.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != cluster.NodeName {
		t.Errorf("owners of the mirror pod are %v", owners)
	}
	s.expect("exec into a mirror pod", s.sh(mirror, "echo in"), "in")

	s.must(os.Remove(file))
	s.must(kit.WaitGone(s.ctx, s.client, mirror, podTimeout))
}

func TestDeletedMirrorPodComesBackWithTheSameContainers(t *testing.T) {
	s := parallelSpace(t)
	s.writeManifest(kit.IdlePod("static"))
	before := s.mirror("static", kit.Ready)
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, before.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	after := s.mirror("static", func(pod *v1.Pod) error {
		if pod.UID == before.UID {
			return errors.New("the mirror pod was not replaced")
		}
		return kit.Ready(pod)
	})
	s.expect("container", after.Status.ContainerStatuses[0].ContainerID, before.Status.ContainerStatuses[0].ContainerID)
}

func TestChangedManifestReplacesTheStaticPod(t *testing.T) {
	s := parallelSpace(t)
	s.writeManifest(kit.IdlePodThat("static", "echo one"))
	before := s.mirror("static", kit.Ready)
	s.writeManifest(kit.IdlePodThat("static", "echo two"))
	after := s.mirror("static", func(pod *v1.Pod) error {
		if pod.Annotations["kubernetes.io/config.hash"] == before.Annotations["kubernetes.io/config.hash"] {
			return errors.New("the mirror pod still shows the old manifest")
		}
		return kit.Ready(pod)
	})
	s.expectLog(after, "two")
}

func TestBrokenManifestHarmsNobody(t *testing.T) {
	s := parallelSpace(t)
	s.writeManifest(kit.IdlePod("sound"))
	file := filepath.Join(node.Layout().Manifests(), s.name+"-broken.yaml")
	s.must(os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: broken\n"), 0o644))
	t.Cleanup(func() { _ = os.Remove(file) })
	s.mirror("sound", kit.Ready)
	s.must(os.Remove(file))
	_, err := s.client.CoreV1().Pods(s.name).Get(context.Background(), "broken-"+cluster.NodeName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Error(fmt.Errorf("a pod of the broken manifest: %w", err))
	}
}
