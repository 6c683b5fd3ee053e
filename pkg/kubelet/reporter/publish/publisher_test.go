package publish

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	properties = "spec.nodeResourceProperties"
	policy     = "status.topologyPolicy"
	zones      = "status.topologyZone"
)

func TestPublishes(t *testing.T) {
	bubble(t, func(a *agent) {
		a.after(time.Hour)
		a.expectSent()
		if a.State().Given {
			t.Error("something was given")
		}
		a.give(properties, `[{"propertyName":"numa"}]`, zones, `[{"type":"Socket","name":"0","resources":{}}]`,
			annotationsPath, `{"example.com/a":"b"}`, labelsPath, `{"example.com/l":"m","site":"of-plugin"}`,
			conditionsPath, `[{"type":"AgentReady"}]`)
		a.after(900 * time.Millisecond)
		a.expectSent()
		a.after(200 * time.Millisecond)
		a.expectSent(applyMain, applyStatus)
		a.expect(properties, `[{"propertyName":"numa"}]`)
		a.expect(zones, `[{"name":"0","resources":{},"type":"Socket"}]`)
		a.expect(conditionsPath, ``)
		a.expect(annotationsPath, `{"example.com/a":"b"}`)
		a.expect(labelsPath, `{"example.com/l":"m","site":"s"}`)
		a.expect("metadata.ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"node-uid"}]`)
		state := a.State()
		if state.Pending || state.LastError != "" || state.UID != "uid-1" || time.Since(state.LastWrite) > time.Second ||
			!state.OldestUnpublished.IsZero() || state.Absent {
			t.Errorf("state %+v", state)
		}
		a.after(time.Hour)
		a.expectSent()

		// Only the part that has changed is written.
		a.give(properties, `[{"propertyName":"numa"}]`, policy, `"None"`)
		a.after(2 * time.Second)
		a.expectSent(applyMain, applyStatus)
		a.expect(zones, ``)
		a.expect(policy, `"None"`)
		a.expect(annotationsPath, ``)
		a.give(properties, `[{"propertyName":"numa"}]`, policy, `"Numeric"`)
		a.after(2 * time.Second)
		a.expectSent(applyStatus)
		// A change that is taken back is none.
		a.give(properties, `[{"propertyName":"numa"}]`)
		a.give(properties, `[{"propertyName":"numa"}]`, policy, `"Numeric"`)
		a.after(2 * time.Second)
		a.expectSent()
		a.SetOptions(Options{Enabled: true, Sustained: time.Second, Labels: map[string]string{"site": "t"}})
		a.after(2 * time.Second)
		a.expectSent(applyMain)
		a.expect(labelsPath, `{"site":"t"}`)
	}, func(c *Config) { c.Options.Labels = map[string]string{"site": "s"} })
}

// Each request is sent as plimsoll-reporter, and what is applied is forced.
func TestFieldManager(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(properties, `[]`, policy, `"None"`, taintsPath, `[{"key":"a","effect":"NoSchedule","qosLevel":"x"}]`)
		a.after(2 * time.Second)
		a.api.mu.Lock()
		defer a.api.mu.Unlock()
		for _, r := range a.api.requests {
			if r.manager != "plimsoll-reporter" || r.force != (r.contentType == string(types.ApplyYAMLPatchType)) {
				t.Errorf("%s by %q, forced: %v", r.String(), r.manager, r.force)
			}
		}
	})
}

// R9: what other writers have written stays, whatever the agent writes, and what they write of its fields comes back.
func TestR9OtherWriters(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(properties, `[{"propertyName":"0"}]`, policy, `"0"`)
		a.after(2 * time.Second)
		const count = 200
		for i := range count {
			a.api.change(statusPart, "controller", func(o map[string]any) {
				set(o, []any{map[string]any{"type": "AgentReady", "reason": fmt.Sprint(i)}}, "status", "conditions")
			})
			a.api.change(mainPart, "controller", func(o map[string]any) {
				set(o, []any{map[string]any{"key": "theirs", "value": fmt.Sprint(i)}}, "spec", "other")
				set(o, fmt.Sprint(i), "metadata", "annotations", "theirs")
			})
			a.give(properties, fmt.Sprintf(`[{"propertyName":"%d"}]`, i), policy, fmt.Sprintf(`"%d"`, i))
			a.after(3 * time.Second)
			a.expect(conditionsPath, fmt.Sprintf(`[{"reason":"%d","type":"AgentReady"}]`, i))
			a.expect("spec.other", fmt.Sprintf(`[{"key":"theirs","value":"%d"}]`, i))
			a.expect(annotationsPath, fmt.Sprintf(`{"theirs":"%d"}`, i))
		}
		a.after(10 * time.Second)
		a.expect(properties, fmt.Sprintf(`[{"propertyName":"%d"}]`, count-1))
		a.expect(policy, fmt.Sprintf(`"%d"`, count-1))

		a.after(time.Minute)
		a.api.sent()
		a.api.change(mainPart, "controller", func(o map[string]any) {
			set(o, []any{map[string]any{"propertyName": "foreign"}}, "spec", "nodeResourceProperties")
		})
		a.after(2 * time.Second)
		a.expectSent(applyMain)
		a.expect(properties, fmt.Sprintf(`[{"propertyName":"%d"}]`, count-1))
		// Back and forth, so that only the managed fields differ.
		for _, value := range []string{"foreign", fmt.Sprint(count - 1)} {
			a.api.change(statusPart, "controller", func(o map[string]any) { set(o, value, "status", "topologyPolicy") })
		}
		a.after(2 * time.Second)
		a.expectSent(applyStatus)
		a.give(properties, `[]`)
		a.after(2 * time.Second)
		a.expect(policy, `"199"`) // that of the controller now, which owns it as well
	})
}

