package terminations

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// logged returns a context with a logger, and a function that returns what was logged.
func logged(t *testing.T) (context.Context, func() string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	underlier, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the logger has no buffer")
	}
	return klog.NewContext(context.Background(), logger), func() string { return underlier.GetBuffer().String() }
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func uids(s *Store) []types.UID {
	var uids []types.UID
	s.DeleteFunc(func(r Record) bool { uids = append(uids, r.UID); return false })
	slices.Sort(uids)
	return uids
}

// running starts a store; stop ends it and waits for its end.
func running(ctx context.Context, s *Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func TestSavedRecordsAreWrittenAndDeletedOnesRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "terminations")
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Directory: dir})
		defer running(t.Context(), s)()
		s.Save(evictionRecord("a"))
		s.Save(evictionRecord("b"))
		synctest.Wait()
		if got := names(t, dir); !slices.Equal(got, []string{"a.json", "b.json"}) {
			t.Errorf("files %q", got)
		}
		shorter := evictionRecord("a")
		shorter.GracePeriodSeconds, shorter.Deadline = 1, noon.Add(time.Second)
		s.Save(shorter)
		s.DeleteFunc(func(r Record) bool { return r.UID == "b" })
		synctest.Wait()

		next := New(Config{Directory: dir})
		next.Load(t.Context())
		if got, ok := next.Get("a"); !ok || !equal(got, shorter) {
			t.Errorf("loaded as %+v", got)
		}
		if got := uids(next); !slices.Equal(got, []types.UID{"a"}) {
			t.Errorf("records of %q are loaded", got)
		}
	})
}

// Run writes a record that was saved just before the agent stops.
func TestRunWritesAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := New(Config{Directory: dir})
	s.Save(evictionRecord("a"))
	s.Run(ctx)
	if got := names(t, dir); !slices.Equal(got, []string{"a.json"}) {
		t.Errorf("files %q", got)
	}
}

// Run logs a full disk once, and retries until a write succeeds.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logged(t)
		d := &faultyDisk{}
		d.fail(errFull)
		s := New(Config{Directory: dir, Filesystem: d})
		defer running(ctx, s)()
		for i := range 20 {
			s.Save(evictionRecord(types.UID(fmt.Sprintf("p%02d", i))))
			advance(time.Minute)
		}
		lines := strings.Count(log(), "Failed to write terminations to disk")
		if lines != 1 || !strings.Contains(log(), "no space left on device") {
			t.Errorf("the failure is logged %d times:\n%s", lines, log())
		}
		d.fail(nil)
		advance(lastRetry)
		if got := len(names(t, dir)); got != 20 {
			t.Errorf("%d files when the disk has space again", got)
		}
		if got := strings.Count(log(), "succeeded again"); got != 1 {
			t.Errorf("the success is logged %d times:\n%s", got, log())
		}
		tries := d.done
		advance(time.Hour)
		if d.done != tries {
			t.Errorf("%d operations on the disk without a change", d.done-tries)
		}
	})
}

// advance advances the time in the bubble, then waits until all goroutines are blocked.
func advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// A record that is not valid does not prevent the write of others, and is not retried.
func TestInvalidRecordIsNotRetried(t *testing.T) {
	dir := t.TempDir()
	ctx, log := logged(t)
	s := New(Config{Directory: dir})
	s.Save(evictionRecord("../escape"))
	bad := evictionRecord("bad")
	bad.GracePeriodSeconds = 0
	s.Save(bad)
	s.Save(evictionRecord("good"))
	if err := s.flush(klog.FromContext(ctx)); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"good.json"}) {
		t.Errorf("files %q", got)
	}
	if got := strings.Count(log(), "Termination cannot be written to disk"); got != 2 || len(s.changed) != 0 {
		t.Errorf("%d lines, pending changes %v:\n%s", got, s.changed, log())
	}
}

