package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Selection is a part of one of upstream's suites.
type Selection struct {
	// Name is how it is chosen on the command line, and the name of its files.
	Name string
	// Cluster says that the specs are of the suite for clusters instead of that
	// for nodes.
	Cluster bool
	// Focus and Skip are regular expressions over the names of specs. An empty
	// Skip leaves none out.
	Focus string
	Skip  string
	// Without names other selections whose specs this one leaves out.
	Without []string
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

// admissionSpecs are about pods that are admitted at the expense of others.
const admissionSpecs = `\[sig-node\] CriticalPod`

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
		{
			Name: "admission", Focus: admissionSpecs, Skip: `\[Flaky\]`, Procs: 1,
			About: "critical pods that get room by preemption; ten minutes",
		},
		{
			Name: "rest", Focus: `\[sig-node\]`, Skip: needsMore + `|\[Disruptive\]|` + evictionSpecs, Without: []string{"nodeconformance", "lifecycle"},
			Procs: 6, About: "all else of the node that is neither disruptive nor eviction; some hours",
		},
		{
			Name: "cluster", Cluster: true, Focus: `\[sig-node\].*\[Conformance\]|\[sig-storage\].*\[Conformance\]`,
			Procs: 4, About: "what every conforming cluster passes, of nodes and storage, on a whole cluster; an hour",
		},
	}
}

// Chooser returns the rule by which the selection has a spec, given its name.
// The error names the regular expression that is none.
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
