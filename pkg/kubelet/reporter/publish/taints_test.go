package publish

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

const ourTaint = `{"effect":"NoSchedule","key":"ours","qosLevel":"reclaimed_cores"}`

// R9: two other writers of the lists that nobody owns alone, beside each request of the agent and between its reading
// and writing; nothing of theirs is lost, and nothing of the agent.
func TestR9WritersOfTaintsAndConditions(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(taintsPath, "["+ourTaint+"]", policy, `"0"`)
		a.after(2 * time.Second)
		written := 0
		write := func() {
			written++
			a.api.changeLocked(mainPart, "controller", func(o map[string]any) {
				spec, _ := o["spec"].(map[string]any)
				list, _ := spec["taints"].([]any)
				set(o, append(list, map[string]any{"key": fmt.Sprint(written)}), "spec", "taints")
			})
			a.api.changeLocked(statusPart, "controller", func(o map[string]any) {
				list, _ := o["status"].(map[string]any)["conditions"].([]any)
				set(o, append(list, map[string]any{"type": fmt.Sprint(written)}), "status", "conditions")
			})
		}
		conflicts := 0
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch && written%3 != 0 {
				conflicts++
				write()
			}
			return nil
		})
		for i := range 100 {
			a.api.mu.Lock()
			write()
			a.api.mu.Unlock()
			taint := strings.Replace(ourTaint, "ours", fmt.Sprintf("ours-%d", i%3), 1)
			a.give(taintsPath, "["+taint+"]", policy, fmt.Sprintf(`"%d"`, i))
			a.after(1500 * time.Millisecond)
		}
		a.after(5 * time.Minute)
		taints := liveTaints(a.api.get())
		ours := 0
		theirs := slices.DeleteFunc(taints, func(e any) bool {
			is := strings.HasPrefix(idOf(e.(map[string]any)).Key, "ours-")
			if is {
				ours++
			}
			return is
		})
		conditions := a.api.get().Object["status"].(map[string]any)["conditions"].([]any)
		if len(theirs) != written || ours != 1 || len(conditions) != written || conflicts < 20 {
			t.Errorf("%d taints of others, %d of the agent, %d conditions; %d were written, %d of them beside a request",
				len(theirs), ours, len(conditions), written, conflicts)
		}
		a.expect(policy, `"99"`)
	})
}

// Others write the taints between each read and write of the agent. It tries again, at its pace, and is through when
// they let it.
func TestConflictStorm(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.api.sent()
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == patchTaints {
				return status(http.StatusConflict, metav1.StatusReasonConflict, "changed", 0)
			}
			return nil
		})
		a.give(taintsPath, "["+ourTaint+"]", policy, `"1"`)
		a.after(2 * time.Second)
		a.expect(policy, `"1"`)
		a.after(10 * time.Minute)
		sent := a.api.sent()
		if n := len(sent); n < 30 || n > 70 {
			t.Errorf("%d requests in 10 min", n)
		}
		if n := len(slices.DeleteFunc(sent, func(r string) bool { return r == patchTaints })); n != 1 {
			t.Errorf("%d requests are not for taints, want 1", n)
		}
		a.expectEvents("5 times")
		a.api.setFault(nil)
		a.after(5 * time.Minute)
		a.expect(taintsPath, "["+ourTaint+"]")
		a.after(time.Hour)
		a.expectEvents()
	})
}

