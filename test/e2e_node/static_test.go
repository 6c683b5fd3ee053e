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

// writeManifest writes the manifest of a static pod of the namespace, which is removed when the test ends.
func (s *space) writeManifest(pod *v1.Pod) (file string) {
	s.t.Helper()
	s.must(s.placeManifest(pod))
	return s.manifestFile(pod.Name)
}

func mirrorName(static string) string { return static + "-" + cluster.NodeName }

func (s *space) manifestFile(name string) string {
	return filepath.Join(node.Layout().Manifests(), s.name+"-"+name+".yaml")
}

// placeManifest writes a manifest atomically.
func (s *space) placeManifest(pod *v1.Pod) error {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod.Namespace = s.name
	data, err := yaml.Marshal(pod)
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	file := s.manifestFile(pod.Name)
	hidden := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	s.t.Cleanup(func() { _, _ = os.Remove(hidden), os.Remove(file) })
	return errors.Join(os.WriteFile(hidden, data, 0o644), os.Rename(hidden, file))
}

// mirror waits until check returns nil for the mirror pod of the static pod called name.
func (s *space) mirror(name string, check func(*v1.Pod) error) *v1.Pod {
	s.t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: mirrorName(name)}}
	return s.wait(pod, podTimeout, check)
}

func TestStaticPodHasAMirrorPod(t *testing.T) {
	s := parallelSpace(t)
	file := s.writeManifest(kit.IdlePod("static"))
	mirror := s.mirror("static", kit.Ready)
	annotations, owners := mirror.Annotations, mirror.OwnerReferences
	if annotations["kubernetes.io/config.mirror"] == "" || annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the mirror pod are %v", annotations)
	}
	if len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != cluster.NodeName {
		t.Errorf("owners of the mirror pod are %v", owners)
	}
	s.expect("exec into a mirror pod", s.sh(mirror, "echo in"), "in")

	s.must(os.Remove(file))
	s.must(kit.WaitGone(s.ctx, s.client, mirror, podTimeout))
}

func TestDeletedMirrorPodIsCreatedAgainWithTheSameContainers(t *testing.T) {
	s := parallelSpace(t)
	s.writeManifest(kit.IdlePod("static"))
	before := s.mirror("static", kit.Ready)
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, before.Name, now))
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

func TestInvalidManifestDoesNotAffectOtherStaticPods(t *testing.T) {
	s := parallelSpace(t)
	s.writeManifest(kit.IdlePod("sound"))
	file := filepath.Join(node.Layout().Manifests(), s.name+"-broken.yaml")
	s.must(os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: broken\n"), 0o644))
	t.Cleanup(func() { _ = os.Remove(file) })
	s.mirror("sound", kit.Ready)
	s.must(os.Remove(file))
	_, err := s.client.CoreV1().Pods(s.name).Get(context.Background(), mirrorName("broken"), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("getting a pod of the invalid manifest returned %v, want NotFound", err)
	}
}