func TestLimit(t *testing.T) {
	dir := t.TempDir()
	s := New(Config{Directory: dir, Limit: 2})
	if !s.Save(evictionRecord("a")) || !s.Save(evictionRecord("b")) || s.Save(evictionRecord("c")) ||
		!s.Save(evictionRecord("b")) {
		t.Error("the limit is two records, and a record may be replaced")
	}
	s.DeleteFunc(func(r Record) bool { return r.UID == "a" })
	if !s.Save(evictionRecord("c")) || !slices.Equal(uids(s), []types.UID{"b", "c"}) {
		t.Errorf("records of %q", uids(s))
	}
	if err := s.flush(klog.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, log := logged(t)
	next := New(Config{Directory: dir, Limit: 1})
	next.Load(ctx)
	if got := uids(next); !slices.Equal(got, []types.UID{"b"}) ||
		!strings.Contains(log(), "Too many termination records") {
		t.Errorf("records of %q are loaded\n%s", got, log())
	}
}

func TestNoDirectory(t *testing.T) {
	ctx, log := logged(t)
	s := New(Config{Directory: filepath.Join(t.TempDir(), "none")})
	s.Load(ctx)
	if len(uids(s)) != 0 || log() != "" {
		t.Errorf("records of %q are loaded\n%s", uids(s), log())
	}
}

// Files that are not valid records do not prevent the start of the agent; Load renames them and logs their names.
func TestInvalidFilesAreRejected(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("u1.json", writtenRecord)
	write("u2.json", writtenRecord) // the record of another pod
	write("later.json", strings.Replace(writtenRecord, `"version":1`, `"version":7`, 1))
	write("truncated.json", writtenRecord[:100])
	write("empty.json", "")
	write("large.json", strings.Repeat(" ", maxSize+1))
	write(".123", "incomplete")
	write("README", "keep")
	if err := os.Mkdir(filepath.Join(dir, "dir.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range maxRejected {
		write(fmt.Sprintf("old-%02d.json%s", i, rejectedSuffix), "")
	}

	ctx, log := logged(t)
	s := New(Config{Directory: dir})
	s.Load(ctx)
	if got := uids(s); !slices.Equal(got, []types.UID{"u1"}) {
		t.Errorf("read %q", got)
	}
	for _, name := range []string{"u2", "later", "truncated", "empty", "large", "dir"} {
		if !strings.Contains(log(), filepath.Join(dir, name+".json")) {
			t.Errorf("the log does not name %s", name)
		}
		if _, err := os.Stat(filepath.Join(dir, name+".json"+rejectedSuffix)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(log(), `version: Unsupported value: 7: supported values: \"1\"`) {
		t.Errorf("the log does not name the field:\n%s", log())
	}

	ctx, log = logged(t)
	New(Config{Directory: dir}).Load(ctx)
	rejected, err := filepath.Glob(filepath.Join(dir, "*"+rejectedSuffix))
	if err != nil || len(rejected) != maxRejected || strings.Contains(log(), "Rejecting") {
		t.Errorf("%d files are rejected (%v), the log has\n%s", len(rejected), err, log())
	}
	if got := names(t, dir); !slices.Contains(got, "README") || !slices.Contains(got, "u1.json") ||
		slices.Contains(got, ".123") {
		t.Errorf("the directory has %q", got)
	}
}

// Load reads the records of a read-only file system.
func TestReadOnlyDiskIsRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"u1.json": writtenRecord, "bad.json": "", ".1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := &faultyDisk{}
	d.fail(os.ErrPermission)
	s := New(Config{Directory: dir, Filesystem: d})
	s.Load(t.Context())
	if got := uids(s); !slices.Equal(got, []types.UID{"u1"}) {
		t.Errorf("read %q", got)
	}
}

// While the machine shuts down only terminations with another cause than Kill are stored for the next boot.
func TestKillsAreNotSavedDuringShutdown(t *testing.T) {
	down := false
	s := New(Config{Directory: t.TempDir(), ShuttingDown: func() bool { return down }})
	for _, tc := range []struct {
		uid   types.UID
		cause Cause
		down  bool
		want  bool
	}{
		{"killed before", Kill, false, true},
		{"shut down", Kill, true, false},
		{"evicted", Eviction, true, true},
		{"deleted", Deletion, true, true},
	} {
		down = tc.down
		if !s.Save(Record{UID: tc.uid, Cause: tc.cause}) {
			t.Errorf("%s: limit reached", tc.uid)
		}
		if _, got := s.Get(tc.uid); got != tc.want {
			t.Errorf("%s: stored %v, want %v", tc.uid, got, tc.want)
		}
	}
}