// A full disk costs the record: no taint is added without it, and the rest is published.
func TestFullDisk(t *testing.T) {
	bubble(t, func(a *agent) {
		// A directory that is not empty in the place of the temporary file.
		fill := func() {
			if err := os.MkdirAll(a.config.Record+".tmp/x", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		fill()
		a.give(taintsPath, "["+ourTaint+"]", policy, `"0"`)
		a.after(2 * time.Second)
		a.expect(policy, `"0"`)
		a.expect(taintsPath, ``)
		a.expectEvents("record of taints could not be stored")
		a.give(taintsPath, "["+ourTaint+"]", policy, `"1"`)
		a.after(10 * time.Minute)
		a.expect(policy, `"1"`)
		a.expect(taintsPath, ``)
		a.expectEvents()
		if err := os.RemoveAll(a.config.Record + ".tmp"); err != nil {
			t.Fatal(err)
		}
		a.after(6 * time.Minute)
		a.expect(taintsPath, "["+ourTaint+"]")
		// What is recorded can go.
		fill()
		a.give(policy, `"2"`)
		a.after(2 * time.Second)
		a.expect(policy, `"2"`)
		a.expect(taintsPath, ``)
	})
}

// A damaged record is set aside; what was in it stays in the object.
func TestDamagedRecord(t *testing.T) {
	for _, damaged := range []string{"", "{", `{"version":2}`, `{"version":1,"taints":[{}]}`, `{"version":1} {}`,
		strings.Repeat(" ", 2<<20)} {
		bubble(t, func(a *agent) {
			a.give(taintsPath, "["+ourTaint+"]", policy, `"0"`)
			a.after(2 * time.Second)
			if err := os.WriteFile(a.config.Record, []byte(damaged), 0o600); err != nil {
				t.Fatal(err)
			}
			a.restart()
			a.give(policy, `"1"`)
			a.after(2 * time.Second)
			a.expect(policy, `"1"`)
			a.expect(taintsPath, "["+ourTaint+"]")
			a.expectEvents("CustomNodeResourceRecordRejected")
			if got, err := os.ReadFile(a.config.Record + ".rejected"); err != nil || string(got) != damaged {
				t.Errorf("set aside: %d bytes, %v", len(got), err)
			}
		})
	}
}

// The record is of another object of the same name: of another cluster, or one that was deleted meanwhile.
func TestAnotherObject(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(taintsPath, "["+ourTaint+"]", policy, `"0"`)
		a.after(2 * time.Second)
		a.stop()
		a.api.remove()
		a.api.change(mainPart, "controller", func(o map[string]any) {
			set(o, []any{taintsOf([]byte("[" + ourTaint + "]"))[0].value}, "spec", "taints")
		})
		a.start()
		a.give(policy, `"1"`)
		a.after(2 * time.Second)
		a.expect(policy, `"1"`)
		a.expect(taintsPath, "["+ourTaint+"]")
		r, err := (&Publisher{config: a.config}).recordFile().Load()
		if err != nil || len(r.Taints) > 0 || r.ObjectUID != "" {
			t.Errorf("record %+v, %v", r, err)
		}
	})
}

// A write of taints whose answer is lost may have been carried out.
func TestLostAnswer(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		lose := true
		a.api.setFault(func(r *request) *http.Response {
			if !lose || r.String() != patchTaints {
				return nil
			}
			lose = false
			a.api.single(r)
			return unreachable(r)
		})
		a.give(policy, `"0"`, taintsPath, "["+ourTaint+"]")
		a.after(time.Minute)
		a.expect(taintsPath, "["+ourTaint+"]")
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.expect(taintsPath, ``)
	})
}

// A taint that the API server has refused is not the agent's when somebody else adds it.
func TestRefusedTaint(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == patchTaints {
				return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "bad taint", 0)
			}
			return nil
		})
		a.give(policy, `"0"`, taintsPath, "["+ourTaint+"]")
		a.after(time.Minute)
		a.expectEvents("bad taint")
		a.api.change(mainPart, "controller", func(o map[string]any) {
			set(o, []any{taintsOf([]byte("[" + ourTaint + "]"))[0].value}, "spec", "taints")
		})
		a.api.setFault(nil)
		a.give(policy, `"0"`)
		a.after(time.Hour)
		a.expect(taintsPath, "["+ourTaint+"]")
	})
}

