package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Instance is what one instance of a container and its preStop hook wrote into the notes.
type Instance struct {
	// ID is the UID of the pod, the name of the container, and when it was started.
	ID        string
	UID       string
	Container string
	// Starts are when the container wrote, Stops when its preStop hook did, to the second.
	Starts, Stops []time.Time
}

// Instances decodes notes as the containers wrote them: a word, the ID of an instance, a time.
func Instances(notes string) ([]Instance, error) {
	instances := map[string]*Instance{}
	for line := range strings.Lines(notes) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("note %q has %d words, want 3", line, len(fields))
		}
		seconds, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("note %q: time: %w", line, err)
		}
		parts := strings.Split(fields[1], "/")
		if len(parts) != 3 {
			return nil, fmt.Errorf("note %q: instance is %q, want pod/container/start", line, fields[1])
		}
		instance := instances[fields[1]]
		if instance == nil {
			instance = &Instance{ID: fields[1], UID: parts[0], Container: parts[1]}
			instances[instance.ID] = instance
		}
		at := time.Unix(seconds, 0)
		switch fields[0] {
		case "start":
			instance.Starts = append(instance.Starts, at)
		case "stop":
			instance.Stops = append(instance.Stops, at)
		default:
			return nil, fmt.Errorf("note %q: word is %q, want start or stop", line, fields[0])
		}
	}
	var all []Instance
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		all = append(all, *instances[id])
	}
	return all, nil
}

// JudgeInstances returns what is wrong with the instances: a hook that ran twice for one of them, and a container that
// was restarted although its pod is never restarted.
func JudgeInstances(instances []Instance, never func(uid string) bool, outages []Outage) []string {
	var wrong []string
	starts := map[string][]time.Time{}
	for _, instance := range instances {
		if n := len(instance.Stops); n > 1 && n > 1+interruptions(instance.Stops, outages) {
			wrong = append(wrong, fmt.Sprintf("the preStop hook of %s ran %d times: %v", instance.ID, n, instance.Stops))
		}
		if key := instance.UID + "/" + instance.Container; instance.Container != "side" && never(instance.UID) {
			starts[key] = append(starts[key], instance.Starts...)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(starts)) {
		at := starts[key]
		slices.SortFunc(at, time.Time.Compare)
		if n := len(at); n > 1 && n > 1+interruptions(at, runtimeOutages(outages)) {
			wrong = append(wrong, fmt.Sprintf("%s was started %d times, and the restart policy of its pod is Never: %v",
				key, n, at))
		}
	}
	return wrong
}

// runtimeOutages are those of containerd. If it cannot load a container in time when it is back, the state of that is
// unknown, and then it is started again whatever the policy (kuberuntime, computePodActions).
func runtimeOutages(outages []Outage) []Outage {
	return slices.DeleteFunc(slices.Clone(outages), func(outage Outage) bool { return !outage.Runtime })
}

// interruptions counts the outages that begin between the first of these times and the last. A kubelet that is started
// after such an outage cannot know that a hook was called.
func interruptions(times []time.Time, outages []Outage) int {
	count := 0
	for _, outage := range outages {
		// Notes have whole seconds.
		if from := outage.From.Truncate(time.Second); !from.Before(times[0]) && !from.After(times[len(times)-1]) {
			count++
		}
	}
	return count
}

// Repeated counts the instances whose hook ran more than once.
func Repeated(instances []Instance) int {
	count := 0
	for _, instance := range instances {
		if len(instance.Stops) > 1 {
			count++
		}
	}
	return count
}
