package publish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestDeletedObjectIsBack(t *testing.T) {
	bubble(t, func(a *agent) {
		for i := range 8 { // more than five writes at once
			a.give(properties, fmt.Sprintf(`[%d]`, i), policy, `"None"`,
				taintsPath, `[{"key":"a","effect":"NoSchedule","qosLevel":"x"}]`)
			a.after(1500 * time.Millisecond)
		}
		for range 20 {
			a.api.remove()
			a.after(9 * time.Second)
			a.expect(policy, `"None"`)
			a.expect(taintsPath, `[{"effect":"NoSchedule","key":"a","qosLevel":"x"}]`)
		}
		a.after(time.Minute)
		a.expect(properties, `[7]`)

		// Also while no watch is open: the object is listed.
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodGet {
				return unreachable(r)
			}
			return nil
		})
		a.api.endWatches()
		a.api.remove()
		a.after(20 * time.Second)
		a.api.setFault(nil)
		a.after(40 * time.Second)
		a.expect(policy, `"None"`)
	}, func(c *Config) { c.Options.Sustained = 5 * time.Minute })
}

// Without the right to watch, the object is listed.
func TestDeletedObjectWithoutWatch(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.setFault(func(r *request) *http.Response {
			if r.path == collection {
				return status(http.StatusForbidden, metav1.StatusReasonForbidden, "no list", 0)
			}
			return nil
		})
		a.give(policy, `"None"`)
		a.after(2 * time.Second)
		a.expect(policy, `"None"`)
		a.expectEvents()
	})
	bubble(t, func(a *agent) {
		a.give(policy, `"None"`)
		a.after(2 * time.Second)
		lists := 0
		a.api.setFault(func(r *request) *http.Response {
			if r.path != collection {
				return nil
			}
			if lists++; lists%2 == 0 {
				return status(http.StatusForbidden, metav1.StatusReasonForbidden, "no watch", 0)
			}
			return nil
		})
		a.api.endWatches()
		a.after(time.Minute)
		a.api.remove()
		a.after(10 * time.Second)
		a.expect(policy, `"None"`)
	})
}

func TestTurnedOff(t *testing.T) {
	for name, off := range map[string]func(a *agent){
		"off":      func(a *agent) { a.SetOptions(Options{Sustained: time.Second, Labels: a.config.Options.Labels}) },
		"no field": func(a *agent) { a.give() },
		"off while the agent did not run": func(a *agent) {
			a.config.Options.Enabled = false
			a.restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(a *agent) {
				a.api.change(mainPart, "controller", func(o map[string]any) {
					set(o, []any{map[string]any{"key": "theirs"}}, "spec", "taints")
				})
				a.give(properties, `[1]`, policy, `"None"`, labelsPath, `{"a":"b"}`,
					taintsPath, `[{"key":"a","effect":"NoSchedule","qosLevel":"x"}]`)
				a.after(2 * time.Second)
				a.expect(taintsPath, `[{"key":"theirs"},{"effect":"NoSchedule","key":"a","qosLevel":"x"}]`)
				a.api.sent()
				off(a)
				a.after(2 * time.Second)
				a.expectSent(applyMain, applyStatus, patchTaints)
				a.expect(properties, ``)
				a.expect(policy, ``)
				a.expect("metadata.labels.a", ``)
				a.expect("metadata.labels.site", ``)
				a.expect(taintsPath, `[{"key":"theirs"}]`)
				a.expect("metadata.ownerReferences", `[{"apiVersion":"v1","kind":"Node","name":"n1","uid":"node-uid"}]`)
				a.after(time.Hour)
				a.expectSent()
				// The object is nobody's business any more.
				a.api.remove()
				a.after(time.Hour)
				a.restart()
				if a.config.Options.Enabled {
					a.SetOptions(Options{Sustained: time.Second})
				}
				reads := a.api.reads
				a.after(time.Hour)
				a.expectSent()
				if a.api.reads != reads {
					t.Errorf("%d reads, want none", a.api.reads-reads)
				}
				a.SetOptions(Options{Enabled: true, Sustained: time.Second})
				a.give(policy, `"again"`)
				a.after(2 * time.Second)
				a.expect(policy, `"again"`)
			}, func(c *Config) { c.Options.Labels = map[string]string{"site": "s"} })
		})
	}
}

// A restart removes nothing: nothing is written before something is given, and nothing changes if that is what was
// given before.
func TestRestart(t *testing.T) {
	bubble(t, func(a *agent) {
		fields := []string{properties, `[1]`, policy, `"None"`, taintsPath, "[" + ourTaint + "]"}
		a.give(fields...)
		a.after(2 * time.Second)
		version := a.api.get().GetResourceVersion()
		a.api.sent()
		a.restart()
		a.after(time.Hour)
		a.expectSent()
		a.give(fields...)
		a.after(time.Hour)
		if got := a.api.get().GetResourceVersion(); got != version {
			t.Errorf("the object has changed to\n%v", a.api.get())
		}
		a.give(properties, `[1]`)
		a.after(2 * time.Second)
		a.expect(policy, ``)
		a.expect(taintsPath, ``)
	})
}

