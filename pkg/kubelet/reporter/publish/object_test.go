package publish

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
				// Nothing is written to the object any more.
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
