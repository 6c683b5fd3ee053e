package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Selection is a part of the upstream node suite.
type Selection struct {
	// Name is how it is chosen on the command line, and the name of its files.
	Name string
	// Focus and Skip are regular expressions over the names of specs.
	Focus string
	Skip  string
	// Procs is how many specs run at the same time; those marked Serial run
	// alone all the same, after the others.
	Procs int
	// About says what it is for and how long it takes.
	About string
}

const (
	// shortTime leaves out what disturbs others, fails now and then upstream too, or takes long.
	shortTime = `\[Serial\]|\[Flaky\]|\[Slow\]`
	// needsMore names features that need hardware, a runtime or a service that
	// no node of the development cluster has.
	needsMore = `\[Flaky\]|\[Benchmark\]|GPU|Device Plugin|NPD|node-problem-detector|\[Feature:CriProxy\]`
)

// onlyByName are specs that are about something else than the life of a pod
// but have one of the words in their names: the network, garbage collection,
// gates that are off by default.
const onlyByName = `\[sig-network\]|GarbageCollect|\[Feature:OffByDefault\]|\[Feature:SCTPConnectivity\]`

// evictionSpecs are the suites that put the node under pressure.
const evictionSpecs = `MemoryAllocatableEviction|LocalStorageEviction|LocalStorageSoftEviction|` +
	`LocalStorageSoftEvictionNotOverwriteTerminationGracePeriodSeconds|LocalStorageCapacityIsolationEviction|` +
	`PriorityMemoryEvictionOrdering|PriorityLocalStorageEvictionOrdering|PriorityPidEvictionOrdering|InodeEviction|` +
	`ImageGCNoEviction|ImageGCTerminatedPodsContainersCleanup|SystemNodeCriticalPod`

// Selections are the parts that can be chosen by name.
func Selections() []Selection {
	return []Selection{
		{Name: "nodeconformance", Focus: `\[NodeConformance\]`, Skip: shortTime, Procs: 6, About: "what every conforming node passes; half an hour"},
		{
			Name:  "lifecycle",
			Focus: `Pods|MirrorPod|static pod|Restart|Containers Lifecycle|Deleted pods|unknown pods|Pod termination`,
			Skip:  needsMore + "|" + evictionSpecs + "|" + onlyByName, Procs: 6, About: "the life of pods, with restarts of kubelet and runtime; an hour",
		},
		{Name: "eviction", Focus: evictionSpecs, Skip: `\[Flaky\]`, Procs: 1, About: "memory, disk and PID pressure; some hours"},
		{Name: "rest", Focus: `\[sig-node\]`, Skip: needsMore + `|\[Disruptive\]|` + evictionSpecs, Procs: 6, About: "all else that is neither disruptive nor eviction; some hours"},
	}
}

// SelectionByName finds a part by its name.
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
