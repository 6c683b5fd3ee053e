package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// NodePressureConfiguration is the file /etc/plimsoll/pressure.yaml. Without configuration evictions are those of the
// stock kubelet.
type NodePressureConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// MonitoringPeriod is the time between two looks at the node while nothing happens. Memory is watched more often when
	// it is scarce, whatever is set here. Range: 1s to 5m. Default: 10s.
	MonitoringPeriod *metav1.Duration `json:"monitoringPeriod,omitempty"`
	// Memory says how memory is counted.
	Memory MemoryConfiguration `json:"memory,omitempty"`
	// Eviction holds what evictions reckon with.
	Eviction EvictionConfiguration `json:"eviction,omitempty"`
	// Admission is about pods that want to enter a node under pressure.
	Admission AdmissionConfiguration `json:"admission,omitempty"`
	// DryRun lists thresholds that only say what they would do: nothing is evicted or reclaimed for them, and no node
	// condition is set.
	DryRun []ThresholdReference `json:"dryRun,omitempty"`
	// Protection says which pods may influence whether and when they are evicted.
	Protection ProtectionConfiguration `json:"protection,omitempty"`
}

// MemoryConfiguration says how memory is counted, for thresholds only: the summary API and metrics keep stock's
// figures.
type MemoryConfiguration struct {
	// Available says what counts as available. WorkingSet is stock's: inactive file pages do. Reclaimable: half of the
	// active file pages do too, dirty pages do not, and while the kernel has trouble to reclaim memory it is as with
	// WorkingSet. Values: WorkingSet, Reclaimable. Default: WorkingSet.
	Available AvailableMemory `json:"available,omitempty"`
	// CountSwap counts free swap as available, and what pods have in swap as used by them.
	// Default: false.
	CountSwap bool `json:"countSwap,omitempty"`
	// CountHugepages takes memory that is set aside for huge pages out of what is available to others.
	// Default: false.
	CountHugepages bool `json:"countHugepages,omitempty"`
	// WorstGrowthPerSecond is how much memory may come to be used in a second. How often memory is looked at follows from
	// it and from what is left. Range: 16Mi to 1Ti. Default: 2Gi.
	WorstGrowthPerSecond *resource.Quantity `json:"worstGrowthPerSecond,omitempty"`
}

// EvictionConfiguration holds what evictions reckon with.
type EvictionConfiguration struct {
	// KillTime is how long it takes from the decision until an eviction without grace gives memory back. What grows
	// meanwhile is evicted for as well. Range: 100ms to 1m. Default: 3s.
	KillTime *metav1.Duration `json:"killTime,omitempty"`
	// Settling is for how long an eviction should keep the node clear of the threshold, if the pods above their requests
	// grow on as they do. 0s takes no look ahead. Range: 0s to 1h. Default: 5m.
	Settling *metav1.Duration `json:"settling,omitempty"`
	// Patience is how long to wait for what is under way (a pod that is being stopped, a clean-up, a reclaim) before more
	// is done. It is at least killTime. Range: 1s to 10m. Default: 30s.
	Patience *metav1.Duration `json:"patience,omitempty"`
	// LocalStorageLimits says what becomes of pods that break limits of their own on local storage, where the
	// KubeletConfiguration has localStorageCapacityIsolation on: they are evicted, it is said that they would be, or
	// nothing. Values: Enforce, DryRun, Off. Default: Enforce.
	LocalStorageLimits LocalStorageLimits `json:"localStorageLimits,omitempty"`
}

// AdmissionConfiguration is about pods that want to enter a node under pressure.
type AdmissionConfiguration struct {
	// WaitForRoom is how long a pod that would come straight back to this node (of a DaemonSet, or with a required node
	// name) waits for the end of the pressure before it is rejected. It waits no longer than
	// evictionPressureTransitionPeriod. 0s rejects at once. Range: 0s to 10m. Default: 1m.
	WaitForRoom *metav1.Duration `json:"waitForRoom,omitempty"`
}

// ThresholdReference names thresholds of the KubeletConfiguration. What is derived from a threshold goes with it: from
// memory.available that of allocatable memory, from nodefs and imagefs that of the container file system.
type ThresholdReference struct {
	// Signal is what the threshold is about.
	// Values: memory.available, allocatableMemory.available, nodefs.available, nodefs.inodesFree, imagefs.available,
	// imagefs.inodesFree, containerfs.available, containerfs.inodesFree, pid.available.
	Signal Signal `json:"signal"`
	// Kind is the kind of threshold; both when absent.
	// Values: Hard, Soft.
	Kind ThresholdKind `json:"kind,omitempty"`
}

// ProtectionConfiguration bounds what the annotations of pods may do: pressure.plimsoll.dev/eviction-preference and
// pressure.plimsoll.dev/opt-out.
type ProtectionConfiguration struct {
	// Namespaces are the namespaces whose pods' annotations count: names, or patterns with * and ?.
	Namespaces []string `json:"namespaces,omitempty"`
	// MaxProtectedPods is how many pods of the node may opt out at most. Those of higher priority, then older ones, come
	// first. Range: 0 to 1000. Default: 10.
	MaxProtectedPods *int32 `json:"maxProtectedPods,omitempty"`
	// MaxProtectedMemory is how much memory those pods may have requested all together.
	// Range: 0 to 1Pi. Default: 4Gi.
	MaxProtectedMemory *resource.Quantity `json:"maxProtectedMemory,omitempty"`
	// MaxDelay is for how long a hard threshold spares pods that opted out, while others can give what it needs.
	// Range: 0s to 5m. Default: 30s.
	MaxDelay *metav1.Duration `json:"maxDelay,omitempty"`
}
