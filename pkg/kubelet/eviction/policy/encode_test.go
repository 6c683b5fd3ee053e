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
	const sample = `{"taken":"2026-01-01T00:00:00Z"}`
	pods := func(first, second string) string {
		return `{"taken":"2026-01-01T00:00:00Z","pods":[{"uid":"` + first + `","usageBytes":1},{"uid":"` + second +
			`","usageBytes":1}]}`
	}
	met := func(fields string) string {
		return `{"signal":"pid.available","status":"Met","lastKnown":"Met","updated":"2026-01-01T00:00:00Z",` + fields + `}`
	}
	for name, test := range map[string]struct{ text, want string }{
		"pods":      {samples(`{"pods":[` + many + `]}`), "enforced.memorySamples[0].pods: more than 4096"},
		"more pods": {samples(`{},{"pods":[` + many + `]}`), "enforced.memorySamples[1].pods: more than 4096"},
		"samples": {
			samples(strings.Repeat(sample+`,`, 5) + sample), "enforced.memorySamples: 6 samples: must be at most 5",
		},
		"a missing sample": {samples(`null`), "enforced.memorySamples[0]: null is not allowed"},
		"order of pods":    {samples(pods("b", "a")), `enforced: memorySamples[0].pods[1].uid: "a": must be after "b"`},
		"field":            {samples(`{"podz":[]}`), `enforced.memorySamples[0]: unknown field "podz": must be one of taken`},
		"long":             {samples(`{"pods":[{"uid":"` + strings.Repeat("x", 1<<10+1) + `"}]}`), "pods[0].uid: a string"},
		"thresholds":       {thresholds(strings.Repeat(`{},`, 20) + `{}`), "enforced.thresholds: more than 20"},
		"signal": {
			thresholds(`{"signal":"swap"}`), `enforced.thresholds[0].signal: unknown signal "swap": must be one of none, mem`,
		},
		"no signal": {thresholds(`{"status":"Met","lastKnown":"Met"}`), "enforced.thresholds[0].signal: is missing"},
		"status": {
			thresholds(`{"status":"good"}`), `thresholds[0].status: unknown status "good": must be one of NeverObserved`,
		},
		"duration": {
			thresholds(met(`"notMetForNanoseconds":-1`)), "enforced: thresholds[0].notMetForNanoseconds: -1: must be from 0",
		},
		"condition": {
			`{"enforced":{"conditions":{"Ready":{}}}}`, `enforced.conditions: unknown name "Ready": must be one of Disk`,
		},
		"elapsed": {
			thresholds(met(`"gracePeriodElapsedNanoseconds":1152921504606846977`)), "thresholds[0].gracePeriodElapsedNano",
		},
		"no signal that is": {
			thresholds(strings.Replace(met(`"active":true`), "pid.available", "none", 1)), "[0].signal: none: must be a signal",
		},
		"updated": {
			thresholds(strings.Replace(met(`"active":true`), "2026", "1900", 1)), "enforced: thresholds[0].updated: 1900",
		},
		"a pod twice":   {samples(pods("a", "a")), `memorySamples[0].pods[1].uid: "a": must be after "a"`},
		"a field twice": {`{"number":1,"number":1}`, "number: must be there once"},
		"a name twice":  {`{"enforced":{"needs":{"pids":{},"pids":{}}}}`, "enforced.needs.pids: must be there once"},
		"case":          {`{"Number":1}`, `unknown field "Number"`},
		"another zone": {
			samples(`{"taken":"2026-01-01T00:00:00+00:00"}`), `[0].taken: "2026-01-01T00:00:00+00:00": must be`,
		},
		"no time": {
			samples(`{"taken":"0001-01-01T00:00:00Z"}`), "taken: \"0001-01-01T00:00:00Z\": must be a time in the years",
		},
		"number": {`{"number":-1}`, "number: -1: must be a whole number from 0 to 18446744073709551615"},
		"group":  {`{"dryRun":{"needs":{"cpu":{}}}}`, `unknown name "cpu"`},
		"time": {
			`{"dryRun":{"signals":{"pid.available":{"taken":"now"}}}}`,
			`dryRun.signals.pid.available.taken: "now": must be a time`,
		},
		"dry run": {`{"dryRun":{"thresholds":[{"status":"Met"}]}}`, "dryRun.thresholds[0].signal: is missing"},
		"nothing": {``, "state: unexpected end of JSON input"},
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
	f.Add([]byte(`{"enforced":{"memorySamples":[{"taken":"1970-01-01T00:00:00Z","pods":[{"uid":"a","usageBytes":-1,` +
		`"ageNanoseconds":-9223372036854775808}]}]}}`))
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
