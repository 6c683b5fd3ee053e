package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// requestTimeout limits one request.
	requestTimeout = 10 * time.Second
	// maxTries is the maximum number of tries in an attempt; those after the first follow conflicts.
	maxTries = 5
	// failuresBeforeEvent is the number of errors in a row after which there is an event, about 15 s after the first. An
	// error of the content, or of the record, is reported at once.
	failuresBeforeEvent = 5

	eventNotPublished = "CustomNodeResourceNotPublished"
)

// errGone: the object was deleted meanwhile, or the API server does not serve the subresource that was written.
var errGone = errors.New("the object or its subresource does not exist")

// attempt makes the object as it should be, and says when to try again if that fails.
func (p *Publisher) attempt(ctx context.Context, w *wanted) {
	begun := &writes{}
	err := p.synchronize(ctx, w, begun)
	if begun.accepted > 0 {
		p.pace.written(p.now(), begun.created)
		p.mu.Lock()
		p.state.LastWrite = p.now()
		p.state.Writes += int64(begun.accepted)
		p.mu.Unlock()
	}
	switch {
	case err == nil:
		p.succeeded(ctx, w, begun)
	case ctx.Err() != nil:
	case errors.Is(err, errNodeUnknown):
		p.notBefore = p.now().Add(nodeRetry)
		p.setError(err)
	default:
		p.failed(ctx, w, begun, err)
	}
}

// writes are the requests of an attempt that the API server has accepted.
type writes struct {
	accepted int
	// created: one of them has created the object.
	created bool
}

func (p *Publisher) succeeded(ctx context.Context, w *wanted, begun *writes) {
	p.failures, p.notBefore, p.reported, p.refusedContent = 0, time.Time{}, noProblem, nil
	p.setError(nil)
	if !w.active {
		p.setPublished(ctx, false)
	}
	p.follow(ctx, w.active)
	p.published(w, begun)
}

func (p *Publisher) failed(ctx context.Context, w *wanted, begun *writes, err error) {
	problem := problemOf(err)
	if problem == noKind && !w.active {
		p.succeeded(ctx, w, begun) // there is nothing to remove
		return
	}
	p.failures++
	p.notBefore = p.now().Add(delayAfter(p.failures, err, random()))
	p.refusedContent = nil
	if problem == refused || problem == unrecorded {
		p.refusedContent, p.retryOther = w.reported, p.now().Add(w.options.Sustained)
	}
	if problem == noKind || problem == forbidden {
		// What is known of the object may be out of date at the next attempt.
		p.follow(ctx, false)
		p.known, p.live = false, nil
	}
	p.setError(err)
	logger := klog.FromContext(ctx)
	mayPass := problem == failed || problem == conflict
	// An API server that has just started has neither the kind nor the rights for some seconds.
	starts := (problem == noKind || problem == forbidden) && p.failures < failuresBeforeEvent
	if starts || mayPass && p.failures != failuresBeforeEvent {
		logger.V(2).Info("Failed to publish the CustomNodeResource, will retry", "err", err)
		return
	}
	if p.reported == problem {
		return
	}
	p.reported = problem
	logger.Error(err, "The CustomNodeResource is not published completely, will retry")
	p.config.Recorder.Eventf(p.config.Node, v1.EventTypeWarning, eventNotPublished,
		"What plugins report is not published completely in the CustomNodeResource: %v", err)
}

// setError sets the error of the last attempt in the state.
func (p *Publisher) setError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.LastError, p.state.LastErrorAt = "", time.Time{}
	if err != nil {
		p.state.LastError, p.state.LastErrorAt = err.Error(), p.now()
	}
}

// synchronize sends requests until the object is as it should be.
func (p *Publisher) synchronize(ctx context.Context, w *wanted, begun *writes) error {
	loaded := p.load(ctx)
	for range maxTries {
		if !p.known {
			if err := p.read(ctx); err != nil {
				return err
			}
		}
		err := p.send(ctx, w, begun)
		if problemOf(err) != conflict {
			return errors.Join(err, loaded)
		}
		p.known, p.live = false, nil
	}
	return fmt.Errorf("%w, %d times", errConflicts, maxTries)
}

// read reads the object.
func (p *Publisher) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	live, err := p.client.Get(ctx, string(p.config.NodeName), metav1.GetOptions{})
	switch {
	case err == nil:
		p.known, p.live = true, live
	case isAbsent(err):
		p.known, p.live = true, nil
	default:
		return fmt.Errorf("read the object: %w", err)
	}
	return nil
}

// step is one request of an attempt.
type step struct {
	// label is the value of the label object of the metric.
	label string
	// differs reports whether the request is needed.
	differs func(p *Publisher, w *wanted) bool
	send    func(p *Publisher, ctx context.Context, w *wanted) error
}

// steps are the requests of an attempt, in their order. Taints are last: they may meet other writers.
var steps = []step{
	{objectLabel, (*Publisher).takeOverDiffers, (*Publisher).sendTakeOver},
	{objectLabel, partDiffers(mainPart), sendPart(mainPart)},
	{statusLabel, partDiffers(statusPart), sendPart(statusPart)},
	{taintsLabel, (*Publisher).taintsDiffer, (*Publisher).sendTaints},
}

// differences returns the steps that are needed.
func (p *Publisher) differences(w *wanted) (needed []string) {
	p.hold(w)
	for _, s := range steps {
		if s.differs(p, w) {
			needed = append(needed, s.label)
		}
	}
	return needed
}

