//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
)

// What can come of an action, beside done.
const (
	done       = "done"
	notThere   = "not there"
	stillThere = "still there"
	replaced   = "replaced"
)

func (r *rampage) pods() typedv1.PodInterface { return r.s.client.CoreV1().Pods(r.s.name) }

// ask does an action on pods and manifests, and records what was accepted.
func (r *rampage) ask(ctx context.Context, action chaos.Action) string {
	outcome, err := r.tryAsk(ctx, action)
	switch {
	case err == nil:
		return outcome
	case apierrors.IsNotFound(err):
		return notThere
	case apierrors.IsAlreadyExists(err):
		return stillThere
	case apierrors.IsConflict(err):
		return replaced
	}
	r.problem("%v: %v", action, err)
	return "failed"
}

func (r *rampage) tryAsk(ctx context.Context, action chaos.Action) (string, error) {
	switch action.Kind {
	case chaos.Create:
		return done, r.createPod(ctx, action)
	case chaos.WriteManifest:
		return done, r.writeManifest(action)
	case chaos.RemoveManifest:
		return done, r.removeManifest(action)
	case chaos.DeleteMirror:
		return done, r.pods().Delete(ctx, mirrorName(action.Pod), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}
	asked, ok := r.ledger.Named(action.Pod)
	if !ok {
		return notThere, nil
	}
	if action.Kind == chaos.Fill {
		return r.fill(asked)
	}
	return done, r.removePod(ctx, action, asked)
}

func (r *rampage) createPod(ctx context.Context, action chaos.Action) error {
	pod, err := r.pods().Create(ctx, chaos.Build(action.Pod, action.Shape, r.notes), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.ledger.Created(chaos.Asked{Name: pod.Name, UID: string(pod.UID), Shape: action.Shape, Created: time.Now()})
	return nil
}

// removePod deletes or evicts. That a pod may vanish at once is recorded before
// it does.
func (r *rampage) removePod(ctx context.Context, action chaos.Action, asked chaos.Asked) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(asked.UID)}
	grace := action.Grace
	switch {
	case action.Kind == chaos.ForceDelete:
		grace = 0
		options.GracePeriodSeconds = new(grace)
	case grace == chaos.OwnGrace:
		grace = asked.Shape.Grace
	default:
		options.GracePeriodSeconds = new(grace)
	}
	if grace == 0 {
		r.ledger.Forcing(asked.UID)
	}
	var err error
	if action.Kind == chaos.Evict {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: asked.Name, Namespace: r.s.name}, DeleteOptions: &options}
		err = r.pods().EvictV1(ctx, eviction)
	} else {
		err = r.pods().Delete(ctx, asked.Name, options)
	}
	if err == nil {
		r.ledger.Left(asked.UID)
	}
	return err
}

// fill tells the pod to write more than it may.
func (r *rampage) fill(asked chaos.Asked) (string, error) {
	if asked.Left || !asked.Shape.Fillable {
		return notThere, nil
	}
	if err := os.WriteFile(filepath.Join(r.notes, chaos.FillFile(asked.UID)), nil, 0o644); err != nil {
		return "", fmt.Errorf("tell a pod to fill its volume: %w", err)
	}
	r.ledger.Filled(asked.UID)
	return done, nil
}

func mirrorName(static string) string { return static + "-" + cluster.NodeName }

func (s *space) manifestFile(name string) string {
	return filepath.Join(node.Layout().Manifests(), s.name+"-"+name+".yaml")
}

// placeManifest writes a manifest such that nobody reads half of it.
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

func (r *rampage) writeManifest(action chaos.Action) error {
	if err := r.s.placeManifest(chaos.BuildStatic(action, r.notes)); err != nil {
		return err
	}
	r.ledger.Wrote(chaos.Manifest{Name: action.Pod, Revision: action.Revision, Present: true})
	return nil
}

func (r *rampage) removeManifest(action chaos.Action) error {
	r.ledger.Wrote(chaos.Manifest{Name: action.Pod})
	return os.Remove(r.s.manifestFile(action.Pod))
}

// clear deletes everything that is left.
func (r *rampage) clear(ctx context.Context) {
	for _, manifest := range r.ledger.Manifests() {
		if manifest.Present {
			r.ask(ctx, chaos.Action{Kind: chaos.RemoveManifest, Pod: manifest.Name})
		}
	}
	for _, asked := range r.ledger.Expected() {
		if !asked.Left {
			r.ask(ctx, chaos.Action{Kind: chaos.Delete, Pod: asked.Name, Grace: 1})
		}
	}
}

// uidOf is the UID that a pod has on the node: a static pod is known there by
// the hash of its manifest.
func uidOf(pod *v1.Pod) types.UID {
	if hash := pod.Annotations[v1.MirrorPodAnnotationKey]; hash != "" {
		return types.UID(hash)
	}
	return pod.UID
}
