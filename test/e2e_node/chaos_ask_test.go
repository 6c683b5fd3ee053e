//go:build e2e

package e2enode

import (
	"context"
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

	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
)

// Outcomes of an action.
const (
	done       = "done"
	notThere   = "not found"
	stillThere = "already exists"
	replaced   = "replaced"
)

func (r *chaosRun) pods() typedv1.PodInterface { return r.s.client.CoreV1().Pods(r.s.name) }

// ask executes an action on pods or manifests, and records what was accepted.
func (r *chaosRun) ask(ctx context.Context, action chaos.Action) string {
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

func (r *chaosRun) tryAsk(ctx context.Context, action chaos.Action) (string, error) {
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

func (r *chaosRun) createPod(ctx context.Context, action chaos.Action) error {
	pod, err := r.pods().Create(ctx, chaos.Build(action.Pod, action.Shape, r.notes), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	r.ledger.Created(chaos.Asked{Name: pod.Name, UID: string(pod.UID), Shape: action.Shape, Created: time.Now()})
	return nil
}

// removePod deletes or evicts. That the API server may remove the pod at once is recorded before the request.
func (r *chaosRun) removePod(ctx context.Context, action chaos.Action, asked chaos.Asked) error {
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
		r.ledger.MarkForced(asked.UID)
	}
	var err error
	if action.Kind == chaos.Evict {
		meta := metav1.ObjectMeta{Name: asked.Name, Namespace: r.s.name}
		err = r.pods().EvictV1(ctx, &policyv1.Eviction{ObjectMeta: meta, DeleteOptions: &options})
	} else {
		err = r.pods().Delete(ctx, asked.Name, options)
	}
	if err == nil {
		r.ledger.MarkDeleted(asked.UID)
	}
	return err
}

// fill requests the pod to write more than the limit of its emptyDir.
func (r *chaosRun) fill(asked chaos.Asked) (string, error) {
	if asked.Deleted || !asked.Shape.Fillable {
		return notThere, nil
	}
	if err := os.WriteFile(filepath.Join(r.notes, chaos.FillFile(asked.UID)), nil, 0o644); err != nil {
		return "", fmt.Errorf("request a pod to fill its volume: %w", err)
	}
	r.ledger.MarkFilled(asked.UID)
	return done, nil
}

func (r *chaosRun) writeManifest(action chaos.Action) error {
	if err := r.s.placeManifest(chaos.BuildStatic(action, r.notes)); err != nil {
		return err
	}
	r.ledger.Wrote(chaos.Manifest{Name: action.Pod, Revision: action.Revision, Present: true})
	return nil
}

func (r *chaosRun) removeManifest(action chaos.Action) error {
	r.ledger.Wrote(chaos.Manifest{Name: action.Pod})
	return os.Remove(r.s.manifestFile(action.Pod))
}

// clear deletes all manifests and pods.
func (r *chaosRun) clear(ctx context.Context) {
	for _, manifest := range r.ledger.Manifests() {
		if manifest.Present {
			r.ask(ctx, chaos.Action{Kind: chaos.RemoveManifest, Pod: manifest.Name})
		}
	}
	for _, asked := range r.ledger.Expected() {
		if !asked.Deleted {
			r.ask(ctx, chaos.Action{Kind: chaos.Delete, Pod: asked.Name, Grace: 1})
		}
	}
}

// uidOf returns the UID that a pod has on the node: that of a static pod is the hash of its manifest.
func uidOf(pod *v1.Pod) types.UID {
	if hash := pod.Annotations[v1.MirrorPodAnnotationKey]; hash != "" {
		return types.UID(hash)
	}
	return pod.UID
}
