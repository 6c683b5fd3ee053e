package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// recoded is a state that was written and read again, which must equal the original.
func recoded(t interface{ Fatalf(string, ...any) }, s State) State {
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("%v", err)
	}
	decoded, err := DecodeState(data)
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if !reflect.DeepEqual(s, decoded) {
		everything := cmp.Exporter(func(reflect.Type) bool { return true })
		t.Fatalf("a state that was written and read differs (-original +read):\n%s", cmp.Diff(s, decoded, everything))
	}
	return decoded
}

// TestStateIsReadable shows what an encoded state looks like.
func TestStateIsReadable(t *testing.T) {
	rules := rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), time.Minute))
	w := newWorld(t, rules, spec{name: "hog", memory: gi})
	w.available(snapshot.MemoryAvailable, 500*mi).after(time.Second)
	data, err := json.MarshalIndent(w.state, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "number": 1,
  "enforced": {
    "thresholds": [
      {
        "signal": "memory.available",
        "soft": true,
        "status": "Met",
        "lastKnown": "Met",
        "updated": "2026-01-01T12:00:01Z"
      }
    ],
    "conditions": {
      "MemoryPressure": {
        "true": true,
        "lastTransition": "2026-01-01T12:00:01Z",
        "lastMet": "2026-01-01T12:00:01Z"
      }
    },
    "signals": {
      "memory.available": {
        "taken": "2026-01-01T12:00:01Z",
        "firstSeen": "2026-01-01T12:00:01Z",
        "newest": "2026-01-01T12:00:01Z"
      }
    },
    "memorySamples": [
      {
        "taken": "2026-01-01T12:00:01Z",
        "system": {
          "known": true,
          "usageBytes": 32761708544
        },
        "pods": [
          {
            "uid": "hog",
            "usageBytes": 1073741824
          }
        ]
      }
    ]
  }
}`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}

func TestStatesThatAreRefused(t *testing.T) {
	many := strings.Repeat(`{},`, snapshot.MaxPods) + `{}`
	samples := func(text string) string { return `{"enforced":{"memorySamples":[` + text + `]}}` }
	thresholds := func(text string) string { return `{"enforced":{"thresholds":[` + text + `]}}` }
	for name, test := range map[string]struct{ text, want string }{
		"pods":             {samples(`{"pods":[` + many + `]}`), "enforced.memorySamples[0].pods: more than 4096"},
		"more pods":        {samples(`{},{"pods":[` + many + `]}`), "enforced.memorySamples[1].pods: more than 4096"},
		"samples":          {samples(`{},{},{},{},{}`), "memorySamples must have at most 4"},
		"a missing sample": {samples(`null`), "memorySamples must have"},
		"order of pods":    {samples(`{"pods":[{"uid":"b"},{"uid":"a"}]}`), "memorySamples[0].pods is not in the order"},
		"field":            {samples(`{"podz":[]}`), `unknown field "podz"`},
		"long":             {samples(`{"pods":[{"uid":"` + strings.Repeat("x", 1<<10+1) + `"}]}`), "pods[0].uid: a string"},
		"thresholds":       {thresholds(strings.Repeat(`{},`, 20) + `{}`), "enforced.thresholds: more than 20"},
		"signal":           {thresholds(`{"signal":"swap"}`), `unknown signal "swap"`},
		"no signal":        {thresholds(`{"status":"Met"}`), "enforced: thresholds[0].signal is missing"},
		"status":           {thresholds(`{"status":"good"}`), `unknown status "good"`},
		"duration": {
			thresholds(`{"signal":"pid.available","notMetForNanoseconds":-1}`), "thresholds[0] has a negative duration",
		},
		"condition": {`{"enforced":{"conditions":{"Ready":{}}}}`, `unknown name "Ready"`},
		"group":     {`{"dryRun":{"needs":{"cpu":{}}}}`, `unknown name "cpu"`},
		"time":      {`{"dryRun":{"signals":{"pid.available":{"taken":"now"}}}}`, "pid.available: parsing time"},
		"dry run":   {`{"dryRun":{"thresholds":[{"status":"Met"}]}}`, "dryRun: thresholds[0].signal is missing"},
		"nothing":   {``, "state: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeState([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// FuzzDecodeState: whatever is read, nothing panics; what is accepted is bounded, is written again without loss, and
// can be decided from.
func FuzzDecodeState(f *testing.F) {
	for _, s := range exampleStates() {
		data, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"enforced":{"memorySamples":[{"taken":"0001-01-01T00:00:00Z","pods":[{"ageNanoseconds":-1}]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeState(data)
		if err != nil {
			return
		}
		for _, sample := range s.Enforced.MemorySamples {
			if sample != nil && len(sample.Pods) > snapshot.MaxPods {
				t.Fatalf("%d pods", len(sample.Pods))
			}
		}
		recoded(t, s)
		w := exampleWorld()
		Decide(w.snapshot(), w.rules, s)
	})
}

// exampleWorld has thresholds and limits, some of them in dry run.
func exampleWorld() *world {
	rules := rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"),
		soft(threshold(snapshot.MemoryAvailable, "2Gi"), time.Minute),
		dry(reclaiming(threshold(snapshot.NodeFsAvailable, "10Gi"), "1Gi")), threshold(snapshot.PIDAvailable, "1k"))
	rules.LocalStorageLimits, rules.LocalStorageDryRun = true, true
	w := newWorld(nil, rules, spec{name: "a", memory: 3 * gi, disk: gi}, spec{name: "b", memory: gi, request: 2 * gi})
	w.available(snapshot.MemoryAvailable, 3*gi/2).available(snapshot.NodeFsAvailable, 5*gi)
	w.signals[snapshot.PIDAvailable] = snapshot.Observation{
		Available: 10, Capacity: 4000, At: wallTime(w.now.Add(-time.Second)),
	}
	return w
}

func exampleStates() []State {
	w := exampleWorld()
	states := []State{{}}
	for i := range 6 {
		if i == 4 {
			w.missing(snapshot.PIDAvailable).available(snapshot.MemoryAvailable, 500*mi)
			w.flight = []snapshot.InFlight{{UID: types.UID("a"), Started: w.now, Deadline: w.now.Add(time.Minute)}}
		}
		w.after(10 * time.Second)
		states = append(states, w.state)
	}
	return states
}
