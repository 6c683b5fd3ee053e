package podsync

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// Syncer does the work of the phases. For one pod its methods must not be called at the same time; for different pods they may.
// They write the events of what went wrong themselves: a caller that gets an error logs it and tries again later. Hasten alone is an
// exception to both.
type Syncer struct {
	sync      []step[*syncPass]
	terminate []step[*terminatePass]
	cleanUp   []step[*cleanUpPass]
	orphan    orphanKill
	hasten    hasten
	escalator *escalator
	mirrors   mirrors
	tracer    trace.Tracer
}

// New builds a Syncer; nothing is started.
func New(c Config) *Syncer {
	tracer := c.Tracer
	if tracer == nil {
		tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Returning == nil {
		c.Returning = noneReturns{}
	}
	escalator := newEscalator(c)
	return &Syncer{
		sync:      syncSteps(c),
		terminate: terminateSteps(c, escalator),
		cleanUp:   cleanUpSteps(c),
		escalator: escalator,
		orphan:    orphanKill{kill: newKiller(c), events: events{c.Recorder}, escalator: escalator},
		hasten:    hasten{observer: c.Runtime, stopper: c.Stopper, timeout: escalator.look.timeout},
		mirrors:   mirrors{client: c.Mirrors, node: c.Node},
		tracer:    tracer,
	}
}

// Sync brings the runtime in line with the pod. It may be called as often as one likes: without an error the pod runs as
// specified, with an error the next call goes on towards that. The context ends when the pod is to be terminated; the call then
// returns soon, with an error for which errors.Is(err, context.Canceled) holds if something was left undone.
func (s *Syncer) Sync(ctx context.Context, req SyncRequest) (SyncResult, error) {
	ctx, span := s.begin(ctx, "syncPod", req.Pod, updateType(req.UpdateType))
	logger := klog.FromContext(ctx)
	logger.V(4).Info("SyncPod enter", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID)
	pass := newSyncPass(req)
	err := run(ctx, s.sync, pass)
	span.end(err)
	logger.V(4).Info("SyncPod exit", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID, "isTerminal", pass.outcome.Terminal)
	if err != nil {
		return SyncResult{}, err
	}
	return pass.outcome, nil
}

// Terminate stops every container of the pod and publishes how they ended. Without an error nothing of the pod runs any more, as the
// runtime and the kernel say. Of a pod that the runtime does not stop in time it says so in an event and kills it (package escalation). When
// ctx ends the stop is broken off: the containers have their signal, but nobody would kill those that do not end, so it has to be
// called again, and runs their hooks once more. To shorten the grace period of a call in flight there is Hasten.
func (s *Syncer) Terminate(ctx context.Context, req TerminateRequest) error {
	ctx, span := s.begin(ctx, "syncTerminatingPod", req.Pod)
	logger := klog.FromContext(ctx)
	logger.V(4).Info("SyncTerminatingPod enter", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID, "gracePeriod", req.GracePeriod)
	// From here on a shorter grace period is not lost, also when it comes before the containers are being stopped.
	s.escalator.ledger.open(req.Pod.UID)
	err := run(ctx, s.terminate, newTerminatePass(req))
	if err == nil {
		s.escalator.ledger.forget(req.Pod.UID)
	}
	span.end(err)
	logger.V(4).Info("SyncTerminatingPod exit", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID)
	return err
}

// Hasten has the containers of a pod killed that still run after req.GracePeriod seconds from now, while a Terminate for the pod is
// in flight with a longer grace period. No hook runs, and nothing is published: Terminate goes on and does both. Unlike all other
// methods it may run beside another for the same pod. It returns when the containers have stopped, or with an error when that
// cannot be said of one of them.
func (s *Syncer) Hasten(ctx context.Context, req TerminateRequest) error {
	if req.GracePeriod != nil {
		s.escalator.ledger.shorten(req.Pod.UID, time.Now().Add(seconds(*req.GracePeriod)))
	}
	return s.hasten.run(ctx, req)
}

// TerminateRuntimePod stops a pod of which nothing but its containers is known: no hooks, no status, one second of grace.
func (s *Syncer) TerminateRuntimePod(ctx context.Context, running *kubecontainer.Pod) error {
	return s.orphan.run(ctx, running)
}

// Overdue returns the pods that the runtime has not stopped in time and what is left of them, by UID. It may be called from any goroutine.
func (s *Syncer) Overdue() map[types.UID]escalation.Overdue { return s.escalator.ledger.overdue() }

// CleanUp gives back what a pod held whose containers are gone: volumes, cgroup, user IDs. Without an error the pod's status is
// final. It is not called for every pod (a pod may be deleted by force while the agent is down), so housekeeping finds what is left.
func (s *Syncer) CleanUp(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error {
	ctx, span := s.begin(ctx, "syncTerminatedPod", pod)
	logger := klog.FromContext(ctx)
	logger.V(4).Info("SyncTerminatedPod enter", "pod", klog.KObj(pod), "podUID", pod.UID)
	err := run(ctx, s.cleanUp, newCleanUpPass(pod, status))
	span.end(err)
	logger.V(4).Info("SyncTerminatedPod exit", "pod", klog.KObj(pod), "podUID", pod.UID)
	return err
}

// ReconcileMirrorPod makes the API server's copy of a static pod match it, as the step of Sync does. It is for the time before
// the first Sync: mirror pods are wanted as soon as the node is registered. mirrorPod is nil when there is none; pods that are
// not static are left alone. Errors are logged only.
func (s *Syncer) ReconcileMirrorPod(ctx context.Context, pod, mirrorPod *v1.Pod) {
	s.mirrors.reconcile(ctx, pod, mirrorPod)
}

// events writes events with the logger of the context.
type events struct{ recorder record.EventRecorderLogger }

func (e events) warn(ctx context.Context, pod *v1.Pod, reason, format string, args ...any) {
	e.recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, v1.EventTypeWarning, reason, format, args...)
}

func (e events) note(ctx context.Context, pod *v1.Pod, reason, format string, args ...any) {
	e.recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, v1.EventTypeNormal, reason, format, args...)
}
