package publish

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever happens in whatever order (changes, restarts, reloads, other writers, deletions, an API server that fails),
// the object has in the end what is reported, and what the others have written.
func TestRandomHistory(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, func(a *agent) {
			h := &history{agent: a, random: rand.New(rand.NewPCG(seed, 0)), options: a.config.Options}
			for range 60 {
				h.step()
				a.after(time.Duration(h.random.IntN(15_000)) * time.Millisecond)
			}
			h.end()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(h.did, "\n"))
			}
		})
	}
}

// history is an agent, and what it and others have done.
type history struct {
	*agent
	random  *rand.Rand
	options Options
	fields  []string
	// theirs is what others have written last, 0 for nothing.
	theirs int
	did    []string
}

const label = "metadata.labels"

func (h *history) step() {
	n := h.random.IntN(10)
	h.did = append(h.did, fmt.Sprint(time.Now().Format(time.TimeOnly), " ", n, " ", h.fields, h.options.Enabled, h.theirs))
	switch n {
	case 0, 1, 2, 3:
		h.report()
	case 4:
		h.config.Options = h.options
		h.restart()
		// A checkpoint may be older than the object; the plugins answer some time later.
		h.Set(Object{Fields: fieldsOf(policy, `"checkpoint"`), Unconfirmed: true, Confirmed: fieldsOf()})
		h.after(time.Duration(h.random.IntN(5000)) * time.Millisecond)
		h.give(h.fields...)
	case 5:
		h.options.Enabled = h.random.IntN(3) > 0
		h.SetOptions(h.options)
	case 6:
		h.write()
	case 7:
		if h.api.get() != nil {
			h.api.remove()
			h.theirs = 0
		}
	case 8:
		h.api.setFault(nil)
	case 9:
		code := []int{http.StatusInternalServerError, http.StatusConflict, http.StatusTooManyRequests}[h.random.IntN(3)]
		share := h.random.IntN(3)
		// Requests are made in other goroutines, one at a time.
		random := rand.New(rand.NewPCG(h.random.Uint64(), 0))
		h.api.setFault(func(r *request) *http.Response {
			if random.IntN(3) < share {
				return nil
			}
			return status(code, map[int]metav1.StatusReason{http.StatusConflict: metav1.StatusReasonConflict}[code], "fault", 0)
		})
	}
}

// report changes what plugins report: each field is there or not.
func (h *history) report() {
	h.fields = nil
	for _, field := range [][2]string{
		{policy, `"%d"`}, {properties, `[{"propertyName":"%d"}]`}, {label, `{"example.com/ours":"%d"}`},
		{taintsPath, "[" + strings.Replace(ourTaint, "ours", "ours-%d", 1) + "]"},
	} {
		if h.random.IntN(3) > 0 {
			h.fields = append(h.fields, field[0], fmt.Sprintf(field[1], h.random.IntN(3)))
		}
	}
	h.give(h.fields...)
}

// write is another writer, if there is an object.
func (h *history) write() {
	if h.api.get() == nil {
		return
	}
	h.theirs++
	h.api.change(mainPart, "controller", func(o map[string]any) {
		set(o, fmt.Sprint(h.theirs), "metadata", "annotations", "theirs")
		spec, _ := o["spec"].(map[string]any)
		list, _ := spec["taints"].([]any)
		list = slices.DeleteFunc(slices.Clone(list), func(taint any) bool {
			return idOf(taint.(map[string]any)).Key == "theirs"
		})
		set(o, append(list, map[string]any{"key": "theirs", "effect": "NoSchedule", "qosLevel": fmt.Sprint(h.theirs)}),
			"spec", "taints")
	})
	h.api.change(statusPart, "controller", func(o map[string]any) {
		set(o, []any{map[string]any{"type": fmt.Sprint(h.theirs)}}, "status", "conditions")
	})
}

// end waits until everything has settled, and compares the object with what it should have.
func (h *history) end() {
	h.api.setFault(nil)
	h.after(15 * time.Minute)
	want := map[string]string{}
	for pair := range slices.Chunk(h.fields, 2) {
		if h.options.Enabled {
			want[pair[0]] = pair[1]
		}
	}
	if h.api.get() == nil {
		if len(want) > 0 {
			h.t.Errorf("there is no object, want %v", want)
		}
		return
	}
	for _, path := range []string{policy, properties, label} {
		h.expect(path, want[path])
	}
	var taints []string
	for _, taint := range liveTaints(h.api.get()) {
		taints = append(taints, idOf(taint.(map[string]any)).Key)
	}
	var keys []string
	for _, taint := range taintsOf([]byte(want[taintsPath])) {
		keys = append(keys, taint.id.Key)
	}
	if h.theirs > 0 {
		keys = append(keys, "theirs")
		h.expect("metadata.annotations", fmt.Sprintf(`{"theirs":"%d"}`, h.theirs))
		h.expect(conditionsPath, fmt.Sprintf(`[{"type":"%d"}]`, h.theirs))
	}
	slices.Sort(taints)
	if slices.Sort(keys); !slices.Equal(taints, keys) {
		h.t.Errorf("taints %v, want %v", taints, keys)
	}
}
