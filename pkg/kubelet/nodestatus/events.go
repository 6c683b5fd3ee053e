package nodestatus

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

// eventSink sends the events of the computation of a status.
type eventSink struct {
	// status sends an event about a change of the node's status to reason.
	status func(logger klog.Logger, eventType, reason string)
	plain  func(eventType, reason, message string)
}

func (u *Updater) events() eventSink {
	ref := u.Ref()
	return eventSink{
		status: func(logger klog.Logger, eventType, reason string) {
			logger.V(2).Info("Recording event message for node", "node", klog.KRef("", ref.Name), "event", reason)
			u.cfg.Recorder.Eventf(ref, eventType, reason, "Node %s status is now: %s", ref.Name, reason)
		},
		plain: func(eventType, reason, message string) {
			u.cfg.Recorder.Eventf(ref, eventType, reason, "%s", message)
		},
	}
}

// noEvents sends no events. It is for a Node that is computed and not published: its transitions are not visible.
func noEvents() eventSink {
	return eventSink{status: func(klog.Logger, string, string) {}, plain: func(string, string, string) {}}
}

// schedulability returns a function that sends an event if the node was cordoned or uncordoned since its last call. The
// function is safe for concurrent use.
func schedulability(sink eventSink) func(logger klog.Logger, node *v1.Node) {
	var mu sync.Mutex
	cordoned := false
	return func(logger klog.Logger, node *v1.Node) {
		mu.Lock()
		defer mu.Unlock()
		if node.Spec.Unschedulable == cordoned {
			return
		}
		cordoned = node.Spec.Unschedulable
		reason := events.NodeSchedulable
		if cordoned {
			reason = events.NodeNotSchedulable
		}
		sink.status(logger, v1.EventTypeNormal, reason)
	}
}