// The Node is the owner unless the object has one, and stays the owner when others add theirs.
func TestOwner(t *testing.T) {
	const theirs = `{"apiVersion":"v1","kind":"Node","name":"n1","uid":"theirs"}`
	ownerList := []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "theirs"}}
	bubble(t, func(a *agent) {
		a.api.change(mainPart, "controller", func(o map[string]any) { set(o, ownerList, "metadata", "ownerReferences") })
		a.give(policy, `"None"`)
		a.after(2 * time.Second)
		a.expect("metadata.ownerReferences", "["+theirs+"]")
	})
	var uid atomic.Value
	bubble(t, func(a *agent) {
		a.give(policy, `"None"`)
		a.after(time.Hour)
		if a.api.get() != nil || a.State().LastError == "" {
			t.Errorf("object %v, state %+v", a.api.get(), a.State())
		}
		a.expectSent()
		a.expectEvents()
		uid.Store(types.UID("first"))
		a.after(2 * time.Second)
		const first = `{"apiVersion":"v1","kind":"Node","name":"n1","uid":"first"}`
		a.expect("metadata.ownerReferences", "["+first+"]")
		a.api.change(mainPart, "controller", func(o map[string]any) {
			list := o["metadata"].(map[string]any)["ownerReferences"].([]any)
			set(o, append(list, ownerList...), "metadata", "ownerReferences")
		})
		a.give(policy, `"other"`, labelsPath, `{"a":"b"}`)
		a.after(2 * time.Second)
		a.expect("metadata.ownerReferences", "["+first+","+theirs+"]")
		// The Node was created again.
		uid.Store(types.UID("second"))
		a.give(policy, `"None"`)
		a.after(2 * time.Second)
		a.expect("metadata.ownerReferences",
			"["+theirs+`,{"apiVersion":"v1","kind":"Node","name":"n1","uid":"second"}]`)
	}, func(c *Config) {
		c.NodeUID = func() (types.UID, bool) {
			known, ok := uid.Load().(types.UID)
			return known, ok
		}
	})
}

// An object that Katalyst's agent wrote: what is not reported any more goes, with what it had written, and nothing
// else.
func TestTakesOverFromKatalyst(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.change(mainPart, "kubectl", func(o map[string]any) {
			set(o, "hand", "metadata", "labels", "by")
			set(o, []any{"f"}, "metadata", "finalizers")
		})
		a.api.change(mainPart, "katalyst-agent", func(o map[string]any) {
			set(o, "old", "metadata", "labels", "katalyst")
			set(o, "old", "metadata", "annotations", "katalyst")
			set(o, []any{map[string]any{"propertyName": "old"}}, "spec", "nodeResourceProperties")
			set(o, []any{map[string]any{"key": "k"}}, "spec", "taints")
		})
		a.api.change(statusPart, "katalyst-agent", func(o map[string]any) {
			set(o, []any{map[string]any{"name": "0", "type": "Socket"}}, "status", "topologyZone")
			set(o, "old", "status", "topologyPolicy")
			set(o, []any{map[string]any{"type": "AgentReady"}}, "status", "conditions")
		})
		a.give(policy, `"new"`)
		a.after(2 * time.Second)
		a.expectSent(takesOver, applyMain, applyStatus)
		a.expect(labelsPath, `{"by":"hand"}`)
		a.expect("metadata.finalizers", `["f"]`)
		a.expect("metadata.annotations.katalyst", ``)
		a.expect("spec", `{"taints":[{"key":"k"}]}`)
		a.expect("status", `{"conditions":[{"type":"AgentReady"}],"topologyPolicy":"new"}`)
		a.after(time.Hour)
		a.expectSent()
	})
}

// R13: errors are followed by a back-off, with jitter, up to five minutes. After it the newest is written once.
func TestR13BackOff(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.api.sent()
		var attempts []time.Duration
		begin := time.Now()
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				attempts = append(attempts, time.Since(begin))
			}
			return unreachable(r)
		})
		a.api.endWatches()
		for i := range 3600 {
			a.give(policy, fmt.Sprintf(`"%d"`, i))
			a.after(time.Second)
		}
		if n := len(attempts); n < 17 || n > 24 {
			t.Errorf("%d attempts in an hour: %v", n, attempts)
		}
		for i := range len(attempts) - 1 {
			wait, full := attempts[i+1]-attempts[i], min(time.Second<<min(i, 20), 5*time.Minute)
			if wait < full*4/5 || wait > full+time.Millisecond {
				t.Errorf("attempt %d came %v after the one before, want %v or up to a fifth less", i+2, wait, full)
			}
		}
		a.expectEvents("not published completely")
		if s := a.State(); s.LastError == "" || s.Failures != len(attempts) || s.NextAttempt.IsZero() || !s.Pending {
			t.Errorf("state %+v", s)
		}
		a.api.setFault(nil)
		a.api.sent()
		a.after(5 * time.Minute)
		a.expectSent(applyStatus)
		a.expect(policy, `"3599"`)
	})
}

