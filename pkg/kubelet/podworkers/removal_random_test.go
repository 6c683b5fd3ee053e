package podworkers

import (
	"context"
	"errors"
	"maps"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// removalRun is a random history of pods that come, go and come back with the same UID, on a runtime that is slow and
// fails, while housekeeping removes what they left. The removal of a pod's leftovers and its start must not overlap.
type removalRun struct {
	n       *node
	rand    *rand.Rand
	desired map[types.UID]*v1.Pod

	mu sync.Mutex
	// syncing and stopping are the numbers of calls in progress, by UID; removing that of removals.
	syncing, stopping, removing map[types.UID]int
	healthy                     bool
	synced                      map[types.UID]time.Time
	removals                    sync.WaitGroup
	removed                     int
}

func (r *removalRun) draw(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rand.Intn(n)
}

// takes lets an operation take some time. It hangs or fails in some cases.
func (r *removalRun) takes(ctx context.Context) error {
	r.mu.Lock()
	healthy := r.healthy
	r.mu.Unlock()
	if healthy {
		return nil
	}
	wait := time.Duration(r.draw(4000)) * time.Millisecond
	switch r.draw(8) {
	case 0:
		wait = 3 * time.Minute
	case 1:
		return errors.New("the runtime fails")
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (r *removalRun) count(calls map[types.UID]int, uid types.UID, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls[uid] += by
	if r.removing[uid] > 0 && r.syncing[uid] > 0 {
		r.n.t.Errorf("%s is synced while what an earlier pod left is removed", uid)
	}
}

func (r *removalRun) sync(ctx context.Context, q podsync.SyncRequest) (podsync.SyncResult, error) {
	r.count(r.syncing, q.Pod.UID, 1)
	defer r.count(r.syncing, q.Pod.UID, -1)
	r.mu.Lock()
	r.synced[q.Pod.UID] = time.Now()
	r.mu.Unlock()
	return podsync.SyncResult{}, r.takes(ctx)
}

func (r *removalRun) terminate(ctx context.Context, q podsync.TerminateRequest) error {
	r.count(r.stopping, q.Pod.UID, 1)
	defer r.count(r.stopping, q.Pod.UID, -1)
	return r.takes(ctx)
}

func (r *removalRun) step() {
	uids := []string{"p1", "p2", "s1", "s2"}
	uid := types.UID(uids[r.draw(len(uids))])
	pod := newPod(string(uid))
	pod.UID = uid
	if uid[0] == 's' {
		pod = staticPod(string(uid), string(uid))
	}
	switch r.draw(8) {
	case 0, 1:
		r.desired[uid] = pod
		r.n.create(pod)
	case 2, 3:
		delete(r.desired, uid)
		r.n.send(kubetypes.SyncPodKill, pod)
	case 4:
		r.n.SyncStaticPods(slices.Collect(maps.Values(r.desired)))
	case 5:
		r.housekeeping()
	default:
		r.remove(uid, time.Duration(r.draw(20000))*time.Millisecond)
	}
	r.n.advance(time.Duration(r.draw(4000)) * time.Millisecond)
	r.resend()
}

// remove removes what the pod has left, if that is permitted, which takes a time.
func (r *removalRun) remove(uid types.UID, takes time.Duration) {
	end, ok := r.n.BeginRemoval(uid)
	if !ok {
		return
	}
	r.removed++
	r.count(r.removing, uid, 1)
	r.removals.Go(func() {
		<-time.After(takes)
		r.count(r.removing, uid, -1)
		end()
	})
}

func (r *removalRun) resend() {
	for _, uid := range r.n.queue.GetWork() {
		if pod, ok := r.desired[uid]; ok {
			r.n.send(kubetypes.SyncPodSync, pod)
		} else {
			r.n.Retry(uid)
		}
	}
}

func (r *removalRun) housekeeping() {
	pods := slices.Collect(maps.Values(r.desired))
	known := r.n.SyncKnownPods(pods)
	for _, pod := range pods {
		if _, ok := known[pod.UID]; !ok {
			r.n.create(pod)
		}
	}
}

// rest lets the runtime work and checks that what is desired runs, and that nothing else is left.
func (r *removalRun) rest() {
	r.mu.Lock()
	r.healthy = true
	r.mu.Unlock()
	r.n.advance(4 * time.Minute)
	r.removals.Wait()
	began := time.Now()
	for range 60 {
		r.housekeeping()
		r.n.advance(2 * time.Second)
		r.resend()
	}
	for uid := range r.desired {
		if !r.synced[uid].After(began) {
			state, _ := r.n.cfg.Store.State(uid)
			r.n.t.Errorf("%s is desired and does not run: %+v", uid, state)
		}
	}
	for _, uid := range r.n.cfg.Store.UIDs() {
		if r.desired[uid] == nil {
			r.n.t.Errorf("%s is left", uid)
		}
	}
	if len(r.n.removals) != 0 {
		r.n.t.Errorf("removals %v", r.n.removals)
	}
}

// TestRemovalsAndStartsNeverOverlap runs random histories. After each, when the runtime works again, what is desired
// runs, whatever was removed meanwhile.
func TestRemovalsAndStartsNeverOverlap(t *testing.T) {
	removed := 0
	for seed := range int64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := &removalRun{
				rand: rand.New(rand.NewSource(seed)), desired: map[types.UID]*v1.Pod{},
				syncing: map[types.UID]int{}, stopping: map[types.UID]int{}, removing: map[types.UID]int{},
				synced: map[types.UID]time.Time{},
			}
			r.n = newNode(t)
			defer r.n.close()
			r.n.script.onSync, r.n.script.onTerminate = r.sync, r.terminate
			r.n.script.onCleanUp = func(ctx context.Context, _ *v1.Pod, _ *kubecontainer.PodStatus) error {
				return r.takes(ctx)
			}
			for range 40 {
				r.step()
			}
			r.rest()
			removed += r.removed
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if removed < 1000 {
		t.Errorf("only %d removals", removed)
	}
}