// send carries the steps out that are needed. A step that is refused does not keep the others from being carried out.
func (p *Publisher) send(ctx context.Context, w *wanted, begun *writes) error {
	p.hold(w)
	var errs []error
	for _, s := range steps {
		if !s.differs(p, w) {
			continue
		}
		if w.active {
			p.setPublished(ctx, true)
		}
		absent := p.live == nil
		err := s.send(p, ctx, w)
		if !errors.Is(err, errNodeUnknown) {
			countWrite(s.label, err)
		}
		switch {
		case err == nil:
			begun.accepted++
			begun.created = begun.created || absent
			continue
		case isAbsent(err):
			p.live = nil
			if !w.active {
				return nil // there is nothing to remove
			}
			return errGone
		case problemOf(err) == conflict:
			return err
		}
		errs = append(errs, fmt.Errorf("write %s: %w", s.label, err))
		if endsAttempt(err) {
			break
		}
	}
	return errors.Join(errs...)
}

func (p *Publisher) takeOverDiffers(w *wanted) bool {
	if !w.active || p.live == nil {
		return false
	}
	body, err := takeOver(p.live)
	return err == nil && body != nil
}

func (p *Publisher) sendTakeOver(ctx context.Context, _ *wanted) error {
	body, err := takeOver(p.live)
	if err != nil {
		return err
	}
	return p.patch(ctx, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
}

// owners returns the owners of the object that are applied: the Node, if the object has no owner, or the agent has
// applied one.
func (p *Publisher) owners(w *wanted) ([]owner, error) {
	ours := p.live != nil && owns(p.live)
	if !ours && (!w.active || p.live != nil && len(p.live.GetOwnerReferences()) > 0) {
		return nil, nil
	}
	uid, known := p.config.NodeUID()
	if !known {
		return nil, errNodeUnknown
	}
	return []owner{{v1.SchemeGroupVersion.String(), "Node", string(p.config.NodeName), uid}}, nil
}

// body returns what is to be applied of a part.
func (p *Publisher) body(w *wanted, part string) ([]byte, error) {
	var owners []owner
	var labels map[string]string
	if part == mainPart {
		var err error
		if owners, err = p.owners(w); err != nil {
			return nil, err
		}
		if w.active {
			labels = w.options.Labels
		}
	}
	return w.content.body(part, string(p.config.NodeName), labels, owners)
}

// partDiffers reports whether a part has to be applied.
func partDiffers(part string) func(*Publisher, *wanted) bool {
	return func(p *Publisher, w *wanted) bool {
		if p.live == nil {
			return w.active && part == mainPart
		}
		if owned(p.live, part) == nil && (!w.active || part == statusPart && !w.content.has(part)) {
			return false // nothing is there, and nothing is to be there
		}
		body, err := p.body(w, part)
		if err != nil {
			return true // the step returns the error
		}
		last, was := p.applied[part]
		now, err := appliedOf(p.live, part, body)
		return !was || err != nil || now != last
	}
}

// sendPart applies a part.
func sendPart(part string) func(*Publisher, context.Context, *wanted) error {
	return func(p *Publisher, ctx context.Context, w *wanted) error {
		body, err := p.body(w, part)
		if err != nil {
			return err
		}
		var subresources []string
		if part != mainPart {
			subresources = append(subresources, part)
		}
		err = p.patch(ctx, types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)}, subresources...)
		if err != nil {
			return err
		}
		p.applied[part], err = appliedOf(p.live, part, body)
		return err
	}
}

// decideTaints decides which taints the object should have.
func (p *Publisher) decideTaints(w *wanted) taintDecision {
	return decideTaints(liveTaints(p.live), w.content.taints, p.record.of(p.live.GetUID()))
}

func (p *Publisher) taintsDiffer(w *wanted) bool {
	if p.live == nil || !p.recordLoaded {
		return false
	}
	d := p.decideTaints(w)
	after := p.record.with(p.live.GetUID(), d.after)
	return d.changed || !after.equal(&p.record)
}

// sendTaints stores the record, and then changes the taints of the object. A request that the API server has rejected
// has added nothing, so that the record before it is stored again: otherwise a taint that somebody else adds later
// would count as the agent's. After other errors the object may have been changed.
//
// If the record cannot be stored, taints are removed and none are added: those that are removed are recorded.
func (p *Publisher) sendTaints(ctx context.Context, w *wanted) error {
	uid, d, previous := p.live.GetUID(), p.decideTaints(w), p.record
	unrecorded := p.save(p.record.with(uid, d.before))
	if unrecorded != nil {
		d.list, d.changed = d.list[:d.withoutAdded], d.removes
		d.after = slices.DeleteFunc(d.after, func(t taintID) bool { return !slices.Contains(previous.of(uid), t) })
	}
	if d.changed {
		body, err := taintPatch(p.live, d.list)
		if err != nil {
			return err
		}
		err = p.patch(ctx, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil {
			if rejected(err) {
				if err := p.save(previous); err != nil {
					klog.FromContext(ctx).Error(err, "Failed to store the record of taints again", "path", p.config.Record)
				}
			}
			return err
		}
	}
	return errors.Join(unrecorded, p.save(p.record.with(uid, d.after)))
}

// taintPatch returns a JSON merge patch of all taints, which has an effect on this version of this object only.
func taintPatch(live *unstructured.Unstructured, list []any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion()},
		"spec":     map[string]any{"taints": list}, // null removes the field
	})
}

// patch sends a request once, and records the object of the response.
func (p *Publisher) patch(
	ctx context.Context, kind types.PatchType, body []byte, options metav1.PatchOptions, subresources ...string,
) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	live, err := p.client.Patch(ctx, string(p.config.NodeName), kind, body, options, subresources...)
	if err == nil {
		p.known, p.live = true, live
	}
	return err
}
