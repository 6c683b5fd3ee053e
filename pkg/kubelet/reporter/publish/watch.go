package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

const (
	// minWatchTimeout is the shortest time after which the API server ends a watch. The longest is twice as much.
	minWatchTimeout = 5 * time.Minute
	maxWatchBackOff = 30 * time.Second
	// forbiddenWatchPeriod is how often the object is listed when it must not be watched. One that others delete comes
	// back within 10 s.
	forbiddenWatchPeriod = 8 * time.Second
)

// observation is the object as a list or a watch has found it: absent if there is none.
type observation struct {
	object          *unstructured.Unstructured
	resourceVersion string
	// listed: the object may be older than one that was seen before, or the API server has gone back in time.
	listed bool
}

// follow begins or ends the watch of the object.
func (p *Publisher) follow(ctx context.Context, on bool) {
	switch {
	case on && p.stopWatch == nil:
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { p.watch(ctx) })
		p.stopWatch = func() {
			cancel()
			running.Wait()
		}
	case !on && p.stopWatch != nil:
		p.stopWatch()
		p.stopWatch = nil
		p.mu.Lock()
		p.observed = nil
		p.mu.Unlock()
	}
}

// watch watches the object until ctx ends.
func (p *Publisher) watch(ctx context.Context) {
	delay := firstBackOff
	for {
		begun := p.now()
		err := p.watchOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("The watch of the CustomNodeResource has ended", "err", err)
		if p.now().Sub(begun) > maxWatchBackOff {
			delay = firstBackOff
		}
		wait := delay - time.Duration(random()*float64(delay)/5)
		delay = min(2*delay, maxWatchBackOff)
		if apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) {
			wait = forbiddenWatchPeriod
		}
		if seconds, ok := suggestedDelay(err); ok {
			wait = max(wait, min(time.Duration(seconds)*time.Second, maxBackOff))
		}
		timer := p.config.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// watchOnce lists and watches the object until the watch ends.
func (p *Publisher) watchOnce(ctx context.Context) error {
	selector := fields.OneTermEqualSelector("metadata.name", string(p.config.NodeName)).String()
	listCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := p.client.List(listCtx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	found := observation{resourceVersion: list.GetResourceVersion(), listed: true}
	for i := range list.Items {
		if list.Items[i].GetName() == string(p.config.NodeName) {
			found.object = &list.Items[i]
			found.resourceVersion = found.object.GetResourceVersion()
		}
	}
	p.see(found)
	timeout := int64((1 + random()) * minWatchTimeout.Seconds())
	w, err := p.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: selector, ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &timeout,
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return nil
			}
			if err := p.seeEvent(event); err != nil {
				return err
			}
		}
	}
}

func (p *Publisher) seeEvent(event watch.Event) error {
	if event.Type == watch.Error {
		return apierrors.FromObject(event.Object)
	}
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || object.GetName() != string(p.config.NodeName) {
		return nil
	}
	seen := observation{resourceVersion: object.GetResourceVersion()}
	switch event.Type {
	case watch.Added, watch.Modified:
		seen.object = object
	case watch.Deleted:
	default:
		return nil
	}
	p.see(seen)
	return nil
}

// see hands an observation to the goroutine of Run.
func (p *Publisher) see(o observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.observed) > 0 {
		o.listed = o.listed || p.observed[0].listed
	}
	p.observed = []observation{o}
	p.notify()
}

// observe takes over what the watch has seen, unless it is older than what is known.
func (p *Publisher) observe() {
	p.mu.Lock()
	observed := p.observed
	p.observed = nil
	p.mu.Unlock()
	for _, o := range observed {
		if !p.known {
			continue
		}
		if p.live == nil {
			p.live = o.object
			continue
		}
		order, err := resourceversion.CompareResourceVersion(o.resourceVersion, p.live.GetResourceVersion())
		switch {
		case err != nil, order < 0 && o.listed:
			p.known, p.live = false, nil
		case order > 0:
			p.live = o.object
		}
	}
}
