package eviction

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Summary is where figures come from. Get may take long and should end with its context; it is never called twice at a
// time. Each answer of the container runtime to a request that Get makes should be reported by RuntimeAnswered, or a
// summary that takes longer than 15 s counts as one that hangs.
type Summary interface {
	Get(ctx context.Context, updateStats bool) (*statsapi.Summary, error)
}

// Reclaimer frees what the node itself can give, before pods have to go: containers that have ended and images that
// nobody uses. It frees what is asked for and no more, and tells what that was. It may take long; it may be called for
// two devices, or for bytes and inodes of one, at a time. Package reclaim has one.
type Reclaimer interface {
	Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error)
}

// DiskInfo says how file systems are spread over devices.
type DiskInfo interface {
	HasDedicatedImageFs(ctx context.Context) (bool, error)
	HasDedicatedContainerFs(ctx context.Context) (bool, error)
}

// MemoryReader reads memory straight from the kernel, without a stats summary. Package snapshot/collect has one.
type MemoryReader interface {
	// Counters is cheap: it is called many times a second when memory is scarce.
	Counters(how snapshot.Counting) (snapshot.MemoryCounters, error)
	// ReadMemory reads the node, all pods together, and each pod. What could not be read is unknown.
	ReadMemory(how snapshot.Counting) snapshot.MemoryReading
}

// Config is what a Manager needs. The fields of the first block are required.
type Config struct {
	Summary  Summary
	DiskInfo DiskInfo
	// Kill is called a second time for a pod whose grace period becomes shorter.
	Kill       podkill.Func
	ActivePods func() []*v1.Pod
	// PodByUID returns the pod that ActivePods lists with that UID, and false when it lists none any more.
	PodByUID func(types.UID) (*v1.Pod, bool)
	// PodStopped is true when no container of a pod runs any more, nor will.
	PodStopped func(types.UID) bool
	// PodCleanedUp is true when the cgroups and volumes of a stopped pod are gone.
	PodCleanedUp func(types.UID) bool
	Reclaimer    Reclaimer
	Recorder     record.EventRecorder
	NodeRef      *v1.ObjectReference
	Clock        clock.WithTicker

	// Thresholds comes from ParseThresholds.
	Thresholds               []policy.Threshold
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds caps the grace of soft evictions, negative leaves pods their own.
	MaxPodGracePeriodSeconds int64
	// Options are the settings to begin with; DefaultOptions when nil. SetOptions changes them later.
	Options *Options
	// LocalStorageCapacityIsolation: limits on local storage are enforced.
	LocalStorageCapacityIsolation bool
	// KernelMemcgNotification asks for notifications of the kernel on cgroup v1, PodCgroupRoot is the cgroup of all pods.
	KernelMemcgNotification bool
	PodCgroupRoot           string

	// Memory, when set, is watched between looks, is read beside the summary when memory is scarce, and stands in for the
	// summary when that fails.
	Memory MemoryReader
	// Parts and PodFigures, which are set both or neither, are asked in the place of a summary that fails.
	Parts      Parts
	PodFigures func(ctx context.Context) ([]statsapi.PodStats, error)
	// RuntimeTimeout is how long a request to the container runtime may take (runtimeRequestTimeout of the
	// KubeletConfiguration). A collection of figures is given up after that time without an answer (RuntimeAnswered), or
	// after two minutes if that is longer.
	RuntimeTimeout time.Duration
	// PodImages returns for each pod that uses images how many bytes of them no other pod uses. It is asked where the
	// image device carries nothing else of pods. It may take long; without it pods are told apart there by priority only.
	PodImages func(ctx context.Context) (map[types.UID]snapshot.Bytes, error)
	// Readmitted tells whether a pod has containers or allocated resources, so that it does not enter but is here already.
	Readmitted func(*v1.Pod) bool
	// TerminationRequested tells whether a pod is being stopped. Without it only the pod's deletion timestamp counts.
	TerminationRequested func(types.UID) bool
	// Sinks receive decisions and results, beside those that write events, log and metrics.
	Sinks []Sink
	// Features are the gates that matter here; nil reads them when the manager is made.
	Features *Features
}

// Features are feature gates of stock, as values.
type Features struct {
	// PodLevelResources: requests of the pod as a whole count.
	PodLevelResources bool
	// SeparateDiskGC (gate KubeletSeparateDiskGC): a container file system apart from images is supported.
	SeparateDiskGC bool
	// TaintTolerationComparisonOperators: tolerations may compare numbers.
	TaintTolerationComparisonOperators bool
}

// featuresNow reads the feature gates.
func featuresNow() *Features {
	gates := utilfeature.DefaultFeatureGate
	return &Features{
		PodLevelResources:                  gates.Enabled(features.PodLevelResources),
		SeparateDiskGC:                     gates.Enabled(features.KubeletSeparateDiskGC),
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
		missing("Summary", c.Summary == nil), missing("DiskInfo", c.DiskInfo == nil),
		missing("PodFigures beside Parts", (c.PodFigures == nil) != (c.Parts == nil)),
		missing("Kill", c.Kill == nil), missing("ActivePods", c.ActivePods == nil), missing("PodByUID", c.PodByUID == nil),
		missing("PodStopped", c.PodStopped == nil), missing("PodCleanedUp", c.PodCleanedUp == nil),
		missing("Reclaimer", c.Reclaimer == nil),
		missing("Recorder", c.Recorder == nil), missing("NodeRef", c.NodeRef == nil), missing("Clock", c.Clock == nil),
	)
}

// rules joins the configuration with the options that hold at present.
func (c *Config) rules(o *Options) policy.Rules {
	return policy.Rules{
		Thresholds:               o.mark(c.Thresholds),
		PressureTransitionPeriod: c.PressureTransitionPeriod,
		MaxPodGracePeriodSeconds: c.MaxPodGracePeriodSeconds,
		LocalStorageLimits:       c.LocalStorageCapacityIsolation && o.LocalStorageLimits != v1alpha1.LimitsOff,
		LocalStorageDryRun:       o.LocalStorageLimits == v1alpha1.LimitsDryRun,
		Timing:                   o.timing(),
		Protection:               o.Protection,
	}
}
