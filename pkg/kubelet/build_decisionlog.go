package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
)

// makeDecisionLog makes the log of decisions about pressure. It is a sink of the eviction manager, which is made after
// it.
func (b *build) makeDecisionLog() {
	settings, forward, node := b.Pressure.Configuration().DecisionLog, b.forward, string(b.Identity.NodeName)
	active := b.pods.view.Active
	if settings.Directory != "" {
		b.pressure.disk = decisionlog.NewDisk(decisionlog.DiskConfig{
			Directory: settings.Directory, Files: decisionlog.Directory(settings.Directory),
			MaxBytes: settings.MaxSize.Value(), MaxAge: settings.MaxAge.Duration, Node: node, Clock: b.clock,
		})
	}
	plugins := b.plugins.eviction
	b.pressure.log = decisionlog.New(decisionlog.Config{
		Node: node, Clock: b.clock, LimitBytes: settings.Memory.Value(), Disk: b.pressure.disk,
		Waiting: func() []debugv1alpha1.PressurePod { return waitingAmong(active(), forward.isWaiting) },
		Plugins: func() []debugv1alpha1.PressurePlugin { return pressurePlugins(plugins.list().Plugins) },
	})
	forward.decisions = b.pressure.log
}

// decisionFiles writes the files of the log. It is stopped after eviction, so that the last records are written.
func (b *build) decisionFiles() component {
	return runs("files of the decision log", b.pressure.disk.Run)
}

// waitingAmong returns those of the pods that wait for their admission.
func waitingAmong(pods []*v1.Pod, isWaiting func(types.UID) bool) (list []debugv1alpha1.PressurePod) {
	for _, p := range pods {
		if isWaiting(p.UID) {
			list = append(list, debugv1alpha1.PressurePod{Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		}
	}
	return list
}

// pressurePlugins returns what the page /debug/pressure/status shows of plugins.
func pressurePlugins(list []debugv1alpha1.Plugin) []debugv1alpha1.PressurePlugin {
	var short []debugv1alpha1.PressurePlugin
	for i := range list {
		p := &list[i]
		short = append(short, debugv1alpha1.PressurePlugin{
			Name: p.Name, Enabled: p.Enabled, DryRun: p.DryRun, Failures: p.Health.Failures,
			Suspended: !p.Health.SuspendedUntil.IsZero(), Asked: p.Pods.Asked, Evicted: p.Pods.Evicted,
		})
	}
	return short
}

// recordedAdmissions returns an event recorder that also records each event about a pod in the decision log, as an
// admission with this outcome. It is for parts that reject pods or let them wait.
func (b *build) recordedAdmissions(outcome string) record.EventRecorder {
	return &admissionRecorder{EventRecorder: b.Observability.Recorder, forward: b.forward, outcome: outcome}
}

// admissionRecorder is such a recorder. Only Event is recorded: these parts call no other method.
type admissionRecorder struct {
	record.EventRecorder
	forward *forward
	outcome string
}

// Event implements record.EventRecorder.
func (r *admissionRecorder) Event(object runtime.Object, eventType, reason, message string) {
	r.EventRecorder.Event(object, eventType, reason, message)
	if pod, ok := object.(*v1.Pod); ok {
		r.forward.decisions.Admission(pod, r.outcome, reason, message)
	}
}
