package eviction

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// APIKiller evicts pods through the API server. Package killer has one.
type APIKiller interface {
	// Evict begins an attempt to evict a pod. It returns at once; the channel delivers exactly one APIEnding, soon after
	// the end of ctx at the latest. The end of ctx withdraws the attempt. It may be called from any goroutine.
	//
	// For a pod for which an attempt of the same killer is under way, it delivers Withdrawn and does nothing.
	Evict(ctx context.Context, r APIKill) <-chan APIEnding
}

// APIKill is a request to evict a pod through the API server. Nothing in it may be modified afterwards.
type APIKill struct {
	// Pod is the pod to evict. No other pod of its name is evicted: its UID is a precondition.
	Pod *v1.Pod
	// Killer is EvictionAPI or DeleteAPI.
	Killer snapshot.Killer
	// GracePeriodSeconds is at least 1.
	GracePeriodSeconds int64
	// Current returns the newest object of the pod that the agent has, and false if it is no longer active.
	Current func() (*v1.Pod, bool)
	// Accepted is called once the API server has accepted the eviction, before the ending is delivered and before
	// anything else learns of it. It must return at once.
	Accepted func()
	// Blocked is called at most once, when the API server refuses the eviction for the time being: a disruption budget
	// does not allow it, or the server is overloaded. It must return at once.
	Blocked func(why error)
}

// APIEnding is the end of an attempt.
type APIEnding struct {
	Outcome APIOutcome
	// Err is the reason of GaveUp and Rejected, and of Gone and Withdrawn if there is more to say.
	Err error
}

// APIOutcome is how an attempt ends. Its values are labels of metrics.
type APIOutcome string

// The outcomes.
const (
	// APIAccepted: the API server has set the deletion timestamp of the pod. The pod workers stop it because of that.
	APIAccepted APIOutcome = "Accepted"
	// APIGone: the pod does not exist any more, or was terminating before.
	APIGone APIOutcome = "Gone"
	// APIWithdrawn: the eviction is no longer requested, or no longer by this killer.
	APIWithdrawn APIOutcome = "Withdrawn"
	// APIGaveUp: the API server has not accepted the eviction within max(10 s, 1.5 × grace period).
	APIGaveUp APIOutcome = "GaveUp"
	// APIRejected: the API server rejects the eviction with an error that a further call would get again.
	APIRejected APIOutcome = "Rejected"
)

// evictByAPI begins an attempt of the API server to evict a pod. The pod is not in flight before the API server has
// accepted that: a pod whose eviction a disruption budget forbids releases nothing that a need could count.
func (m *Manager) evictByAPI(ctx context.Context, decision uint64, pod *v1.Pod, v *policy.Victim) {
	result := func(kind ResultKind, err error) *Result {
		return &Result{Decision: decision, At: m.clock.now(), Kind: kind, Victim: v, Err: err}
	}
	attemptCtx, a := m.attempts.begin(ctx, v.Pod.UID)
	// The ledger has the pod before plugins are settled again, so that nothing takes its place meanwhile.
	accepted := sync.OnceValue(func() podkill.Answer {
		if m.ledger.deleted(v, decision, m.clock.now()) {
			return podkill.Begun
		}
		return podkill.Unchanged
	})
	endings := m.config.APIKiller.Evict(attemptCtx, APIKill{
		Pod: pod, Killer: v.Killer, GracePeriodSeconds: v.GraceSeconds,
		Current:  func() (*v1.Pod, bool) { return m.config.PodByUID(v.Pod.UID) },
		Accepted: func() { accepted() },
		Blocked:  func(why error) { m.sinks.result(ctx, result(KillBlocked, why)) },
	})
	m.work.Go(func() {
		ending := <-endings
		m.attempts.end(v.Pod.UID, a)
		r := result(KillFailed, ending.Err)
		switch ending.Outcome {
		case APIAccepted:
			r.Kind, r.Answer = KillAccepted, accepted()
		case APIGone:
			r.Kind = PodGone
		case APIWithdrawn:
			r.Kind = KillWithdrawn
		case APIGaveUp, APIRejected:
		}
		m.sinks.result(ctx, r)
		m.Wake()
	})
}

// apiAttempts are the attempts under way, by pod. The zero value is empty.
type apiAttempts struct {
	mu    sync.Mutex
	byPod map[types.UID]*apiAttempt
}

type apiAttempt struct{ cancel context.CancelFunc }

// begin returns the context of an attempt for a pod that has none.
func (l *apiAttempts) begin(ctx context.Context, uid types.UID) (context.Context, *apiAttempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPod == nil {
		l.byPod = map[types.UID]*apiAttempt{}
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &apiAttempt{cancel: cancel}
	l.byPod[uid] = a
	return ctx, a
}

// withdraw ends the context of the attempt for a pod, if there is one.
func (l *apiAttempts) withdraw(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.byPod[uid]; ok {
		a.cancel()
		delete(l.byPod, uid)
	}
}

// end removes an attempt that has ended.
func (l *apiAttempts) end(uid types.UID, a *apiAttempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.cancel()
	if l.byPod[uid] == a {
		delete(l.byPod, uid)
	}
}