// R13: no sooner than the API server asks for, and each request once.
func TestR13RetryAfter(t *testing.T) {
	for name, response := range map[string]func() *http.Response{
		"status": func() *http.Response {
			return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many", 40)
		},
		"text": func() *http.Response { return text(http.StatusTooManyRequests, "Too many requests", 40) },
		"unavailable": func() *http.Response {
			return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no", 40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(a *agent) {
				a.give(policy, `"0"`)
				a.after(time.Minute)
				a.api.sent()
				a.api.setFault(func(r *request) *http.Response {
					if r.method == http.MethodPatch {
						return response()
					}
					return nil
				})
				a.give(policy, `"1"`)
				a.after(40 * time.Second)
				a.expectSent(applyStatus)
				a.after(10 * time.Second)
				a.expectSent(applyStatus)
				a.api.setFault(nil)
				a.after(50 * time.Second)
				a.expectSent(applyStatus)
				a.expect(policy, `"1"`)
			})
		})
	}
}

// Without the kind, or the right, there is one event, and at last one attempt each five minutes. The first attempts
// follow soon: an API server that has just started answers like that.
func TestNoKindAndNoRight(t *testing.T) {
	for name, tc := range map[string]struct {
		response func() *http.Response
		state    func(s State) bool
	}{
		"no kind": {
			func() *http.Response { return text(http.StatusNotFound, "404 page not found\n", 0) },
			func(s State) bool { return s.NoKind && !s.Forbidden },
		},
		"no right": {
			func() *http.Response { return status(http.StatusForbidden, metav1.StatusReasonForbidden, "no", 0) },
			func(s State) bool { return s.Forbidden && !s.NoKind },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(a *agent) {
				requests := 0
				a.api.setFault(func(*request) *http.Response {
					requests++
					return tc.response()
				})
				for second := range 4200 {
					a.give(policy, fmt.Sprintf(`"%v"`, time.Now()))
					a.after(time.Second)
					switch {
					case second == 20 && requests < 4:
						t.Errorf("%d requests in the first 20 s", requests)
					case second == 8:
						a.expectEvents() // an API server that has just started answers like that
					case second == 600:
						requests = 0
					}
				}
				if requests < 11 || requests > 13 {
					t.Errorf("%d requests in an hour, after the first ten minutes", requests)
				}
				if !tc.state(a.State()) {
					t.Errorf("state %+v", a.State())
				}
				a.expectEvents("CustomNodeResourceNotPublished")
				a.api.setFault(nil)
				a.after(6 * time.Minute)
				if a.api.get() == nil || a.State().LastError != "" || tc.state(a.State()) {
					t.Errorf("object %v, state %+v", a.api.get(), a.State())
				}
				a.expectEvents()
				// The same again is told again.
				a.api.setFault(func(*request) *http.Response { return tc.response() })
				a.give(policy, `"x"`)
				a.after(time.Hour)
				a.expectEvents("CustomNodeResourceNotPublished")
			})
		})
	}
}

// What the API server refuses does not keep the rest from being written, nor what is reported afterwards.
func TestRefusedPart(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`, properties, `[0]`)
		a.after(time.Minute)
		a.api.sent()
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == applyMain {
				return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "bad property", 0)
			}
			return nil
		})
		a.give(policy, `"1"`, properties, `["bad"]`)
		a.after(2 * time.Second)
		a.expect(policy, `"1"`)
		a.expect(properties, `[0]`)
		a.expectEvents("bad property")
		a.after(time.Hour)
		a.expectEvents()
		a.api.setFault(nil)
		a.api.sent()
		a.give(policy, `"1"`, properties, `[2]`)
		a.after(12 * time.Second)
		a.expect(properties, `[2]`)
	})
}

// An API server that says each time that the object is gone is not asked without a pause.
func TestAlwaysGone(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				return status(http.StatusNotFound, metav1.StatusReasonNotFound, "gone", 0)
			}
			return nil
		})
		a.give(policy, `"0"`)
		a.after(time.Minute)
		if n := len(a.api.sent()); n > 61 {
			t.Errorf("%d requests in a minute", n)
		}
		a.api.setFault(nil)
		a.after(2 * time.Second)
		a.expect(policy, `"0"`)
	})
}

// The API server may be older than what was seen of it: it was restored from a backup.
func TestAPIServerGoesBack(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		backup := a.api.get()
		version := a.api.version
		a.give(policy, `"1"`)
		a.after(time.Minute)
		a.api.mu.Lock()
		a.api.object, a.api.version = backup, version
		a.api.mu.Unlock()
		a.api.endWatches()
		a.after(time.Minute)
		a.expect(policy, `"1"`)
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
