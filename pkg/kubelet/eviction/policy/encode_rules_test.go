package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/test/lossless"
)

// recodedRules are rules that were written and read again.
func recodedRules(r Rules) (Rules, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return Rules{}, err
	}
	return DecodeRules(data)
}

func recodedState(s State) (State, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return State{}, err
	}
	return DecodeState(data)
}

func recodedSnapshot(s *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return snapshot.Decode(data)
}

func anySignal(n int) any { return snapshot.Signal(1 + n%int(snapshot.NumSignals-1)) }

func rulesEncoding() *lossless.Encoding[Rules] {
	return &lossless.Encoding[Rules]{
		Recode: recodedRules, Equal: sameRules,
		Values: map[reflect.Type]func(int) any{
			reflect.TypeFor[snapshot.Signal](): anySignal,
			reflect.TypeFor[resource.Quantity](): func(n int) any {
				return *resource.NewQuantity(int64(n), resource.DecimalSI)
			},
		},
		Prepare: func(r *Rules) {
			r.Thresholds[1].Signal = r.Thresholds[0].Signal%(snapshot.NumSignals-1) + 1
			for i := range r.Thresholds {
				t := &r.Thresholds[i]
				t.MinReclaim.Percentage = 0
				if i == 0 {
					t.Value.Percentage = 0
				} else {
					t.Value.Quantity = nil
				}
			}
		},
		Refused: []string{"Thresholds[]", "Thresholds[].Signal"},
		Exempt:  map[string]string{"dryRun": "is set by split only"},
	}
}

func TestNoFieldOfRulesIsLost(t *testing.T) { rulesEncoding().Check(t) }

func stateEncoding() *lossless.Encoding[State] {
	return &lossless.Encoding[State]{
		Recode: recodedState,
		Values: map[reflect.Type]func(int) any{
			reflect.TypeFor[snapshot.Signal](): anySignal,
			reflect.TypeFor[thresholdStatus](): func(n int) any { return thresholdStatus(1 + n%3) },
		},
		Refused: []string{
			"Enforced.Thresholds[]", "Enforced.Thresholds[].Signal", "Enforced.Thresholds[].Updated",
			"Enforced.MemorySamples[].Taken", "Enforced.MemorySamples[].Pods[]", "Enforced.MemorySamples[].Pods[].UID",
			"DryRun.Thresholds[]", "DryRun.Thresholds[].Signal", "DryRun.Thresholds[].Updated",
			"DryRun.MemorySamples[].Taken", "DryRun.MemorySamples[].Pods[]", "DryRun.MemorySamples[].Pods[].UID",
		},
		Exempt: map[string]string{
			"Enforced.MemorySamples[]": "samples have no gap", "DryRun.MemorySamples[]": "samples have no gap",
		},
	}
}

func TestNoFieldOfAStateIsLost(t *testing.T) { stateEncoding().Check(t) }

