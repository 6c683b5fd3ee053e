package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NodePressureConfiguration is the content of /etc/plimsoll/pressure.yaml. By default evictions are those of the stock
// kubelet, except that a pod that grows too fast to be stopped in time is fenced.
type NodePressureConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// MonitoringPeriod is the time between two observations of the node while nothing changes. Memory is read more often
	// when it is scarce, whatever is set here. Range: 1s to 5m. Default: 10s.
	MonitoringPeriod *metav1.Duration `json:"monitoringPeriod,omitempty"`
	// Memory defines how memory is counted.
	Memory MemoryConfiguration `json:"memory,omitempty"`
	// Eviction has the parameters of evictions.
	Eviction EvictionConfiguration `json:"eviction,omitempty"`
	// Admission applies to pods that are bound to a node under pressure.
	Admission AdmissionConfiguration `json:"admission,omitempty"`
	// DryRun lists thresholds that only report what they would do: nothing is evicted or reclaimed for them, and no node
	// condition is set.
	DryRun []ThresholdReference `json:"dryRun,omitempty"`
	// Protection defines which pods may influence whether and when they are evicted.
	Protection ProtectionConfiguration `json:"protection,omitempty"`
	// Plugins has the settings of plugins. By default no plugin is enabled: each is refused when it registers.
	Plugins PluginsConfiguration `json:"plugins,omitempty"`
	// DecisionLog defines where decisions about pressure are kept, and how many. A change takes effect at the next start.
	DecisionLog DecisionLogConfiguration `json:"decisionLog,omitempty"`
}