func TestDecideTaints(t *testing.T) {
	element := func(s string) map[string]any {
		key, value, _ := strings.Cut(s, "=")
		return map[string]any{"key": key, "value": value, "effect": "NoSchedule", "qosLevel": "q"}
	}
	for name, tc := range map[string]struct {
		live, want, recorded string
		list, before, after  string
	}{
		"nothing":              {},
		"added":                {live: "a", want: "b", list: "a b", before: "b", after: "b"},
		"kept":                 {live: "b a", want: "b", recorded: "b", list: "b a", before: "b", after: "b"},
		"removed":              {live: "a b", recorded: "b", list: "a", before: "b"},
		"changed":              {live: "b=1 a", want: "b=2", recorded: "b", list: "b=2 a", before: "b", after: "b"},
		"somebody else's":      {live: "a=1", want: "a=2", list: "a=1"},
		"removed by others":    {live: "a", recorded: "b", list: "a"},
		"comes back":           {live: "a", want: "b", recorded: "b", list: "a b", before: "b", after: "b"},
		"somebody else's twin": {live: "b=1 b=2", recorded: "b", list: "b=2", before: "b"},
		"given twice":          {want: "b b", list: "b", before: "b", after: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var live []any
			var want []taint
			var recorded []taintID
			for s := range strings.FieldsSeq(tc.live) {
				live = append(live, element(s))
			}
			for s := range strings.FieldsSeq(tc.want) {
				want = append(want, taint{idOf(element(s)), element(s)})
			}
			for s := range strings.FieldsSeq(tc.recorded) {
				recorded = append(recorded, idOf(element(s)))
			}
			d := decideTaints(live, want, recorded)
			var list []string
			for _, e := range d.list {
				m := e.(map[string]any)
				list = append(list, strings.TrimSuffix(fmt.Sprint(m["key"], "=", m["value"]), "="))
			}
			ids := func(ids []taintID) string {
				var keys []string
				for _, id := range ids {
					keys = append(keys, id.Key)
				}
				return strings.Join(keys, " ")
			}
			if got := strings.Join(list, " "); got != tc.list || ids(d.before) != tc.before || ids(d.after) != tc.after {
				t.Errorf("list %q, before %q, after %q", got, ids(d.before), ids(d.after))
			}
			if d.changed != (tc.list != tc.live) {
				t.Errorf("changed: %v", d.changed)
			}
		})
	}
}

// Whatever the lists: elements of others stay in their order, what is wanted is there, and deciding again changes
// nothing.
func TestDecideTaintsAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		element := rapid.Custom(func(t *rapid.T) map[string]any {
			return map[string]any{
				"key":   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
				"value": rapid.SampledFrom([]string{"", "1"}).Draw(t, "value"),
			}
		})
		var live []any
		for _, e := range rapid.SliceOfN(element, 0, 5).Draw(t, "live") {
			live = append(live, e)
		}
		var want []taint
		for _, e := range rapid.SliceOfNDistinct(element, 0, 3, idOf).Draw(t, "want") {
			want = append(want, taint{idOf(e), e})
		}
		var recorded []taintID
		for _, e := range rapid.SliceOfNDistinct(element, 0, 3, idOf).Draw(t, "recorded") {
			recorded = append(recorded, idOf(e))
		}
		foreign := func(list []any, ours []taintID) (others []string) {
			seen := map[taintID]bool{}
			for _, e := range list {
				id := idOf(e.(map[string]any))
				if seen[id] || !slices.Contains(ours, id) {
					others = append(others, fmt.Sprint(e))
				}
				seen[id] = true
			}
			return others
		}
		d := decideTaints(live, want, recorded)
		before, after := foreign(live, recorded), foreign(d.list, d.after)
		if !slices.Equal(before, after) {
			t.Fatalf("others had %v, and have %v", before, after)
		}
		for _, w := range want {
			if !slices.ContainsFunc(d.list, func(e any) bool { return idOf(e.(map[string]any)) == w.id }) {
				t.Fatalf("%v is missing in %v", w, d.list)
			}
		}
		again := decideTaints(d.list, want, d.after)
		if again.changed || !slices.Equal(again.after, d.after) {
			t.Fatalf("again: %+v, before %+v", again, d)
		}
		for _, id := range d.after {
			if !slices.Contains(d.before, id) {
				t.Fatalf("%v is not recorded before", id)
			}
		}
	})
}