// TestRulesAreReadable shows what encoded rules look like.
func TestRulesAreReadable(t *testing.T) {
	share := Threshold{Signal: snapshot.NodeFsAvailable, Value: evictionapi.ThresholdValue{Percentage: 0.1}}
	r := rulesOf(dry(reclaiming(soft(threshold(snapshot.MemoryAvailable, "1.5Gi"), time.Minute), "100Mi")), share)
	r.Timing = Timing{Period: 1, KillTime: 2, Settling: 3, Patience: 4}
	r.LocalStorageLimits, r.Fence = true, true
	r.Protection = Protection{Namespaces: []string{"a", "b-*"}, MaxPods: 1, MaxMemory: 2}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "thresholds": [
    {
      "signal": "memory.available",
      "value": {
        "quantity": "1536Mi"
      },
      "soft": true,
      "gracePeriodNanoseconds": 60000000000,
      "minReclaim": {
        "quantity": "100Mi"
      },
      "dryRun": true
    },
    {
      "signal": "nodefs.available",
      "value": {
        "fraction": 0.1
      }
    }
  ],
  "pressureTransitionPeriodNanoseconds": 300000000000,
  "maxPodGracePeriodSeconds": 60,
  "localStorageLimits": true,
  "fence": true,
  "timing": {
    "periodNanoseconds": 1,
    "killTimeNanoseconds": 2,
    "settlingNanoseconds": 3,
    "patienceNanoseconds": 4
  },
  "protection": {
    "namespaces": [
      "a",
      "b-*"
    ],
    "maxPods": 1,
    "maxMemoryBytes": 2,
    "maxDelayNanoseconds": 0
  }
}`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	const rest = `"pressureTransitionPeriodNanoseconds":1,"maxPodGracePeriodSeconds":1,"localStorageLimits":true,` +
		`"timing":{"periodNanoseconds":1,"killTimeNanoseconds":1,"settlingNanoseconds":1,"patienceNanoseconds":1}`
	thresholds := func(text string) string { return `{"thresholds":[` + text + `],` + rest + `}` }
	value := func(text string) string { return thresholds(`{"signal":"pid.available","value":` + text + `}`) }
	protection := func(text string) string {
		return `{` + rest + `,"protection":{"maxPods":1,"maxMemoryBytes":1,"maxDelayNanoseconds":1,"namespaces":[` + text +
			`]}}`
	}
	const pids = `{"signal":"pid.available","value":{"fraction":0.5}}`
	without := func(field string) string { return strings.Replace("{"+rest+"}", `"`+field, `"x`, 1) }
	negative := func(field string) string {
		return strings.Replace(protection(""), `"`+field+`":1`, `"`+field+`":-1`, 1)
	}
	for name, test := range map[string]struct{ text, want string }{
		"thresholds": {thresholds(strings.Repeat(`{},`, 40) + `{}`), "rules: thresholds: more than 40 elements"},
		"namespaces": {protection(strings.Repeat(`"",`, 1<<12) + `""`), "protection.namespaces: more than 4096 elements"},
		"long":       {protection(`"` + strings.Repeat("x", 1<<10+1) + `"`), "namespaces[0]: a string of 1025 bytes"},
		"pattern":    {protection(`"["`), `protection.namespaces[0]: "[": must be a name, or a pattern`},
		"signal":     {thresholds(`{"signal":"swap"}`), `thresholds[0].signal: unknown signal "swap": must be one of`},
		"no signal": {
			thresholds(strings.Replace(pids, "pid.available", "none", 1)), "thresholds[0].signal: none: must be a",
		},
		"twice": {
			thresholds(pids + "," + pids), "thresholds[1]: signal pid.available, soft false, dryRun false: must be",
		},
		"grace": {
			thresholds(strings.Replace(pids, `}}`, `},"gracePeriodNanoseconds":-1}`, 1)),
			"thresholds[0].gracePeriodNanoseconds: -1: must not be negative",
		},
		"no value": {thresholds(`{"signal":"pid.available"}`), "thresholds[0].value: is missing"},
		"neither":  {value(`{}`), "thresholds[0].value: must have either quantity or fraction"},
		"both": {
			value(`{"quantity":"1","fraction":1}`), "thresholds[0].value: must have either quantity or fraction",
		},
		"fraction":   {value(`{"fraction":-0.5}`), "thresholds[0].value: fraction: -0.5: must not be negative"},
		"quantity":   {value(`{"quantity":"much"}`), `thresholds[0].value.quantity: "much": must be a quantity`},
		"negative":   {value(`{"quantity":"-1"}`), `thresholds[0].value.quantity: "-1": must be a quantity`},
		"empty":      {value(`{"quantity":""}`), `thresholds[0].value.quantity: "": must be a quantity`},
		"a number":   {value(`{"quantity":1}`), `thresholds[0].value.quantity: 1: must be a string`},
		"tiny":       {value(`{"quantity":"1e-2000000000"}`), `value.quantity: "1e-2000000000": must be a quantity`},
		"huge":       {value(`{"quantity":"1E2000000000"}`), `value.quantity: "1E2000000000": must be a quantity`},
		"zeros":      {value(`{"quantity":"1e-0000000000000001"}`), `value.quantity: "1e-0000000000000001": must be`},
		"period":     {negative("periodNanoseconds"), "timing.periodNanoseconds: -1: must not be negative"},
		"kill time":  {negative("killTimeNanoseconds"), "timing.killTimeNanoseconds: -1: must not be negative"},
		"settling":   {negative("settlingNanoseconds"), "timing.settlingNanoseconds: -1: must not be negative"},
		"patience":   {negative("patienceNanoseconds"), "timing.patienceNanoseconds: -1: must not be negative"},
		"transition": {negative("pressureTransitionPeriodNanoseconds"), "pressureTransitionPeriodNanoseconds: -1: must"},
		"pods":       {negative("maxPods"), "protection.maxPods: -1: must not be negative"},
		"memory":     {negative("maxMemoryBytes"), "protection.maxMemoryBytes: -1: must not be negative"},
		"delay":      {negative("maxDelayNanoseconds"), "protection.maxDelayNanoseconds: -1: must not be negative"},
		"timing": {
			without("killTimeNanoseconds"), `timing: unknown field "x": must be one of periodNanoseconds, kill`,
		},
		"missing field": {`{}`, "pressureTransitionPeriodNanoseconds: is missing"},
		"internal":      {`{"dryRun":true,` + rest + `}`, `unknown field "dryRun"`},
		"nothing":       {``, "rules: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeRules([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// sameRules reports whether rules are the same. Equal quantities may have different representations.
func sameRules(a, b Rules) bool {
	return cmp.Equal(a, b, cmp.AllowUnexported(Rules{}), cmp.Comparer(func(a, b resource.Quantity) bool {
		return a.Cmp(b) == 0 && a.String() == b.String()
	}))
}

// TestQuantitiesAreDecoded: each form of a quantity has its amount and its text afterwards.
func TestQuantitiesAreDecoded(t *testing.T) {
	for _, text := range []string{
		"0", "1", "1500m", "1.5Gi", "100Mi", "1e3", "1E", "12e6", "0.5", "0.1Ki", "9223372036854775807", "1e99", "1n",
		"1000000", "1024Ki", "5k", "99999999999999999999", "8Ei", "3.14159265358979323846Mi",
	} {
		r := *rulesOf(threshold(snapshot.MemoryAvailable, text))
		got, err := recodedRules(r)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if !sameRules(got, r) {
			t.Errorf("%s: %v, want %v", text, got.Thresholds[0].Value.Quantity, r.Thresholds[0].Value.Quantity)
		}
	}
}

// FuzzDecodeRules: whatever is read, nothing panics; what is accepted is bounded, and is written again without loss.
func FuzzDecodeRules(f *testing.F) {
	for _, r := range []Rules{rulesEncoding().Full(), *exampleWorld().rules, {}} {
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeRules(data)
		if err != nil {
			return
		}
		if len(r.Thresholds) > 40 || len(r.Protection.Namespaces) > 1<<12 {
			t.Fatalf("%d thresholds, %d namespaces", len(r.Thresholds), len(r.Protection.Namespaces))
		}
		got, err := recodedRules(r)
		if err != nil {
			t.Fatal(err)
		}
		first, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(got); err != nil || string(first) != string(second) || !sameRules(got, r) {
			t.Fatalf("%s, decoded and encoded again: %s %v", first, second, err)
		}
	})
}

// FuzzDecideOnDecoded: whatever snapshot, rules and state are decoded, Decide does not panic, evicts only pods of the
// snapshot that are not critical, each once, and makes a state that can be encoded. With all three encoded and decoded
// once more it decides the same.
func FuzzDecideOnDecoded(f *testing.F) {
	add := func(values ...any) {
		var texts [][]byte
		for _, v := range values {
			data, err := json.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			texts = append(texts, data)
		}
		f.Add(texts[0], texts[1], texts[2])
	}
	w := exampleWorld()
	for range 4 {
		before := w.state
		w.after(10 * time.Second)
		add(w.snapshot(), w.rules, before)
	}
	add(w.snapshot(), rulesEncoding().Full(), stateEncoding().Full())
	f.Fuzz(func(t *testing.T, snapshotText, rulesText, stateText []byte) {
		s, err := snapshot.Decode(snapshotText)
		if err != nil {
			return
		}
		rules, err := DecodeRules(rulesText)
		if err != nil {
			return
		}
		state, err := DecodeState(stateText)
		if err != nil {
			return
		}
		d, next := Decide(s, &rules, state)
		victimsAreInTheSnapshot(t, s, d.Victims)
		victimsAreInTheSnapshot(t, s, d.DryRun.Victims)
		recoded(t, next)
		again, nextAgain := decideRecoded(t, s, rules, state)
		if !reflect.DeepEqual(again, d) || !reflect.DeepEqual(nextAgain, next) {
			t.Fatalf("%+v\n%+v\nfrom what was encoded and decoded again:\n%+v\n%+v", d, next, again, nextAgain)
		}
	})
}

// TestDecideOnDecodedAnything: decisions about absent and absurd values are the same after all of them were written and
// read.
func TestDecideOnDecodedAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules, now, state := anyRules(t), start, State{}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			now = now.Add(time.Duration(anyElapsed.Draw(t, "elapsed")))
			s := anything(t, now)
			s.Signals[snapshot.NoSignal] = snapshot.Unobserved()[snapshot.NoSignal]
			want, next := Decide(s, rules, state)
			got, nextGot := decideRecoded(t, s, *rules, state)
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(nextGot, next) {
				t.Fatalf("%+v\n%+v\nfrom what was encoded and decoded:\n%+v\n%+v", want, next, got, nextGot)
			}
			state = next
		}
	})
}

// fataler is a test, or one case of a property.
type fataler interface{ Fatal(...any) }

func decideRecoded(t fataler, s *snapshot.Snapshot, rules Rules, state State) (Decision, State) {
	s, err := recodedSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	if rules, err = recodedRules(rules); err != nil {
		t.Fatal(err)
	}
	if state, err = recodedState(state); err != nil {
		t.Fatal(err)
	}
	return Decide(s, &rules, state)
}

func victimsAreInTheSnapshot(t *testing.T, s *snapshot.Snapshot, victims []Victim) {
	t.Helper()
	pods := map[*snapshot.Pod]bool{}
	for i := range s.Pods {
		pods[&s.Pods[i]] = !s.Pods[i].Critical
	}
	for i := range victims {
		if !pods[victims[i].Pod] {
			t.Fatalf("victim %+v", victims[i])
		}
		pods[victims[i].Pod] = false
	}
}