// DecisionLogConfiguration defines where decisions about pressure are kept, and how many.
type DecisionLogConfiguration struct {
	// Memory is how much memory the records may occupy. The oldest are dropped. Range: 1Mi to 256Mi. Default: 8Mi.
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Directory is the absolute path of a directory for files with the records, as compressed JSON lines; it should have
	// no other files. Without it there are no files. It must not overlap with the root directory or with directories of
	// plugins.
	Directory string `json:"directory,omitempty"`
	// MaxSize is the greatest size of all files together. Range: 8Mi to 64Gi. Default: 256Mi.
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
	// MaxAge is for how long records are kept in files, as far as maxSize allows. A file is removed when it is older than
	// that by an eighth. Range: 1h to 8760h. Default: 168h.
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// MemoryConfiguration defines how memory is counted for thresholds. The summary API and metrics keep stock's values.
type MemoryConfiguration struct {
	// Available defines which memory counts as available. With WorkingSet, as in stock, inactive file pages do. With
	// Reclaimable half of the active file pages do too and dirty pages do not; while the kernel has difficulties
	// reclaiming memory it is the same as WorkingSet. Values: WorkingSet, Reclaimable. Default: WorkingSet.
	Available AvailableMemory `json:"available,omitempty"`
	// CountSwap counts free swap as available, and swapped memory of pods as used by them. Default: false.
	CountSwap bool `json:"countSwap,omitempty"`
	// CountHugepages counts memory that is reserved for huge pages as not available. Default: false.
	CountHugepages bool `json:"countHugepages,omitempty"`
	// WorstGrowthPerSecond is the most by which memory usage may grow in a second. It determines, with the available
	// memory, how often memory is read. Range: 16Mi to 1Ti. Default: 2Gi.
	WorstGrowthPerSecond *resource.Quantity `json:"worstGrowthPerSecond,omitempty"`
}

// EvictionConfiguration has the parameters of evictions.
type EvictionConfiguration struct {
	// KillTime is the time from the decision until an eviction without grace period has released memory. Growth in that
	// time is added to what has to be evicted. Range: 100ms to 1m. Default: 3s.
	KillTime *metav1.Duration `json:"killTime,omitempty"`
	// Settling is for how long an eviction should keep the node clear of the threshold, if the pods above their requests
	// continue to grow at the same rate. 0s disables the forecast. Range: 0s to 1h. Default: 5m.
	Settling *metav1.Duration `json:"settling,omitempty"`
	// Patience is how long to wait for an action in progress (a pod that is being stopped, a cleanup, a reclaim) before
	// another one is started. It is at least killTime. Range: 1s to 10m. Default: 30s.
	Patience *metav1.Duration `json:"patience,omitempty"`
	// LocalStorageLimits defines what happens to pods that exceed their own limits on local storage, if the
	// KubeletConfiguration has localStorageCapacityIsolation on: they are evicted, or an event and a metric report that
	// they would be evicted, or nothing happens. Values: Enforce, DryRun, Off. Default: Enforce.
	LocalStorageLimits LocalStorageLimits `json:"localStorageLimits,omitempty"`
	// Fence defines what happens to a pod that is evicted for a hard threshold of memory or of PIDs and would use up what
	// is left before it is stopped. With Auto its cgroup gets a limit near its present usage at once, and the pod is
	// killed by its cgroup. With Off it is stopped as any other, as in stock. Values: Auto, Off. Default: Auto.
	Fence Fencing `json:"fence,omitempty"`
}

// AdmissionConfiguration applies to pods that are bound to a node under pressure.
type AdmissionConfiguration struct {
	// WaitForRoom is how long a pod waits for the end of pressure before it is rejected, if its controller would create it
	// again for this node (a DaemonSet, or a required node name). It waits no longer than
	// evictionPressureTransitionPeriod. 0s rejects at once. Range: 0s to 10m. Default: 1m.
	WaitForRoom *metav1.Duration `json:"waitForRoom,omitempty"`
}

// ThresholdReference names thresholds of the KubeletConfiguration. Thresholds that are derived from it are included:
// from memory.available that of allocatable memory, from nodefs and imagefs that of the container file system.
type ThresholdReference struct {
	// Signal is the signal of the threshold. Values: memory.available, allocatableMemory.available, nodefs.available,
	// nodefs.inodesFree, imagefs.available, imagefs.inodesFree, containerfs.available, containerfs.inodesFree,
	// pid.available.
	Signal Signal `json:"signal"`
	// Kind is the kind of threshold; both when absent.
	// Values: Hard, Soft.
	Kind ThresholdKind `json:"kind,omitempty"`
}

// ProtectionConfiguration limits the effect of annotations of pods: pressure.plimsoll.dev/eviction-preference and
// pressure.plimsoll.dev/opt-out.
type ProtectionConfiguration struct {
	// Namespaces are the namespaces in which annotations have an effect: names, or patterns with * and ?.
	Namespaces []string `json:"namespaces,omitempty"`
	// MaxProtectedPods is the maximal number of pods on the node that may opt out. Those of higher priority, then older
	// ones, come first. Range: 0 to 1000. Default: 10.
	MaxProtectedPods *int32 `json:"maxProtectedPods,omitempty"`
	// MaxProtectedMemory is how much memory those pods may request in total. Range: 0 to 1Pi. Default: 4Gi.
	MaxProtectedMemory *resource.Quantity `json:"maxProtectedMemory,omitempty"`
	// MaxDelay is for how long a hard threshold passes over pods that opted out, while other pods can release enough.
	// Range: 0s to 5m. Default: 30s.
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
}

// PluginsConfiguration has the settings of plugins that register with this kubelet.
type PluginsConfiguration struct {
	// Directories are directories with sockets of plugins, beside plugins_registry in the root directory of this kubelet,
	// which is always one of them: at most 8 absolute paths of at most 100 bytes, none inside another, and none that
	// overlaps with the root directory. A change takes effect at the next start.
	Directories []string `json:"directories,omitempty"`
	// Eviction has the settings of eviction plugins.
	Eviction EvictionPluginsConfiguration `json:"eviction,omitempty"`
	// Reporter has the settings of reporter plugins.
	Reporter ReporterPluginsConfiguration `json:"reporter,omitempty"`
}

// EvictionPluginsConfiguration has the settings of eviction plugins. Lists of plugins have the form of Katalyst: a
// name, * for all, or -name for none of this name, which counts more than the other two.
type EvictionPluginsConfiguration struct {
	// Remote lists the plugins that may register through a socket.
	Remote []string `json:"remote,omitempty"`
	// InTree lists the plugins in this kubelet that run.
	InTree []string `json:"inTree,omitempty"`
	// DryRun lists the plugins whose requests are only reported and counted: nothing is evicted for them, and their
	// conditions are not set.
	DryRun []string `json:"dryRun,omitempty"`
	// Period is the time between two rounds in which all plugins are called. Range: 1s to 1m. Default: 5s.
	Period *metav1.Duration `json:"period,omitempty"`
	// CallTimeout is the longest time of one call of a plugin. Range: 100ms to 10s. Default: 5s.
	CallTimeout *metav1.Duration `json:"callTimeout,omitempty"`
	// ConditionTransitionPeriod is how long a condition of a plugin stays True after the plugin last reported it.
	// Range: 0s to 1h. Default: 5m.
	ConditionTransitionPeriod *metav1.Duration `json:"conditionTransitionPeriod,omitempty"`
	// Burst is how many pods are newly requested to be evicted in a round at most; -1 is any number, 0 is not allowed.
	// Range: -1 to 100. Default: 3.
	Burst *int32 `json:"burst,omitempty"`
	// MaxInFlight is how many pods may be requested to be evicted, or be terminating for such a request, at a time.
	// Range: 1 to 100. Default: 10.
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`
	// MaxGracePeriod caps the grace periods that plugins ask for, in whole seconds. Range: 1s to 1h. Default: 10m.
	MaxGracePeriod *metav1.Duration `json:"maxGracePeriod,omitempty"`
	// SkipAnnotationKeys are keys of annotations: no plugin is shown a pod that has one of them, nor may request it to be
	// evicted. Each of the three lists has at most 64 entries.
	SkipAnnotationKeys []string `json:"skipAnnotationKeys,omitempty"`
	// SkipLabelKeys are keys of labels with the same effect.
	SkipLabelKeys []string `json:"skipLabelKeys,omitempty"`
	// SkipOwnerKinds are kinds of controllers, like DaemonSet, whose pods are excluded in the same way.
	SkipOwnerKinds []string `json:"skipOwnerKinds,omitempty"`
	// QoSLevel defines which QoS level a pod has that does not have the annotation katalyst.kubewharf.io/qos_level.
	QoSLevel PluginQoSLevel `json:"qosLevel,omitempty"`
	// ForcedKiller is how the pods of forced requests are evicted. PodWorker: this kubelet stops the pod, also while the
	// API server is away. EvictionAPI: the API server is asked for an eviction, which disruption budgets may forbid.
	// DeleteAPI: the pod is deleted at the API server. The last two need an API server.
	// Values: PodWorker, EvictionAPI, DeleteAPI. Default: PodWorker.
	ForcedKiller Killer `json:"forcedKiller,omitempty"`
	// SoftKiller is how the pods of soft requests are evicted.
	// Values: PodWorker, EvictionAPI, DeleteAPI. Default: EvictionAPI, PodWorker without an API server.
	SoftKiller Killer `json:"softKiller,omitempty"`
	// KillerByQoSLevel is how pods with this QoS level are evicted, whatever the kind of request. At most 64 entries; not
	// system_cores, whose pods plugins may not request.
	// Values: PodWorker, EvictionAPI, DeleteAPI.
	KillerByQoSLevel map[string]Killer `json:"killerByQoSLevel,omitempty"`
	// Authentication is how it is verified that a plugin may register. With SocketOwner its process must run as root.
	// With Token the plugin returns a token of a ServiceAccount, which must be authorized to register; that needs an API
	// server. With None the permissions of the directory are all there is.
	// Values: SocketOwner, Token, None. Default: SocketOwner.
	Authentication PluginAuthentication `json:"authentication,omitempty"`
	// Taints has the settings of the taints that conditions of plugins ask for.
	Taints PluginTaints `json:"taints,omitempty"`
	// SoftNoticeDirectory is the absolute path of a directory with a file for each pod that soft requests name and that
	// has the annotation katalyst.kubewharf.io/pod_soft_evict_notify: "true". Soft requests do not evict such a pod: it
	// gets an event and the file, without a directory the event only. The directory must not overlap with the root
	// directory or with directories of plugins.
	SoftNoticeDirectory string `json:"softNoticeDirectory,omitempty"`
	// Settings are those of the plugins in this kubelet.
	Settings PluginSettings `json:"settings,omitempty"`
}

// PluginQoSLevel defines the QoS level of pods by a label or a priority class, for clusters without Katalyst. The label
// counts more. Levels are Katalyst's: reclaimed_cores, shared_cores, dedicated_cores, system_cores.
type PluginQoSLevel struct {
	// Label is the key of a label.
	Label string `json:"label,omitempty"`
	// LabelValues are QoS levels by values of the label, at most 64.
	// Values: reclaimed_cores, shared_cores, dedicated_cores, system_cores.
	LabelValues map[string]QoSLevel `json:"labelValues,omitempty"`
	// PriorityClasses are QoS levels by names of priority classes, at most 64.
	// Values: reclaimed_cores, shared_cores, dedicated_cores, system_cores.
	PriorityClasses map[string]QoSLevel `json:"priorityClasses,omitempty"`
}

// PluginTaints has the settings of the taints that conditions of plugins ask for.
type PluginTaints struct {
	// Effects are the effects that taints may have; others are ignored, all of them if the list is empty.
	// Values: NoSchedule, PreferNoSchedule, NoExecute. Default: NoSchedule, PreferNoSchedule.
	Effects []TaintEffect `json:"effects,omitzero"`
	// Kubeconfig is the absolute path of a kubeconfig file with an identity that may change the taints of this Node: a
	// kubelet may not do so itself, so that its own kubeconfig is rejected. Without the field there are no taints, only
	// conditions. It needs an API server.
	Kubeconfig string `json:"kubeconfig,omitempty"`
}

// PluginSettings are the settings of the plugins in this kubelet, by the name of the plugin.
type PluginSettings struct {
	// MemoryGrowth has the settings of memory-growth, which requests a pod to be evicted before memory meets a hard
	// threshold.
	MemoryGrowth MemoryGrowthSettings `json:"memory-growth,omitempty"`
	// ReclaimedResourcePressure has the settings of reclaimed-resource-pressure-eviction-plugin, which requests a
	// reclaimed pod when these pods request much more than there is of reclaimed resources.
	ReclaimedResourcePressure ReclaimedResourceSettings `json:"reclaimed-resource-pressure-eviction-plugin,omitempty"`
	// RSSOveruse has the settings of rss-overuse-eviction-plugin, which requests pods whose resident set is greater than
	// the memory that they request.
	RSSOveruse RSSOveruseSettings `json:"rss-overuse-eviction-plugin,omitempty"`
	// RootfsPressure has the settings of rootfs-pressure-eviction-plugin, which requests the pod whose writable layers use
	// most when little is free on their file system.
	RootfsPressure RootfsPressureSettings `json:"rootfs-pressure-eviction-plugin,omitempty"`
	// RootfsOveruse has the settings of rootfs-overuse-eviction-plugin, which requests pods whose writable layers use more
	// than a threshold.
	RootfsOveruse RootfsOveruseSettings `json:"rootfs-overuse-eviction-plugin,omitempty"`
	// CPUPressure has the settings of cpu-pressure, which requests reclaimed pods when CPUs are short.
	CPUPressure CPUPressureSettings `json:"cpu-pressure,omitempty"`
	// NUMAMemoryPressure has the settings of numa-memory-pressure-eviction-plugin, which requests pods of a NUMA node
	// whose memory is short.
	NUMAMemoryPressure NUMAMemoryPressureSettings `json:"numa-memory-pressure-eviction-plugin,omitempty"`
	// SystemMemoryPressure has the settings of system-memory-pressure-eviction-plugin, which requests pods when memory of
	// the whole node is short.
	SystemMemoryPressure SystemMemoryPressureSettings `json:"system-memory-pressure-eviction-plugin,omitempty"`
}

// RootfsPressureSettings are the settings of the plugin rootfs-pressure-eviction-plugin. An amount is a quantity, like
// 10Gi, or a percentage of the capacity of the file system, like 10%; without one it is not considered.
type RootfsPressureSettings struct {
	// Free is how much must be free on the file system with the writable layers.
	Free FileSystemAmount `json:"free,omitempty"`
	// InodesFree is the same for inodes.
	InodesFree FileSystemAmount `json:"inodesFree,omitempty"`
	// PodUsed is how much a pod must use to be requested for free.
	PodUsed FileSystemAmount `json:"podUsed,omitempty"`
	// PodInodesUsed is the same for inodesFree.
	PodInodesUsed FileSystemAmount `json:"podInodesUsed,omitempty"`
}

// RootfsOveruseSettings are the settings of the plugin rootfs-overuse-eviction-plugin. An amount is a quantity, like
// 10Gi, or a percentage of the capacity of the file system, like 10%; without one it is not considered.
type RootfsOveruseSettings struct {
	// SharedUsed is how much the writable layers of a shared pod may use.
	SharedUsed FileSystemAmount `json:"sharedUsed,omitempty"`
	// SharedInodesUsed is the same for inodes.
	SharedInodesUsed FileSystemAmount `json:"sharedInodesUsed,omitempty"`
	// ReclaimedUsed is how much the writable layers of a reclaimed pod may use.
	ReclaimedUsed FileSystemAmount `json:"reclaimedUsed,omitempty"`
	// ReclaimedInodesUsed is the same for inodes.
	ReclaimedInodesUsed FileSystemAmount `json:"reclaimedInodesUsed,omitempty"`
}

// CPUPressureSettings are the settings of the plugin cpu-pressure.
type CPUPressureSettings struct {
	// StallPercent is the share of time in which tasks of the node may wait for CPUs (some avg10) while CPUs are busy, in
	// percent. Range: 1 to 100. Default: 60.
	StallPercent *int32 `json:"stallPercent,omitempty"`
	// BusyPercent is the utilization from which on the CPUs of the node count as busy, in percent.
	// Range: 0 to 100. Default: 90.
	BusyPercent *int32 `json:"busyPercent,omitempty"`
	// ThrottledPercent is the share of its periods in which the cgroup of all pods may be throttled, in percent.
	// Range: 1 to 100. Default: 50.
	ThrottledPercent *int32 `json:"throttledPercent,omitempty"`
	// Window is how long one of the two must be reached before a pod is requested. Range: 5s to 1h. Default: 1m.
	Window *metav1.Duration `json:"window,omitempty"`
	// PodPercent is the share of the CPUs of the node that a pod must use to be requested, in percent.
	// Range: 0 to 100. Default: 1.
	PodPercent *int32 `json:"podPercent,omitempty"`
}

// NUMAMemoryPressureSettings are the settings of the plugin numa-memory-pressure-eviction-plugin.
type NUMAMemoryPressureSettings struct {
	// CriticalGap plus the watermark min is the amount of free memory below which pods are requested at once.
	// Range: 0 to 1Ti. Default: 1Gi.
	CriticalGap *resource.Quantity `json:"criticalGap,omitempty"`
	// LowGap plus the watermark low is the amount of free memory below which a round counts as low.
	// Range: 0 to 1Ti. Default: 256Mi.
	LowGap *resource.Quantity `json:"lowGap,omitempty"`
	// MinInactiveFile is the amount of inactive file pages below which free memory counts as low earlier: when less than
	// minInactiveFile is free, or less than 1Gi above the threshold of lowGap if that is more. Range: 0 to 1Ti. Default:
	// 4Gi.
	MinInactiveFile *resource.Quantity `json:"minInactiveFile,omitempty"`
	// ReclaimedRounds is the number of low rounds, minus the others, above which reclaimed pods are requested.
	// Range: 0 to 1000. Default: 6.
	ReclaimedRounds *int32 `json:"reclaimedRounds,omitempty"`
	// AllRounds is the number of such rounds from which on all pods are requested. Range: 1 to 1000. Default: 12.
	AllRounds *int32 `json:"allRounds,omitempty"`
	// PodPermille is the share of the memory of the NUMA node that a pod must have there to be requested, in thousandths.
	// Range: 0 to 1000. Default: 1.
	PodPermille *int32 `json:"podPermille,omitempty"`
}

// SystemMemoryPressureSettings are the settings of the plugin system-memory-pressure-eviction-plugin.
type SystemMemoryPressureSettings struct {
	// KswapdPagesPerSecond is how many pages kswapd may reclaim in a second. Range: 1 to 100000000. Default: 2000.
	KswapdPagesPerSecond *int32 `json:"kswapdPagesPerSecond,omitempty"`
	// KswapdFor is how long it must do so before reclaimed pods are requested. Range: 1s to 1h. Default: 2m.
	KswapdFor *metav1.Duration `json:"kswapdFor,omitempty"`
	// NodeStallPercent is the share of time in which tasks of the node may be stalled on memory (some avg10), in percent.
	// Range: 1 to 100. Default: 15.
	NodeStallPercent *int32 `json:"nodeStallPercent,omitempty"`
	// PodStallPercent is the same for the mean of the pods, at least three. It is not considered with cgroup v1.
	// Range: 0 to 100. Default: 4.
	PodStallPercent *int32 `json:"podStallPercent,omitempty"`
	// ReclaimedAfter is how long both must be reached before reclaimed pods are requested. Range: 0s to 1h. Default: 15s.
	ReclaimedAfter *metav1.Duration `json:"reclaimedAfter,omitempty"`
	// AllAfter is how long both must be reached before all pods are requested, which is not before reclaimed ones are.
	// Range: 0s to 1h. Default: 45s.
	AllAfter *metav1.Duration `json:"allAfter,omitempty"`
	// CoolDown is how long no other pod is requested after one was. Range: 0s to 1h. Default: 35s.
	CoolDown *metav1.Duration `json:"coolDown,omitempty"`
}

// ReclaimedResourceSettings are the settings of the plugin reclaimed-resource-pressure-eviction-plugin.
type ReclaimedResourceSettings struct {
	// RequestedPercent is how much of the allocatable reclaimed CPUs, or of the reclaimed memory, the reclaimed pods may
	// request together, in percent. Range: 1 to 100000. Default: 500.
	RequestedPercent *int32 `json:"requestedPercent,omitempty"`
	// MetFor is how long they must request more before a pod is evicted. Range: 0s to 1h. Default: 0s.
	MetFor *metav1.Duration `json:"metFor,omitempty"`
	// GracePeriod is the grace period of the eviction, in whole seconds. Range: 1s to 10m. Default: 1m.
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
}

// RSSOveruseSettings are the settings of the plugin rss-overuse-eviction-plugin.
type RSSOveruseSettings struct {
	// ResidentPercent is the limit of a pod's resident set, in percent of the memory that the pod requests. A pod
	// overrides it by rss_overuse_threshold in its annotation katalyst.kubewharf.io/memory_enhancement.
	// Range: 1 to 100000. Default: 105.
	ResidentPercent *int32 `json:"residentPercent,omitempty"`
}

// MemoryGrowthSettings are the settings of the plugin memory-growth.
type MemoryGrowthSettings struct {
	// Horizon is within which time memory has to meet a hard threshold, at its present growth, for a pod to be requested.
	// Range: 10s to 10m. Default: 2m.
	Horizon *metav1.Duration `json:"horizon,omitempty"`
}

// ReporterPluginsConfiguration has the settings of reporter plugins, and of the objects that what they report is
// published in. Lists of plugins have the same form as those of eviction plugins. Each list has at most 64 entries.
type ReporterPluginsConfiguration struct {
	// Remote lists the plugins that may register through a socket.
	Remote []string `json:"remote,omitempty"`
	// InTree lists the plugins in this kubelet that run: kubelet-reporter-plugin, pressure, system-reporter-plugin.
	InTree []string `json:"inTree,omitempty"`
	// Publish lists the objects of this node that what plugins report is written to: its CustomNodeResource
	// (node.katalyst.kubewharf.io/v1alpha1), its Node. Without an entry nothing is written. Both need an API server.
	// Values: CustomNodeResource, Node.
	Publish []ReportedKind `json:"publish,omitempty"`
	// Fields lists the fields that are left out, of both objects, each with a minus sign before its path:
	// -status.topologyZone.
	Fields []string `json:"fields,omitempty"`
	// Period is the time between two rounds in which all plugins are polled. Range: 1s to 5m. Default: 5s.
	Period *metav1.Duration `json:"period,omitempty"`
	// CallTimeout is the longest time of one poll of a plugin. Range: 100ms to 30s. Default: 5s.
	CallTimeout *metav1.Duration `json:"callTimeout,omitempty"`
	// StopGracePeriod is how long the last answer of a plugin stays in force after the plugin has stopped, or while it
	// does not respond. Range: 0s to 1h. Default: 5m.
	StopGracePeriod *metav1.Duration `json:"stopGracePeriod,omitempty"`
	// Sustained is the time between two writes of an object that changes all the time; five writes may come at once
	// before. Range: 1s to 5m. Default: 10s.
	Sustained *metav1.Duration `json:"sustained,omitempty"`
	// Labels are labels that the CustomNodeResource is created with. None may be below kubernetes.io or k8s.io.
	Labels map[string]string `json:"labels,omitempty"`
	// NodePrefixes are domains, like example.com. Labels, annotations and extended resources of the Node are published
	// when one of the domains, or one below it, is before the slash of their key. None may be kubernetes.io or k8s.io, or
	// below one of them.
	NodePrefixes []string `json:"nodePrefixes,omitempty"`
	// Settings are those of the plugins in this kubelet.
	Settings ReporterPluginSettings `json:"settings,omitempty"`
}

// ReporterPluginSettings are the settings of the reporter plugins in this kubelet, by the name of the plugin.
type ReporterPluginSettings struct {
	// SystemReporter has the settings of system-reporter-plugin, which reports properties of the machine.
	SystemReporter SystemReporterSettings `json:"system-reporter-plugin,omitempty"`
	// KubeletReporter has the settings of kubelet-reporter-plugin, which reports the topology of the machine and what of
	// it pods have.
	KubeletReporter KubeletReporterSettings `json:"kubelet-reporter-plugin,omitempty"`
	// Pressure has the settings of pressure, which reports how near each eviction signal is to its threshold.
	Pressure PressureReporterSettings `json:"pressure,omitempty"`
}

// SystemReporterSettings are the settings of the plugin system-reporter-plugin.
type SystemReporterSettings struct {
	// CPUFlags adds the property cpu_flags. Default: false.
	CPUFlags bool `json:"cpuFlags,omitempty"`
}

// KubeletReporterSettings are the settings of the plugin kubelet-reporter-plugin.
type KubeletReporterSettings struct {
	// OnlyNUMABound leaves out the allocations of pods that are not bound to NUMA nodes. Default: false.
	OnlyNUMABound bool `json:"onlyNUMABound,omitempty"`
}

// PressureReporterSettings are the settings of the plugin pressure.
type PressureReporterSettings struct {
	// NodeLabels adds the labels pressure.plimsoll.dev/memory, and likewise pid, nodefs, imagefs and containerfs, to the
	// Node, which must be in publish. Default: false.
	NodeLabels bool `json:"nodeLabels,omitempty"`
}
