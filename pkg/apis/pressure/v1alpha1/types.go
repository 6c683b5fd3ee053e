package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NodePressureConfiguration is the content of /etc/plimsoll/pressure.yaml. By default evictions are those of the stock
// kubelet.
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
}

// MemoryConfiguration defines how memory is counted for thresholds. The summary API and metrics keep stock's values.
type MemoryConfiguration struct {
	// Available defines which memory counts as available. With WorkingSet, as in stock, inactive file pages do. With
	// Reclaimable half of the active file pages do too and dirty pages do not; while the kernel has difficulties to
	// reclaim memory it is the same as WorkingSet. Values: WorkingSet, Reclaimable. Default: WorkingSet.
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
	// continue to grow at the same rate. 0s does not look ahead. Range: 0s to 1h. Default: 5m.
	Settling *metav1.Duration `json:"settling,omitempty"`
	// Patience is how long to wait for an action in progress (a pod that is being stopped, a cleanup, a reclaim) before
	// another one is started. It is at least killTime. Range: 1s to 10m. Default: 30s.
	Patience *metav1.Duration `json:"patience,omitempty"`
	// LocalStorageLimits defines what happens to pods that exceed their own limits on local storage, if the
	// KubeletConfiguration has localStorageCapacityIsolation on: they are evicted, or an event and a metric report that
	// they would be evicted, or nothing happens. Values: Enforce, DryRun, Off. Default: Enforce.
	LocalStorageLimits LocalStorageLimits `json:"localStorageLimits,omitempty"`
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
	// Namespaces are the namespaces whose pods' annotations count: names, or patterns with * and ?.
	Namespaces []string `json:"namespaces,omitempty"`
	// MaxProtectedPods is the maximal number of pods on the node that may opt out. Those of higher priority, then older
	// ones, come first. Range: 0 to 1000. Default: 10.
	MaxProtectedPods *int32 `json:"maxProtectedPods,omitempty"`
	// MaxProtectedMemory is how much memory those pods may request in total. Range: 0 to 1Pi. Default: 4Gi.
	MaxProtectedMemory *resource.Quantity `json:"maxProtectedMemory,omitempty"`
	// MaxDelay is for how long a hard threshold spares pods that opted out, while other pods can release enough. Range: 0s
	// to 5m. Default: 30s.
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
}
