package v1alpha1

import (
	"math/bits"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// AvailableMemory is a way to count available memory.
type AvailableMemory string

// The ways to count available memory. MemoryConfiguration describes them.
const (
	WorkingSet  AvailableMemory = "WorkingSet"
	Reclaimable AvailableMemory = "Reclaimable"
)

var availableMemories = []AvailableMemory{WorkingSet, Reclaimable}

// LocalStorageLimits defines what happens to pods that exceed their own limits on local storage.
type LocalStorageLimits string

// Such pods are evicted, or an event and a metric report that they would be evicted, or nothing happens.
const (
	LimitsEnforced LocalStorageLimits = "Enforce"
	LimitsDryRun   LocalStorageLimits = "DryRun"
	LimitsOff      LocalStorageLimits = "Off"
)

var localStorageLimits = []LocalStorageLimits{LimitsEnforced, LimitsDryRun, LimitsOff}

// Fencing defines what happens to victims that grow too fast to be stopped in time.
type Fencing string

// Such victims get a limit and are killed by their cgroup, or they are stopped as any other.
const (
	FenceAuto Fencing = "Auto"
	FenceOff  Fencing = "Off"
)

var fencings = []Fencing{FenceAuto, FenceOff}

// ThresholdKind distinguishes hard thresholds from soft ones. The empty kind stands for both.
type ThresholdKind string

// The kinds of thresholds.
const (
	Hard ThresholdKind = "Hard"
	Soft ThresholdKind = "Soft"
)

var thresholdKinds = []ThresholdKind{Hard, Soft}

// Signal is the signal of a threshold, with its name in the KubeletConfiguration.
type Signal string

// Signals returns the signals of thresholds, in the order in which errors list them.
func Signals() []Signal {
	return []Signal{
		"memory.available", "allocatableMemory.available",
		"nodefs.available", "nodefs.inodesFree",
		"imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree",
		"pid.available",
	}
}

// PluginAuthentication is how it is verified that a plugin may register.
type PluginAuthentication string

// The process that listens on the socket of a plugin must run as root, or the plugin must have a token of a
// ServiceAccount that is authorized to register, or nothing is verified.
const (
	SocketOwner         PluginAuthentication = "SocketOwner"
	TokenAuthentication PluginAuthentication = "Token"
	NoAuthentication    PluginAuthentication = "None"
)

var pluginAuthentications = []PluginAuthentication{SocketOwner, TokenAuthentication, NoAuthentication}

// Killer is how pods that plugins request are evicted.
type Killer string

// The pod workers of this kubelet stop the pod, or the API server is asked to evict it, or to delete it.
const (
	PodWorker   Killer = "PodWorker"
	EvictionAPI Killer = "EvictionAPI"
	DeleteAPI   Killer = "DeleteAPI"
)

var killers = []Killer{PodWorker, EvictionAPI, DeleteAPI}

// QoSLevel is a QoS level of Katalyst.
type QoSLevel string

// The QoS levels: pods that run on what others leave, pods that share CPUs, pods with CPUs of their own, and pods that
// the node needs.
const (
	ReclaimedCores QoSLevel = "reclaimed_cores"
	SharedCores    QoSLevel = "shared_cores"
	DedicatedCores QoSLevel = "dedicated_cores"
	SystemCores    QoSLevel = "system_cores"
)

var qosLevels = []QoSLevel{ReclaimedCores, SharedCores, DedicatedCores, SystemCores}

// FileSystemAmount is an amount of bytes or inodes: a quantity, like 10Gi, or a percentage of the capacity of the file
// system, like 10%. Empty is none.
type FileSystemAmount string

// maxQuantity is far above the capacity of any file system.
const maxQuantity = 1 << 60

// parse returns the quantity, or the percentage in thousandths, and whether it is valid and not empty.
func (a FileSystemAmount) parse() (quantity, milliPercent int64, valid bool) {
	text, relative := strings.CutSuffix(string(a), "%")
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0, 0, false
	}
	if !relative {
		return q.Value(), 0, q.CmpInt64(maxQuantity) <= 0
	}
	if strings.Trim(text, "0123456789.") != "" || q.CmpInt64(100) > 0 {
		return 0, 0, false
	}
	return 0, q.MilliValue(), true
}

