package v1alpha1

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
