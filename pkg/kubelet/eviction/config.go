package eviction

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Collector reads stats of the node and its pods. Package snapshot/collect has one. All methods may take long. No two
// calls are made at a time, except that CollectLocal is called during one of the others that takes long.
type Collector interface {
	// Collect reads everything that needs no memorywatch.Reader. It should end with ctx. Each answer of the container
	// runtime to one of its requests should be reported by RuntimeAnswered, or a collection that takes longer than 15 s
	// counts as one that hangs.
	Collect(ctx context.Context) snapshot.Stats
	// CollectNode reads the file systems and the number of processes of the node as Collect does, and no stats of pods. It
	// should end with ctx, and report the answers of the runtime too. If it fails (Stats.Err) Collect is called instead.
	CollectNode(ctx context.Context) snapshot.Stats
	// CollectLocal reads what needs no container runtime, on a node with this layout.
	CollectLocal(ctx context.Context, layout snapshot.Layout) snapshot.Stats
}

// Reclaimer removes containers that have ended and images that no container uses, before pods are evicted. It removes
// no more than the request needs, and returns what it has removed. It may take long; it may be called for two devices,
// or for bytes and inodes of one, at a time. Package reclaim has one.
type Reclaimer interface {
	Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error)
}

// Config is what a Manager needs. The fields of the first block are required.
type Config struct {
	Collector Collector
	// Kill is called again for a pod whose grace period becomes shorter.
	Kill       podkill.Func
	ActivePods func() []*v1.Pod
	// PodByUID returns the pod that ActivePods lists with that UID, and false when it lists none.
	PodByUID func(types.UID) (*v1.Pod, bool)
	// PodStopped returns true when no container of a pod runs or will run.
	PodStopped func(types.UID) bool
	// PodCleanedUp returns true when the cgroups and volumes of a stopped pod are removed.
	PodCleanedUp func(types.UID) bool
	Reclaimer    Reclaimer
	Recorder     record.EventRecorder
	NodeRef      *v1.ObjectReference
	Clock        clock.WithTicker
	// NewAlarm returns the alarm of the loop, whose time has come. Without it, and if it returns nil, that of Clock is
	// used.
	NewAlarm func() Alarm

	// Kubelet is what the KubeletConfiguration sets.
	settings.Kubelet
	// Options are the initial settings of our own, settings.DefaultOptions when nil. SetOptions changes them later.
	Options *settings.Options
	// KernelMemcgNotification enables notifications of the kernel about memory: of crossed levels on cgroup v1, of memory
	// pressure on cgroup v2, which CgroupV2 says. PodCgroupRoot is the cgroup of all pods.
	KernelMemcgNotification bool
	CgroupV2                bool
	PodCgroupRoot           string

	// Memory, when set, is read between rounds, with each collection while memory is scarce, and when the summary fails.
	Memory memorywatch.Reader
	// RuntimeTimeout is the longest time that a request to the container runtime may take (runtimeRequestTimeout of the
	// KubeletConfiguration). A collection is cancelled after that time without an answer (RuntimeAnswered), or after two
	// minutes if that is longer.
	RuntimeTimeout time.Duration
	// Readmitted reports whether a pod has containers or allocated resources: then it ran here before the agent started.
	Readmitted func(*v1.Pod) bool
	// TerminationRequested reports whether a pod is being stopped. Without it only the pod's deletion timestamp counts.
	TerminationRequested func(types.UID) bool
	// TerminationDeadline returns when the grace period of such a pod ends, as a time of Clock; zero if that is unknown.
	// Without a deletion timestamp the pod has no other deadline, for example if its eviction began before the agent was
	// restarted. Optional.
	TerminationDeadline func(types.UID) time.Time
	// Requests returns the evictions that plugins request, for Snapshot.Requests; nil if there are no plugins. It is
	// called once for each snapshot, and in addition before each wait of a manager without thresholds and limits. It must
	// return at once, and what it has returned must not be modified. Changes should be followed by Wake.
	Requests func() []snapshot.Request
	// APIKiller evicts the pods that plugins request by another killer than the pod workers; nil where there is no API
	// server: then the pod workers do.
	APIKiller APIKiller
	// Fencer limits what victims may still use that the decision has a fence for; without it there are no fences.
	Fencer Fencer
	// Sinks receive decisions and results, in addition to those for events, log and metrics.
	Sinks []Sink
	// Recorded reports whether a sink will keep the round of this snapshot, which has no pods yet. Then the snapshot gets
	// all pods, also while no resource is scarce. nil if no sink keeps rounds. It is called by the goroutine that decides,
	// and must return at once.
	Recorded func(*snapshot.Snapshot) bool
	// Features are the feature gates that the manager uses.
	Features Features
}

// Features are feature gates of stock, as values.
type Features struct {
	// PodLevelResources: requests of the pod as a whole are used.
	PodLevelResources bool
	// TaintTolerationComparisonOperators: tolerations may compare numbers.
	TaintTolerationComparisonOperators bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	return Features{
		PodLevelResources:                  gates.Enabled(features.PodLevelResources),
		TaintTolerationComparisonOperators: gates.Enabled(features.TaintTolerationComparisonOperators),
	}
}

func (c *Config) validate() error {
	missing := func(name string, absent bool) error {
		if absent {
			return errors.New("eviction manager: " + name + " is required")
		}
		return nil
	}
	return errors.Join(
		missing("Collector", c.Collector == nil),
		missing("Kill", c.Kill == nil), missing("ActivePods", c.ActivePods == nil), missing("PodByUID", c.PodByUID == nil),
		missing("PodStopped", c.PodStopped == nil), missing("PodCleanedUp", c.PodCleanedUp == nil),
		missing("Reclaimer", c.Reclaimer == nil),
		missing("Recorder", c.Recorder == nil), missing("NodeRef", c.NodeRef == nil), missing("Clock", c.Clock == nil),
	)
}
