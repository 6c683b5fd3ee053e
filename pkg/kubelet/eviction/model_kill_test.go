package eviction

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var errModelKill = errors.New("the container runtime refuses")

// modelOrder is a request of the manager to stop a pod.
type modelOrder struct {
	at    time.Time
	pod   *modelPod
	grace time.Duration
	cause modelCause
	// joins: the pod was being stopped already. fails: the request will fail.
	joins, fails bool
	// left is what was left of the grace period of a pod that was being stopped already.
	left time.Duration
}

// modelCause is what a pod is evicted for.
type modelCause string

const (
	forMemory modelCause = "memory"
	forImages modelCause = "the image file system"
	forLimit  modelCause = "a limit of its own"
	// forRequest: eviction plugins request it.
	forRequest modelCause = "a request"
)

// modelCauseOf reads the cause from the status that the evicted pod gets.
func modelCauseOf(setStatus func(*v1.PodStatus)) modelCause {
	status := v1.PodStatus{}
	setStatus(&status)
	switch {
	case strings.HasPrefix(status.Message, "The node was low on resource: memory"):
		return forMemory
	case strings.HasPrefix(status.Message, "The node was low on resource: ephemeral-storage"):
		return forImages
	case strings.HasPrefix(status.Message, "Eviction requested by plugin"):
		return forRequest
	}
	return forLimit
}

// killer stops a pod as the pod workers do.
func (n *modelNode) killer(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
	if n.refuses(ctx, r.Pod.UID) {
		return podkill.Refused, podkill.Ended(podkill.Ending{Outcome: podkill.Failed, Err: ctx.Err()})
	}
	o := n.order(r.Pod.UID, *r.GracePeriodSeconds, modelCauseOf(r.Disruption.Apply))
	answer := podkill.Begun
	if o.joins {
		answer = podkill.Hastened
	}
	n.accepts(r.Pod.UID, answer)
	ended := make(chan podkill.Ending, 1)
	go func() {
		err := n.await(ctx, o)
		outcome := podkill.Failed
		switch {
		case err == nil:
			outcome = podkill.Stopped
		case errors.Is(err, podworkers.ErrKillTimeout):
			outcome = podkill.Overdue
		}
		ended <- podkill.Ending{Outcome: outcome, Err: err}
	}()
	return answer, ended
}

// kill stops a pod as stock's pod workers do.
func (n *modelNode) kill(pod *v1.Pod, _ bool, graceSeconds *int64, setStatus func(*v1.PodStatus)) error {
	return n.await(context.Background(), n.order(pod.UID, *graceSeconds, modelCauseOf(setStatus)))
}

// order records a request, and begins to stop the pod unless the request fails.
func (n *modelNode) order(uid types.UID, graceSeconds int64, cause modelCause) *modelOrder {
	defer n.locked()()
	p := n.byUID[uid]
	o := &modelOrder{at: n.at, pod: p, grace: time.Duration(graceSeconds) * time.Second, cause: cause}
	o.joins, o.fails, o.left = len(p.orders) > 0 || p.dying, p.failures > 0, p.deadline.Sub(n.at)
	if last := p.lastOrder(); last != nil && !p.dying {
		o.left = last.at.Add(last.grace).Sub(n.at) // its kill fails, which is not known yet
	}
	n.orders, p.orders = append(n.orders, o), append(p.orders, o)
	n.log("%s is evicted for %s with %v of grace", p.name(), cause, o.grace)
	if cause == forRequest {
		n.checkRequested(o)
	}
	if o.fails {
		p.failures--
	} else {
		n.stop(p, o.grace)
	}
	return o
}

// await returns when the containers have ended, or after max(10 s, 1.5 × grace), when the pod goes on terminating.
func (n *modelNode) await(ctx context.Context, o *modelOrder) error {
	p := o.pod
	giveUp := o.at.Add(max(10*time.Second, o.grace+o.grace/2))
	for {
		unlock := n.locked()
		now, wait, changed := n.at, giveUp, p.changed
		switch {
		case p.dead():
			unlock()
			return nil
		case o.fails && !now.Before(o.at.Add(p.fails)):
			p.failedAt = now
			n.log("the kill of %s fails", p.name())
			unlock()
			return errModelKill
		case !now.Before(giveUp):
			n.log("the kill of %s returns its time-out", p.name())
			unlock()
			return podworkers.ErrKillTimeout
		case o.fails:
			wait = o.at.Add(p.fails)
		}
		if !p.diesAt.IsZero() && p.diesAt.Before(wait) {
			wait = p.diesAt
		}
		unlock()
		select {
		case <-time.After(wait.Sub(now)):
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// modelReclaim is a node-level reclaim; end is zero while it runs.
type modelReclaim struct{ begin, end time.Time }

// Reclaim removes images until there is enough.
func (n *modelNode) Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	unlock := n.locked()
	if n.images == nil || q.Device != snapshot.ImageDevice {
		unlock()
		return snapshot.Reclaimed{}, nil
	}
	n.reclaims = append(n.reclaims, modelReclaim{begin: n.at})
	i, takes := len(n.reclaims)-1, n.images.takes
	n.log("images are removed until %s are free", mib(float64(q.Target)))
	unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return snapshot.Reclaimed{}, ctx.Err()
	}
	defer n.locked()()
	n.reclaims[i].end = n.at
	return n.removeImages(float64(q.Target)), nil
}

func (n *modelNode) removeImages(target float64) snapshot.Reclaimed {
	freed := max(0, min(n.images.reclaimable, target-n.imagesFree()))
	n.suddenly(func() {
		n.images.reclaimable -= freed
		n.images.other -= freed
		n.checks.diskEpoch++
	})
	got := snapshot.Reclaimed{Freed: int64(freed), More: freed > 0 && n.images.reclaimable > 0}
	if n.images.measures {
		got.Missing = max(0, int64(target-n.imagesFree()))
	}
	n.log("%s of images were removed", mib(freed))
	return got
}

func (n *modelNode) DeleteUnusedImages(ctx context.Context) error {
	q := policy.ReclaimRequest{Device: snapshot.ImageDevice, Images: true, Target: int64(n.settings.images)}
	_, err := n.Reclaim(ctx, q)
	return err
}

func (n *modelNode) DeleteAllUnusedContainers(context.Context) error { return nil }
