package terminations

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"
)

// A history of what was asked of a store whose agent dies at some operation on the disk.
type history struct {
	store *Store
	now   map[types.UID]*Record
	// possible is, for each pod, what the disk may say: what it said for certain last, and everything since.
	possible map[types.UID][]*Record
}

func (h *history) set(uid types.UID, r *Record) {
	h.now[uid] = r
	h.possible[uid] = append(h.possible[uid], r)
}

func (h *history) step(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid"))
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0, 1:
		r := drawRecord(t, uid)
		h.store.Keep(r)
		h.set(uid, &r)
	case 2:
		h.store.Retain(func(r Record) bool { return r.UID != uid })
		h.set(uid, nil)
	case 3:
		if h.store.flush(klog.Background()) == nil {
			for uid, r := range h.now {
				h.possible[uid] = []*Record{r}
			}
		}
	}
}

// Wherever the agent dies: what was written is read by the next run, whole; nothing is read that was not kept, or that is known to be gone.
func TestAgentDiesAtAnyOperation(t *testing.T) {
	root, died := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "*")
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(dir, "terminations")
		h := &history{now: map[types.UID]*Record{}, possible: map[types.UID][]*Record{"a": {nil}, "b": {nil}, "c": {nil}}}
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			d := &disk{dieAt: rapid.IntRange(0, 40).Draw(t, "dieAt"), late: rapid.Bool().Draw(t, "late")}
			h.store = New(Config{Directory: dir, Filesystem: d})
			h.store.Load(t.Context())
			h.checkLoaded(t)
			for range rapid.IntRange(0, 20).Draw(t, "steps") {
				h.step(t)
			}
			if d.dieAt != 0 && d.done > d.dieAt {
				died++
			}
		}
		h.store = New(Config{Directory: dir})
		h.store.Load(t.Context())
		h.checkLoaded(t)
		checkTidy(t, dir)
	})
	if died == 0 {
		t.Error("no agent has died")
	}
	t.Logf("%d agents died", died)
}

// checkLoaded holds what was read against what may be, and takes it for certain from here on.
func (h *history) checkLoaded(t *rapid.T) {
	for _, uid := range []types.UID{"a", "b", "c"} {
		var found *Record
		if r, ok := h.store.Get(uid); ok {
			found = &r
		}
		if !slices.ContainsFunc(h.possible[uid], func(r *Record) bool {
			return r == nil && found == nil || r != nil && found != nil && same(*r, *found)
		}) {
			t.Fatalf("read of %s: %+v; possible are %+v", uid, found, h.possible[uid])
		}
		h.now[uid], h.possible[uid] = found, []*Record{found}
	}
}

// checkTidy holds that nothing is left beside records.
func checkTidy(t *rapid.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, hidden...) {
		if _, ok := uidOf(filepath.Base(name)); !ok {
			t.Fatalf("%s is left", name)
		}
	}
}
