package v1alpha1

// AvailableMemory is a way to count available memory.
type AvailableMemory string

// The ways to count available memory. MemoryConfiguration describes them.
const (
	WorkingSet  AvailableMemory = "WorkingSet"
	Reclaimable AvailableMemory = "Reclaimable"
)

var availableMemories = []AvailableMemory{WorkingSet, Reclaimable}

// LocalStorageLimits is what becomes of pods that exceed limits of their own on local storage.
type LocalStorageLimits string

// What may become of such pods: they are evicted, an event and a metric report what would be evicted, or nothing.
const (
	LimitsEnforced LocalStorageLimits = "Enforce"
	LimitsDryRun   LocalStorageLimits = "DryRun"
	LimitsOff      LocalStorageLimits = "Off"
)

var localStorageLimits = []LocalStorageLimits{LimitsEnforced, LimitsDryRun, LimitsOff}

// ThresholdKind distinguishes hard thresholds from soft ones. The empty kind stands for both.
type ThresholdKind string

// The kinds of thresholds.
const (
	Hard ThresholdKind = "Hard"
	Soft ThresholdKind = "Soft"
)

var thresholdKinds = []ThresholdKind{Hard, Soft}

// Signal is what a threshold is about, by the name that the KubeletConfiguration uses.
type Signal string

// Signals are the signals that a threshold may be about, in the order in which errors list them.
func Signals() []Signal {
	return []Signal{
		"memory.available", "allocatableMemory.available",
		"nodefs.available", "nodefs.inodesFree",
		"imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree",
		"pid.available",
	}
}
