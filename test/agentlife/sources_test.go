package agentlife

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// readSources delivers the changes of the sources: manifests at once, unreadable ones with the next list, the API
// server's pods while it responds.
func (a *agent) readSources(ctx context.Context) {
	tick, list := time.NewTicker(time.Second), time.NewTicker(listPeriod)
	defer tick.Stop()
	defer list.Stop()
	a.readFiles(ctx, true)
	for ctx.Err() == nil {
		var answer chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.readFiles(ctx, false)
		case <-list.C:
			a.readFiles(ctx, true)
		case answer = <-a.read:
			a.readFiles(ctx, false)
		}
		if a.w.apiAnswers() {
			a.publish()
			a.api.deliver(ctx, a.updates, a.w.apiPods())
		}
		if answer != nil {
			close(answer)
		}
	}
}

// readFiles delivers the manifests. An unreadable one does not change its pod, unless all are listed.
func (a *agent) readFiles(ctx context.Context, all bool) {
	pods := a.w.manifests()
	if !all {
		a.w.mu.Lock()
		for _, pod := range a.files.pods {
			if f, there := a.w.files[pod.Name]; there && f.unreadable {
				pods = append(pods, pod)
			}
		}
		a.w.mu.Unlock()
	}
	a.files.deliver(ctx, a.updates, pods)
}

// requestRead requests that the sources are read, now or within a second.
func (a *agent) requestRead() {
	select {
	case a.read <- nil:
	default:
	}
}

// readNow reads the sources, as after a watch event, and returns afterwards.
func (a *agent) readNow() {
	answer := make(chan struct{})
	a.read <- answer
	<-answer
}

// publish writes the phases of pods to the API server and deletes finished pods there, as the status manager does.
func (a *agent) publish() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for uid, pod := range a.w.api {
		status, known := a.statuses.GetPodStatus(uid)
		if known && status.Phase != pod.Status.Phase {
			pod.Status = status
		}
		if pod.DeletionTimestamp != nil && a.store.ShouldPodBeFinished(uid) {
			delete(a.w.api, uid)
		}
	}
}

// feed is a source of pods, as the agent has read it last.
type feed struct {
	source    string
	mu        sync.Mutex
	pods      []*v1.Pod
	delivered bool
	// all are all pods that were delivered so far.
	all sets.Set[types.UID]
}

// deliver sends the changes since the last call.
func (f *feed) deliver(ctx context.Context, updates chan<- kubetypes.PodUpdate, pods []*v1.Pod) {
	before := f.snapshot()
	found := func(in []*v1.Pod, uid types.UID) *v1.Pod {
		if i := slices.IndexFunc(in, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
			return in[i]
		}
		return nil
	}
	changes := map[kubetypes.PodOperation][]*v1.Pod{}
	for _, pod := range before {
		if found(pods, pod.UID) == nil {
			changes[kubetypes.REMOVE] = append(changes[kubetypes.REMOVE], pod)
		}
	}
	for _, pod := range pods {
		switch old := found(before, pod.UID); {
		case old == nil:
			changes[kubetypes.ADD] = append(changes[kubetypes.ADD], pod)
		case (pod.DeletionTimestamp != nil) != (old.DeletionTimestamp != nil):
			changes[kubetypes.DELETE] = append(changes[kubetypes.DELETE], pod)
		case pod.Status.Phase != old.Status.Phase:
			changes[kubetypes.RECONCILE] = append(changes[kubetypes.RECONCILE], pod)
		}
	}
	first := f.set(pods)
	for _, op := range []kubetypes.PodOperation{kubetypes.REMOVE, kubetypes.ADD, kubetypes.DELETE, kubetypes.RECONCILE} {
		if len(changes[op]) == 0 && (op != kubetypes.ADD || !first) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case updates <- kubetypes.PodUpdate{Op: op, Source: f.source, Pods: changes[op]}:
		}
	}
}

func (f *feed) snapshot() []*v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pods)
}

func (f *feed) set(pods []*v1.Pod) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = !f.delivered
	f.pods, f.delivered = pods, true
	if f.all == nil {
		f.all = sets.New[types.UID]()
	}
	for _, pod := range pods {
		f.all.Insert(pod.UID)
	}
	return first
}

func (f *feed) hasDelivered(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.Has(uid)
}