// set sets a member of an object.
func set(object map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		child, _ := object[name].(map[string]any)
		if child == nil {
			child = map[string]any{}
			object[name] = child
		}
		object = child
	}
	object[path[len(path)-1]] = value
}

// A writer that changes a field of the agent each time does not make it write more often than the pace allows.
func TestForeignChangesAtThePace(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"ours"`)
		a.after(10 * time.Minute)
		a.api.sent()
		for range 300 {
			a.api.change(statusPart, "controller", func(o map[string]any) { set(o, "theirs", "status", "topologyPolicy") })
			a.after(time.Second)
		}
		if n := len(a.api.sent()); n < 30 || n > 36 {
			t.Errorf("%d writes in 300 s, want about 35", n)
		}
		a.after(time.Minute)
		a.expect(policy, `"ours"`)
	})
}

// Load: 100 changes a second. The newest is written, at most 5 and then one per 10 s.
func TestPaceOfWrites(t *testing.T) {
	bubble(t, func(a *agent) {
		give := func(i int) { a.give(properties, fmt.Sprintf("[%d]", i), policy, fmt.Sprint(i)) }
		for i := range 30_000 {
			give(i)
			a.after(10 * time.Millisecond)
		}
		counts := map[string]int{}
		for _, r := range a.api.sent() {
			counts[r]++
		}
		for _, r := range []string{applyMain, applyStatus} {
			if counts[r] < 33 || counts[r] > 36 {
				t.Errorf("%d times %s in 300 s, want about 35", counts[r], r)
			}
		}
		a.after(12 * time.Second)
		a.expect(policy, "29999")
		if s := a.State(); s.Pending || !s.OldestUnpublished.IsZero() {
			t.Errorf("state %+v", s)
		}
	})
}

// The record says which taints are the agent's, across restarts.
func TestRecordFile(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(taintsPath, `[{"key":"a","effect":"NoSchedule","qosLevel":"x"}]`)
		a.after(2 * time.Second)
		data, err := os.ReadFile(a.config.Record)
		const want = `{"version":1,"published":true,"objectUID":"uid-1",` +
			`"taints":[{"key":"a","effect":"NoSchedule","qosLevel":"x"}]}`
		if err != nil || string(data) != want {
			t.Errorf("record %s, %v, want %s", data, err, want)
		}
		if got := fmt.Sprint(a.State().Taints); got != "[a:NoSchedule:x]" {
			t.Errorf("taints %s", got)
		}
	})
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty configuration is accepted")
	}
	if _, err := New(Config{
		Client: newAPI(t).client(t), NodeName: "n", NodeUID: func() (types.UID, bool) { return "", false }, Record: "r",
		Clock: nil, Recorder: &events{}, Node: &v1.ObjectReference{},
	}); err == nil {
		t.Error("a configuration without a clock is accepted")
	}
}

// The body is JSON, the same for the same content.
func TestBody(t *testing.T) {
	fields := fieldsOf(properties, `[1]`, labelsPath, `{"b":"1","a":"2"}`, policy, `"None"`, taintsPath, `[]`)
	for part, want := range map[string]string{
		mainPart: `{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource",` +
			`"metadata":{"labels":{"a":"2","b":"3","c":"4"},"name":"n"},"spec":{"nodeResourceProperties":[1]}}`,
		statusPart: `{"apiVersion":"node.katalyst.kubewharf.io/v1alpha1","kind":"CustomNodeResource",` +
			`"metadata":{"name":"n"},"status":{"topologyPolicy":"None"}}`,
	} {
		got, err := contentOf(&Object{Fields: fields}).body(part, "n", map[string]string{"b": "3", "c": "4"}, nil)
		if err != nil || string(got) != want || !json.Valid(got) {
			t.Errorf("%q: %s, %v, want %s", part, got, err, want)
		}
	}
}
