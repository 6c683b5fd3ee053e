package pressure

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// Domain is that of the annotation and the labels of the Node that the plugin reports.
	Domain = "pressure.plimsoll.dev"
	// SignalsAnnotation has one entry for each signal with a hard threshold, as JSON of at most 2 KiB.
	SignalsAnnotation = Domain + "/signals"

	annotationsField = "Annotations"
)

// entry is what the annotation has about a signal. Amounts are bytes, inodes or processes, by the signal.
type entry struct {
	Signal string       `json:"signal"`
	Level  policy.Level `json:"level"`
	// Available and Headroom are lower bounds, Headroom in per cent of the capacity. Headroom is negative while the
	// threshold is met. They and Threshold are empty while the signal cannot be observed.
	Available string `json:"available,omitempty"`
	Threshold string `json:"threshold,omitempty"`
	Headroom  string `json:"headroom,omitempty"`
	// GrowthPerSecond and TimeToThreshold are empty if the threshold is not met within half an hour, and while it is met.
	// TimeToThreshold is an upper bound.
	GrowthPerSecond string `json:"growthPerSecond,omitempty"`
	TimeToThreshold string `json:"timeToThreshold,omitempty"`
}

// entries returns what is reported, in the order of signals.
func (t *tracker) entries() (list []entry) {
	for _, sig := range snapshot.AllSignals() {
		if s := &t.signals[sig]; s.level.set {
			list = append(list, s.entry(sig))
		}
	}
	return list
}

func (s *tracked) entry(sig snapshot.Signal) entry {
	e := entry{Signal: sig.String(), Level: levelSteps[s.level.step]}
	if !s.headroom.set {
		return e
	}
	e.Threshold = resource.NewQuantity(s.threshold, sig.Format()).String()
	e.Available = rounded(s.leastAvailable(), sig.Format())
	e.Headroom = fmt.Sprintf("%d%%", -s.headroom.step*100/headroomSteps)
	if s.left.step > 0 && s.level.step != metStep {
		e.GrowthPerSecond = rounded(int64(max(1, min(s.growth, maxCapacity))), resource.BinarySI)
		e.TimeToThreshold = timeSteps[s.left.step-1].name
	}
	return e
}

// leastAvailable returns what is available at least. Steps end at the capacity, which the headroom of a threshold that
// is greater may be below.
func (s *tracked) leastAvailable() int64 {
	if s.headroom.step >= headroomSteps {
		return 0
	}
	return s.threshold - partOf(s.capacity, s.headroom.step)
}

// partOf returns a number of steps of the capacity, rounded up.
func partOf(capacity int64, steps int) int64 {
	product := min(max(1, capacity), maxCapacity) * int64(steps)
	part := product / headroomSteps
	if product%headroomSteps > 0 {
		part++
	}
	return part
}

// rounded returns an amount that is rounded down to Mi from 1Mi on, else to Ki from 1Ki on, if the format is binary. It
// is 0 if it is negative.
func rounded(amount int64, format resource.Format) string {
	amount = max(0, amount)
	if format == resource.BinarySI {
		for _, unit := range []int64{1 << 20, 1 << 10} {
			if amount >= unit {
				amount -= amount % unit
				break
			}
		}
	}
	return resource.NewQuantity(amount, format).String()
}

// labels returns the labels of the Node: for each resource the worst level of its signals.
func (t *tracker) labels() map[string]string {
	worst, labels := map[string]int{}, map[string]string{}
	for _, sig := range snapshot.AllSignals() {
		s := &t.signals[sig]
		if !s.level.set {
			continue
		}
		key := LabelOf(sig)
		worst[key] = max(worst[key], s.level.step)
		labels[key] = string(levelSteps[worst[key]])
	}
	return labels
}

// LabelOf returns the key of the Node label that has the level of a signal.
func LabelOf(sig snapshot.Signal) string {
	name, _, _ := strings.Cut(sig.String(), ".")
	if sig == snapshot.AllocatableMemoryAvailable {
		name, _, _ = strings.Cut(snapshot.MemoryAvailable.String(), ".")
	}
	return Domain + "/" + name
}

// contents returns the answer of the plugin; none without a signal.
func (t *tracker) contents(withLabels bool) ([]merge.Content, error) {
	list := t.entries()
	if len(list) == 0 {
		return nil, nil
	}
	signals, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", SignalsAnnotation, err)
	}
	node := merge.Content{Kind: merge.NodeKind}
	for _, field := range []struct {
		name  string
		value map[string]string
		is    bool
	}{
		{annotationsField, map[string]string{SignalsAnnotation: string(signals)}, true},
		{"Labels", t.labels(), withLabels},
	} {
		if !field.is {
			continue
		}
		value, err := json.Marshal(field.value)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", field.name, err)
		}
		node.Fields = append(node.Fields, merge.ReportField{Part: merge.Metadata, Name: field.name, Value: value})
	}
	return []merge.Content{node}, nil
}