// Relative reports whether the amount is a percentage.
func (a FileSystemAmount) Relative() bool { return strings.HasSuffix(string(a), "%") }

// Of returns the amount for a file system of a capacity, rounded down, and false if there is none.
func (a FileSystemAmount) Of(capacity int64) (int64, bool) {
	quantity, milliPercent, valid := a.parse()
	if !a.Relative() || !valid {
		return quantity, valid
	}
	hi, lo := bits.Mul64(uint64(max(0, capacity)), uint64(milliPercent))
	amount, _ := bits.Div64(hi, lo, 100_000)
	return int64(amount), true
}

// TaintEffect is an effect of a taint, with its name in the API.
type TaintEffect string

// The effects of taints.
const (
	NoSchedule       TaintEffect = "NoSchedule"
	PreferNoSchedule TaintEffect = "PreferNoSchedule"
	NoExecute        TaintEffect = "NoExecute"
)

var taintEffects = []TaintEffect{NoSchedule, PreferNoSchedule, NoExecute}

// The names of the eviction plugins in this kubelet. Those that end with eviction-plugin are Katalyst's.
const (
	CPUPressurePlugin               = "cpu-pressure"
	MemoryGrowthPlugin              = "memory-growth"
	NUMAMemoryPressurePlugin        = "numa-memory-pressure-eviction-plugin"
	ReclaimedResourcePressurePlugin = "reclaimed-resource-pressure-eviction-plugin"
	RootfsOverusePlugin             = "rootfs-overuse-eviction-plugin"
	RootfsPressurePlugin            = "rootfs-pressure-eviction-plugin"
	RSSOverusePlugin                = "rss-overuse-eviction-plugin"
	SystemMemoryPressurePlugin      = "system-memory-pressure-eviction-plugin"
)

// InTreePlugins returns the names of the eviction plugins in this kubelet, sorted. No other plugin may have them.
func InTreePlugins() []string {
	return []string{
		CPUPressurePlugin, MemoryGrowthPlugin, NUMAMemoryPressurePlugin, ReclaimedResourcePressurePlugin,
		RootfsOverusePlugin, RootfsPressurePlugin, RSSOverusePlugin, SystemMemoryPressurePlugin,
	}
}

// ReportedKind is an object that what reporter plugins report is written to.
type ReportedKind string

// The CustomNodeResource with the name of the node, and the Node itself.
const (
	ReportedCustomNodeResource ReportedKind = "CustomNodeResource"
	ReportedNode               ReportedKind = "Node"
)

var reportedKinds = []ReportedKind{ReportedCustomNodeResource, ReportedNode}

// The names of the reporter plugins in this kubelet. The first two are Katalyst's.
const (
	SystemReporterPlugin   = "system-reporter-plugin"
	KubeletReporterPlugin  = "kubelet-reporter-plugin"
	PressureReporterPlugin = "pressure"
)

// ConditionsReporterPlugin is the name of the reporter plugin in this kubelet that reports the conditions of eviction
// plugins. It is not configured, and no other reporter plugin may have the name.
const ConditionsReporterPlugin = "eviction-plugin-conditions"

// InTreeReporterPlugins returns the names of the reporter plugins in this kubelet that are configured, sorted. No other
// reporter plugin may have them.
func InTreeReporterPlugins() []string {
	return []string{KubeletReporterPlugin, PressureReporterPlugin, SystemReporterPlugin}
}

// ReportedFields returns the paths of the fields that reporter plugins can report, of the CustomNodeResource or the
// Node, sorted. A test of package merge compares them with its own.
func ReportedFields() []string {
	return []string{
		"metadata.annotations", "metadata.labels",
		"spec.nodeResourceProperties", "spec.taints",
		"status.allocatable", "status.capacity", "status.conditions", "status.nodeMetricStatus", "status.resources",
		"status.topologyPolicy", "status.topologyZone",
	}
}
