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

// history is the sequence of calls of a store whose process crashes at some file system operation.
type history struct {
	store *Store
	now   map[types.UID]*Record
	// possible lists, for each pod, the records that the disk may have: the last one that was certainly written, and all
	// later ones. A nil record stands for no file.
	possible map[types.UID][]*Record
}

func (h *history) set(uid types.UID, r *Record) {
	h.now[uid] = r
	h.possible[uid] = append(h.possible[uid], r)
}

func (h *history) step(t *rapid.T) {
	uid := types.UID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid"))
	switch rapid.IntRange(0, 3).Draw(t, "operation") {
	case 0, 1:
		r := drawRecord(t, uid)
		h.store.Save(r)
		h.set(uid, &r)
	case 2:
		h.store.DeleteFunc(func(r Record) bool { return r.UID == uid })
		h.set(uid, nil)
	case 3:
		if h.store.flush(klog.Background()) == nil {
			for uid, r := range h.now {
				h.possible[uid] = []*Record{r}
			}
		}
	}
}

// After a crash at any operation the next run reads complete records only, each of which was saved, and none that was
// certainly deleted.
func TestCrashAtAnyOperation(t *testing.T) {
	root, crashed := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(root, "*")
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(dir, "terminations")
		h := &history{now: map[types.UID]*Record{}, possible: map[types.UID][]*Record{"a": {nil}, "b": {nil}, "c": {nil}}}
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			d := &faultyDisk{crashAt: rapid.IntRange(0, 40).Draw(t, "crashAt"), late: rapid.Bool().Draw(t, "late")}
			h.store = New(Config{Directory: dir, Filesystem: d})
			h.store.Load(t.Context())
			h.checkLoaded(t)
			for range rapid.IntRange(0, 20).Draw(t, "steps") {
				h.step(t)
			}
			if d.crashAt != 0 && d.done > d.crashAt {
				crashed++
			}
		}
		h.store = New(Config{Directory: dir})
		h.store.Load(t.Context())
		h.checkLoaded(t)
		checkNoOtherFiles(t, dir)
	})
	if crashed == 0 {
		t.Error("no run has crashed")
	}
	t.Logf("%d runs crashed", crashed)
}

// checkLoaded compares the loaded records with the possible ones; from here on the loaded ones are certain.
func (h *history) checkLoaded(t *rapid.T) {
	for _, uid := range []types.UID{"a", "b", "c"} {
		var found *Record
		if r, ok := h.store.Get(uid); ok {
			found = &r
		}
		if !slices.ContainsFunc(h.possible[uid], func(r *Record) bool {
			return r == nil && found == nil || r != nil && found != nil && equal(*r, *found)
		}) {
			t.Fatalf("%s is loaded as %+v, possible are %+v", uid, found, h.possible[uid])
		}
		h.now[uid], h.possible[uid] = found, []*Record{found}
	}
}

// checkNoOtherFiles checks that the directory has no files other than records.
func checkNoOtherFiles(t *rapid.T, dir string) {
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
