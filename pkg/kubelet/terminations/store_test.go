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

// logged is a context whose log lines are returned by the function.
func logged(t *testing.T) (context.Context, func() string) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	underlier, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the log cannot be read")
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
	s.Retain(func(r Record) bool { uids = append(uids, r.UID); return true })
	slices.Sort(uids)
	return uids
}

// running runs a store in a bubble until stop is called.
func running(ctx context.Context, s *Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func TestKeptIsWrittenAndForgottenIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "terminations")
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Directory: dir})
		defer running(t.Context(), s)()
		s.Keep(evicted("a"))
		s.Keep(evicted("b"))
		synctest.Wait()
		if got := names(t, dir); !slices.Equal(got, []string{"a.json", "b.json"}) {
			t.Errorf("files %q", got)
		}
		shorter := evicted("a")
		shorter.GraceSeconds, shorter.Deadline = 1, noon.Add(time.Second)
		s.Keep(shorter)
		s.Retain(func(r Record) bool { return r.UID != "b" })
		synctest.Wait()

		next := New(Config{Directory: dir})
		next.Load(t.Context())
		if got, ok := next.Get("a"); !ok || !same(got, shorter) {
			t.Errorf("read as %+v", got)
		}
		if got := uids(next); !slices.Equal(got, []types.UID{"a"}) {
			t.Errorf("read of %q", got)
		}
	})
}

// What was kept just before the agent stops is written.
func TestWrittenAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := New(Config{Directory: dir})
	s.Keep(evicted("a"))
	s.Run(ctx)
	if got := names(t, dir); !slices.Equal(got, []string{"a.json"}) {
		t.Errorf("files %q", got)
	}
}

// A full disk is one line in the log, and tried again until it has room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logged(t)
		d := &disk{}
		d.fail(errFull)
		s := New(Config{Directory: dir, Filesystem: d})
		defer running(ctx, s)()
		for i := range 20 {
			s.Keep(evicted(types.UID(fmt.Sprintf("p%02d", i))))
			pass(time.Minute)
		}
		if got := strings.Count(log(), "cannot be kept on disk"); got != 1 || !strings.Contains(log(), "no space left on device") {
			t.Errorf("%d lines about it:\n%s", got, log())
		}
		d.fail(nil)
		pass(lastRetry)
		if got := len(names(t, dir)); got != 20 {
			t.Errorf("%d files when there is room again", got)
		}
		if got := strings.Count(log(), "kept on disk again"); got != 1 {
			t.Errorf("%d lines about its end:\n%s", got, log())
		}
		tries := d.done
		pass(time.Hour)
		if d.done != tries {
			t.Errorf("%d operations on the disk with nothing to do", d.done-tries)
		}
	})
}

// pass lets time pass until everything has come to rest.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// A record that cannot be written for what it says does not hold up others, and is not tried again.
func TestUnusableRecord(t *testing.T) {
	dir := t.TempDir()
	ctx, log := logged(t)
	s := New(Config{Directory: dir})
	s.Keep(evicted("../escape"))
	bad := evicted("bad")
	bad.GraceSeconds = 0
	s.Keep(bad)
	s.Keep(evicted("good"))
	if err := s.flush(klog.FromContext(ctx)); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"good.json"}) {
		t.Errorf("files %q", got)
	}
	if got := strings.Count(log(), "A termination cannot be kept"); got != 2 || len(s.changed) != 0 {
		t.Errorf("%d lines, still to write %v:\n%s", got, s.changed, log())
	}
}

func TestLimit(t *testing.T) {
	dir := t.TempDir()
	s := New(Config{Directory: dir, Limit: 2})
	if !s.Keep(evicted("a")) || !s.Keep(evicted("b")) || s.Keep(evicted("c")) || !s.Keep(evicted("b")) {
		t.Error("two are allowed, and to replace one")
	}
	s.Retain(func(r Record) bool { return r.UID != "a" })
	if !s.Keep(evicted("c")) || !slices.Equal(uids(s), []types.UID{"b", "c"}) {
		t.Errorf("kept %q", uids(s))
	}
	if err := s.flush(klog.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, log := logged(t)
	next := New(Config{Directory: dir, Limit: 1})
	next.Load(ctx)
	if got := uids(next); !slices.Equal(got, []types.UID{"b"}) || !strings.Contains(log(), "Too many records") {
		t.Errorf("read %q\n%s", got, log())
	}
}

func TestNoDirectory(t *testing.T) {
	ctx, log := logged(t)
	s := New(Config{Directory: filepath.Join(t.TempDir(), "none")})
	s.Load(ctx)
	if len(uids(s)) != 0 || log() != "" {
		t.Errorf("read %q\n%s", uids(s), log())
	}
}

// Whatever is in the directory, the agent starts; what is no record is set aside and named in the log.
func TestStrangeFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("u1.json", written)
	write("u2.json", written) // another pod's
	write("later.json", strings.Replace(written, `"version":1`, `"version":7`, 1))
	write("cut.json", written[:100])
	write("empty.json", "")
	write("large.json", strings.Repeat(" ", maxSize+1))
	write(".123", "half a rec")
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
	for _, name := range []string{"u2", "later", "cut", "empty", "large", "dir"} {
		if !strings.Contains(log(), filepath.Join(dir, name+".json")) {
			t.Errorf("the log does not name %s", name)
		}
		if _, err := os.Stat(filepath.Join(dir, name+".json"+rejectedSuffix)); err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(log(), `version: Unsupported value: 7: supported values: \"1\"`) {
		t.Errorf("the log does not say which field:\n%s", log())
	}

	ctx, log = logged(t)
	New(Config{Directory: dir}).Load(ctx)
	rejected, err := filepath.Glob(filepath.Join(dir, "*"+rejectedSuffix))
	if err != nil || len(rejected) != maxRejected || strings.Contains(log(), "set aside") {
		t.Errorf("%d files are set aside (%v), the log says\n%s", len(rejected), err, log())
	}
	if got := names(t, dir); !slices.Contains(got, "README") || !slices.Contains(got, "u1.json") || slices.Contains(got, ".123") {
		t.Errorf("left are %q", got)
	}
}

// A disk on which nothing can be changed does not keep records from being read.
func TestReadOnlyDiskIsRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"u1.json": written, "bad.json": "", ".1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := &disk{}
	d.fail(os.ErrPermission)
	s := New(Config{Directory: dir, Filesystem: d})
	s.Load(t.Context())
	if got := uids(s); !slices.Equal(got, []types.UID{"u1"}) {
		t.Errorf("read %q", got)
	}
}
