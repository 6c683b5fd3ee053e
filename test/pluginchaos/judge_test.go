package pluginchaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// wrongKill is a kill for which there was no reason.
type wrongKill struct{ pod, why string }

func (w wrongKill) Error() string { return fmt.Sprintf("wrong eviction of %s: %s", w.pod, w.why) }

// judge returns the kills that were wrong, and the number of the others by kind of pod and the plugin that caused them,
// which is empty for the node. named returns the honest plugin that has named a pod.
//
// Because of memory, the node evicts the hog. It also shortens the grace periods of pods that are being evicted for
// plugins, before it evicts any other pod. Kills may be recorded in another order than that of their decisions.
func judge(kills []kill, named func(pod string) string) (seen map[string]int, wrong []wrongKill) {
	seen = map[string]int{}
	longest := map[string]int64{}
	for _, k := range kills {
		if by := pluginOf(k); by != "" {
			longest[k.pod] = max(longest[k.pod], k.grace)
		}
	}
	for _, k := range kills {
		by := pluginOf(k)
		kind, rest, _ := strings.Cut(k.pod, "-")
		i, _, _ := strings.Cut(rest, "-")
		allowed := map[string][]string{
			"honest": {named(k.pod)}, "bait": {"lying-" + i, stolen[i]}, "hog": {""},
		}
		grace, requested := longest[k.pod]
		switch {
		case kind == "hog" && by == "":
		case by == "" && requested && k.grace <= grace:
			kind = "hastened " + kind
		case by == "" || !slices.Contains(allowed[kind], by):
			wrong = append(wrong, wrongKill{k.pod, fmt.Sprintf("named by %q, grace period %d s, %q", named(k.pod), k.grace,
				k.message)})
		case k.grace < 1 || k.grace > maxGraceSeconds:
			wrong = append(wrong, wrongKill{k.pod, fmt.Sprintf("grace period of %d s", k.grace)})
		}
		seen[kind+" "+by]++
	}
	return seen, wrong
}

// pluginOf returns the plugin for which a pod was killed, the empty string if it was killed for the node.
func pluginOf(k kill) string {
	if m := byPlugin.FindStringSubmatch(k.message); m != nil {
		return m[1]
	}
	return ""
}

func TestJudge(t *testing.T) {
	const memory = "The node was low on resource: memory. "
	by := func(plugin string) string { return "Eviction requested by plugin " + plugin + " (scope memory)" }
	for name, test := range map[string]struct {
		kills []kill
		wrong []string
	}{
		"hog":                     {kills: []kill{{pod: "hog-1", message: memory, grace: 1}}},
		"hog for a plugin":        {[]kill{{pod: "hog-1", message: by("lying-0"), grace: 1}}, []string{"hog-1"}},
		"bait":                    {kills: []kill{{pod: "bait-0-1", message: by("lying-0"), grace: 9}}},
		"bait of another plugin":  {[]kill{{pod: "bait-0-1", message: by("lying-1"), grace: 9}}, []string{"bait-0-1"}},
		"bait, long grace":        {[]kill{{pod: "bait-0-1", message: by("lying-0"), grace: 601}}, []string{"bait-0-1"}},
		"bait for the node":       {[]kill{{pod: "bait-0-1", message: memory, grace: 1}}, []string{"bait-0-1"}},
		"critical pod":            {[]kill{{pod: "critical-0", message: memory, grace: 1}}, []string{"critical-0"}},
		"named pod":               {kills: []kill{{pod: "honest-0-1", message: by("honest-0"), grace: 9}}},
		"named by another plugin": {[]kill{{pod: "honest-0-1", message: by("honest-1"), grace: 9}}, []string{"honest-0-1"}},
		"named pod for the node":  {[]kill{{pod: "honest-0-1", message: memory, grace: 1}}, []string{"honest-0-1"}},
		"bystander for the node":  {[]kill{{pod: "bystander-1", message: memory, grace: 1}}, []string{"bystander-1"}},
		"hastened for the node": {kills: []kill{
			{pod: "bait-0-1", message: by("lying-0"), grace: 9}, {pod: "bait-0-1", message: memory, grace: 1}}},
		"hastened, recorded first": {kills: []kill{
			{pod: "bait-0-1", message: memory, grace: 1}, {pod: "bait-0-1", message: by("lying-0"), grace: 9}}},
		"more time for the node": {[]kill{
			{pod: "bait-0-1", message: by("lying-0"), grace: 1}, {pod: "bait-0-1", message: memory, grace: 9}},
			[]string{"bait-0-1"}},
		"hastened, wrong plugin": {[]kill{
			{pod: "bait-0-1", message: by("lying-1"), grace: 9}, {pod: "bait-0-1", message: memory, grace: 1}},
			[]string{"bait-0-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, wrong := judge(test.kills, func(pod string) string {
				if pod == "honest-0-1" {
					return honestName(0)
				}
				return ""
			})
			var got []string
			for _, w := range wrong {
				got = append(got, w.pod)
			}
			if !slices.Equal(got, test.wrong) {
				t.Errorf("wrong kills %v, want those of %v", wrong, test.wrong)
			}
		})
	}
}

// memoryRounds keeps, for each pod that the node itself evicted, what the manager knew in that round, except for the
// hogs. It is a sink.
type memoryRounds struct {
	mu   sync.Mutex
	list map[string]string
}

func (*memoryRounds) Name() string { return "memory rounds" }

func (m *memoryRounds) Round(_ context.Context, r *eviction.Round) {
	for i := range r.Decision.Victims {
		v := &r.Decision.Victims[i]
		if v.Cause.Kind != policy.PluginRequest && !strings.HasPrefix(v.Pod.Name, hogPrefix) {
			m.mu.Lock()
			m.list[v.Pod.Name] = describe(r)
			m.mu.Unlock()
		}
	}
}

func (*memoryRounds) Result(context.Context, *eviction.Result) {}

func (m *memoryRounds) round(pod string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list[pod]
}

// describe returns what a round knew about memory and the hog. Durations are those before the round.
func describe(r *eviction.Round) string {
	s := r.Snapshot
	read := s.Signals[snapshot.MemoryAvailable].At
	text := fmt.Sprintf("trigger %s, memory read %v, last release %v, needs %+v", r.Trigger, s.WallTime.Sub(read),
		s.Taken.Sub(s.LastRelease), r.Decision.Needs)
	for i := range s.InFlight {
		f := &s.InFlight[i]
		text += fmt.Sprintf("; %s %v since %v, expected %d", f.UID, f.State, s.Taken.Sub(f.Changed), f.Expected.Memory)
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; strings.HasPrefix(p.Name, hogPrefix) {
			amount, known := p.MemoryAmount()
			text += fmt.Sprintf("; %s uses %d, known %v", p.Name, amount, known)
		}
	}
	return text
}
