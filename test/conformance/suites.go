package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Selection is a part of one of the upstream suites.
type Selection struct {
	// Name selects it on the command line, and is the name of its files.
	Name string
	// Cluster is true for specs of the cluster suite, false for those of the node suite.
	Cluster bool
	// Focus and Skip are regular expressions over the names of specs. An empty Skip omits none.
	Focus string
	Skip  string
	// Without has the names of other selections whose specs this one omits.
	Without []string
	// Procs is how many specs run at the same time; those marked Serial run alone, after the others.
	Procs int
	// About describes the specs and how long they take.
	About string
}

const (
	// shortTime omits specs that disturb others, fail now and then upstream too, or take long.
	shortTime = `\[Serial\]|\[Flaky\]|\[Slow\]`
	// needsMore has features that need hardware, a runtime or a service that no node of the development cluster has.
	needsMore = `\[Flaky\]|\[Benchmark\]|GPU|Device Plugin|NPD|node-problem-detector|\[Feature:CriProxy\]`
)

// onlyByName are specs that are not about the life of a pod but have one of the words in their names: the network,
// garbage collection, gates that are disabled by default.
const onlyByName = `\[sig-network\]|GarbageCollect|\[Feature:OffByDefault\]|\[Feature:SCTPConnectivity\]`

// inMachineFirst are the specs about the life of pods that take the least time.
const inMachineFirst = `Probing container|Kubelet Cgroup Manager|MirrorPod|Terminate Pods|Pod SIGKILL|` +
	`Container Lifecycle Hook|Lifecycle [Ss]leep|blackbox test when|Deleted pods|InitContainer|Downward API should|` +
	`Kubelet when|Pods should|Containers should|Variable Expansion`

// inMachineNext are a spec each of eviction by memory, PIDs and disk, and those of what only a node with systemd,
// cgroup v2 and swap has. Of those about disks it is the one with two pods that write: one alone, as in
// LocalStorageEviction, does not write the 4 GiB within the 15 minutes of the spec where the machine is emulated.
const inMachineNext = `MemoryAllocatableEviction \[Slow\]|PriorityPidEvictionOrdering.*; baseline|` +
	`PriorityLocalStorageEvictionOrdering|OOMKiller|KubeletPSI|in use with systemd|GracefulNodeShutdown|` +
	`MemoryQoS \[Serial\]|Swap \[LinuxOnly\]|` +
	`Resize Container (decrease|resize pod via|burstable pods - 1 container.* no restart)`

// evictionSpecs put the node under pressure.
const evictionSpecs = `MemoryAllocatableEviction|LocalStorageEviction|LocalStorageSoftEviction|` +
	`LocalStorageSoftEvictionNotOverwriteTerminationGracePeriodSeconds|LocalStorageCapacityIsolationEviction|` +
	`PriorityMemoryEvictionOrdering|PriorityLocalStorageEvictionOrdering|PriorityPidEvictionOrdering|InodeEviction|` +
	`ImageGCNoEviction|ImageGCTerminatedPodsContainersCleanup|SystemNodeCriticalPod`

// admissionSpecs are about pods for which others are preempted.
const admissionSpecs = `\[sig-node\] CriticalPod`

// Selections are the parts that can be selected by name.
func Selections() []Selection {
	return []Selection{
		{
			Name: "nodeconformance", Focus: `\[NodeConformance\]`, Skip: shortTime, Procs: 6,
			About: "what every conforming node passes; half an hour",
		},
		{
			Name:  "machine",
			Focus: `\[NodeConformance\].*(` + inMachineFirst + `)|(` + inMachineFirst + `).*\[NodeConformance\]`,
			Skip:  shortTime + `|\[sig-network\]|\[sig-storage\]`, Procs: machineProcs,
			About: "of nodeconformance what runs first in a virtual machine (-machine): cgroups, resources, probes, restarts, " +
				"termination, static pods",
		},
		{
			Name: "machine-next", Focus: inMachineNext, Skip: `\[Flaky\]`, Procs: machineProcs,
			About: "what runs next there: a spec each of eviction by memory, PIDs and disk; systemd, swap, memory QoS, " +
				"pressure stall information, OOMKilled, resize",
		},
		{
			Name:  "lifecycle",
			Focus: `Pods|MirrorPod|static pod|Restart|Containers Lifecycle|Deleted pods|unknown pods|Pod termination`,
			Skip:  needsMore + "|" + evictionSpecs + "|" + onlyByName, Procs: 6,
			About: "the life of pods, with restarts of kubelet and runtime; an hour",
		},
		{
			Name: "eviction", Focus: evictionSpecs, Skip: `\[Flaky\]`, Procs: 1,
			About: "memory, disk and PID pressure; some hours",
		},
		{
			Name: "admission", Focus: admissionSpecs, Skip: `\[Flaky\]`, Procs: 1,
			About: "critical pods that get room by preemption; ten minutes",
		},
		{
			Name: "rest", Focus: `\[sig-node\]`, Skip: needsMore + `|\[Disruptive\]|` + evictionSpecs,
			Without: []string{"nodeconformance", "lifecycle"},
			Procs:   6, About: "all else of the node that is neither disruptive nor eviction; some hours",
		},
		{
			Name: "cluster", Cluster: true, Focus: `\[sig-node\].*\[Conformance\]|\[sig-storage\].*\[Conformance\]`,
			Procs: 4, About: "what every conforming cluster passes, of nodes and storage, on a whole cluster; an hour",
		},
	}
}

// Chooser returns a function that is true for the names of specs of the selection. The error names an invalid regular
// expression.
func (s Selection) Chooser() (func(name string) bool, error) {
	focus, err := regexp.Compile(s.Focus)
	if err != nil {
		return nil, fmt.Errorf("suite %s: focus: %w", s.Name, err)
	}
	skip, err := regexp.Compile(s.Skip)
	if err != nil {
		return nil, fmt.Errorf("suite %s: skip: %w", s.Name, err)
	}
	var others []func(string) bool
	for _, name := range s.Without {
		other, err := SelectionByName(name)
		if err != nil {
			return nil, fmt.Errorf("suite %s: without: %w", s.Name, err)
		}
		chosen, err := other.Chooser()
		if err != nil {
			return nil, err
		}
		others = append(others, chosen)
	}
	return func(name string) bool {
		if !focus.MatchString(name) || s.Skip != "" && skip.MatchString(name) {
			return false
		}
		return !slices.ContainsFunc(others, func(chosen func(string) bool) bool { return chosen(name) })
	}, nil
}

// SelectionByName returns a selection by its name.
func SelectionByName(name string) (Selection, error) {
	all := Selections()
	i := slices.IndexFunc(all, func(s Selection) bool { return s.Name == name })
	if i < 0 {
		names := make([]string, len(all))
		for i, s := range all {
			names[i] = s.Name
		}
		return Selection{}, fmt.Errorf("suite %q is not known, there are %s", name, strings.Join(names, ", "))
	}
	return all[i], nil
}
