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

// Syncer executes the phases. For one pod its methods must not be called concurrently; for different pods they may be.
// They send the events about failures themselves: the caller logs the error and retries. Hasten is an exception to
// both.
type Syncer struct {
	sync        []step[*syncPass]
	terminate   []step[*terminatePass]
	cleanUp     []step[*cleanUpPass]
	runtimePods runtimePodKill
	hasten      hasten
	escalator   *escalator
	mirrors     mirrors
	tracer      trace.Tracer
}

// New returns a Syncer. It starts no goroutine.
func New(c Config) *Syncer {
	tracer := c.Tracer
	if tracer == nil {
		tracer = noop.NewTracerProvider().Tracer("")
	}
	escalator := newEscalator(c)
	return &Syncer{
		sync:        syncSteps(c),
		terminate:   terminateSteps(c, escalator),
		cleanUp:     cleanUpSteps(c),
		escalator:   escalator,
		runtimePods: runtimePodKill{kill: newKiller(c), events: events{c.Recorder}, escalator: escalator},
		hasten:      hasten{observer: c.Runtime, stopper: c.Stopper, timeout: escalator.inspector.timeout},
		mirrors:     mirrors{client: c.Mirrors, node: c.Node},
		tracer:      tracer,
	}
}

// Sync sets up the pod and starts its containers. It may be called repeatedly: if it returns no error, the pod runs as
// specified; after an error the next call continues. ctx ends when the termination of the pod is requested; Sync then
// returns soon, with an error that wraps context.Canceled if it is incomplete.
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

// Terminate stops all containers of the pod and publishes their final state. If it returns no error, no container and
// no process of the pod runs, according to runtime and kernel. If the runtime does not stop the pod in time, Terminate
// sends an event and kills it (package escalation). If ctx ends, Terminate returns early: the containers have got their
// stop signal, but are not killed after their grace period, so Terminate has to be called again, and executes their
// hooks again. Hasten shortens the grace period of a call in progress.
func (s *Syncer) Terminate(ctx context.Context, req TerminateRequest) error {
	ctx, span := s.begin(ctx, "syncTerminatingPod", req.Pod)
	logger := klog.FromContext(ctx)
	logger.V(4).Info("SyncTerminatingPod enter", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID,
		"gracePeriod", req.GracePeriod)
	// From now on a call of Hasten is effective, also before the containers are being stopped.
	s.escalator.pods.get(req.Pod.UID)
	err := run(ctx, s.terminate, newTerminatePass(req))
	if err == nil {
		s.escalator.pods.remove(req.Pod.UID)
	}
	span.end(err)
	logger.V(4).Info("SyncTerminatingPod exit", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID)
	return err
}

// Hasten kills the containers of a pod that still run req.GracePeriod seconds after the call, while a Terminate for the
// pod is in progress with a longer grace period. It executes no hooks and publishes no status, which Terminate does.
// Unlike all other methods it may be called concurrently with another method for the same pod. It returns when the
// containers have stopped, or with an error if one of them may still run.
func (s *Syncer) Hasten(ctx context.Context, req TerminateRequest) error {
	s.escalator.pods.shorten(req.Pod.UID, time.Now().Add(seconds(*req.GracePeriod)))
	return s.hasten.run(ctx, req)
}

// TerminateRuntimePod stops a pod without specification: without hooks and status, with a grace period of one second.
func (s *Syncer) TerminateRuntimePod(ctx context.Context, running *kubecontainer.Pod) error {
	return s.runtimePods.run(ctx, running)
}

// Overdue returns the pods that the runtime has not stopped in time, by UID. It may be called from any goroutine.
func (s *Syncer) Overdue() map[types.UID]escalation.Overdue { return s.escalator.pods.overdue() }

// CleanUp releases volumes, cgroup and user IDs of a pod whose containers have stopped. If it returns no error, the
// pod's status is final. It is not called for every pod (a pod may be deleted by force while the agent is not running),
// so housekeeping cleans up as well.
func (s *Syncer) CleanUp(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error {
	ctx, span := s.begin(ctx, "syncTerminatedPod", pod)
	logger := klog.FromContext(ctx)
	logger.V(4).Info("SyncTerminatedPod enter", "pod", klog.KObj(pod), "podUID", pod.UID)
	err := run(ctx, s.cleanUp, newCleanUpPass(pod, status))
	span.end(err)
	logger.V(4).Info("SyncTerminatedPod exit", "pod", klog.KObj(pod), "podUID", pod.UID)
	return err
}

// ReconcileMirrorPod creates or replaces the mirror pod of a static pod, as a step of Sync does. It is for the time
// before the first Sync, because mirror pods should exist as soon as the node is registered. mirrorPod is nil if there
// is none; pods that are not static are ignored. Failures are only logged.
func (s *Syncer) ReconcileMirrorPod(ctx context.Context, pod, mirrorPod *v1.Pod) {
	s.mirrors.reconcile(ctx, pod, mirrorPod)
}

// events sends events with the logger of the context.
type events struct{ recorder record.EventRecorderLogger }

func (e events) warn(ctx context.Context, pod *v1.Pod, reason, format string, args ...any) {
	e.recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, v1.EventTypeWarning, reason, format, args...)
}

func (e events) note(ctx context.Context, pod *v1.Pod, reason, format string, args ...any) {
	e.recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, v1.EventTypeNormal, reason, format, args...)
}
