package decisionlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// memory are files in memory, of a disk that may be full or hang.
type memory struct {
	mu    sync.Mutex
	files map[string]*bytes.Buffer
	// full: writes fail. small: writes of more than a header fail. hangs is not nil while writes wait until it is closed.
	full  bool
	small bool
	hangs chan struct{}
}

type memoryFile struct {
	*memory
	to *bytes.Buffer
}

func (m *memory) Create(name string) (io.WriteCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full {
		return nil, syscall.ENOSPC
	}
	if m.files == nil {
		m.files = map[string]*bytes.Buffer{}
	}
	if m.files[name] != nil {
		return nil, errors.New("exists")
	}
	m.files[name] = &bytes.Buffer{}
	return memoryFile{m, m.files[name]}, nil
}

func (f memoryFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		<-hangs
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.full || (f.small && len(p) > 10) {
		n, _ := f.to.Write(p[:len(p)/2])
		return n, syscall.ENOSPC
	}
	return f.to.Write(p)
}

func (memoryFile) Close() error { return nil }

func (m *memory) List() (list []File, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, f := range m.files {
		list = append(list, File{name, int64(f.Len())})
	}
	return list, nil
}

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) set(full bool, hangs chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full, m.hangs = full, hangs
}

func (m *memory) names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// text returns what a file has, as far as it was written.
func (m *memory) text(t *testing.T, name string) []byte {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	z, err := gzip.NewReader(bytes.NewReader(m.files[name].Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil && err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	if n := bytes.LastIndexByte(text, '\n'); n >= 0 {
		return text[:n+1]
	}
	return nil
}

// onDisk runs a test in a bubble, with a world whose records are written to files.
func onDisk(t *testing.T, maxBytes int64, maxAge time.Duration, test func(*testing.T, *world, *memory)) {
	synctest.Test(t, func(t *testing.T) {
		files := &memory{}
		disk := NewDisk(DiskConfig{Directory: "/d", Files: files, MaxBytes: maxBytes, MaxAge: maxAge, Node: "n1",
			Clock: clock.RealClock{}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { disk.Run(ctx) })
		test(t, newWorld(t, 5, Config{Disk: disk}), files)
		stop()
		running.Wait()
	})
}

// roundLater makes a round after a time, which passes in the bubble as well.
func (w *world) roundLater(after time.Duration) {
	time.Sleep(after)
	w.round(after)
	synctest.Wait()
}

func TestFilesHaveTheDecisions(t *testing.T) {
	onDisk(t, 64<<20, time.Hour, func(t *testing.T, w *world, files *memory) {
		for range 100 {
			w.available -= 50 * mi
			w.roundLater(5 * time.Second)
		}
		w.evict()
		w.log.Admission(podObject(1), Rejected, "r", "m")
		synctest.Wait()
		decisions := 0
		for _, name := range files.names() {
			list := lines(t, files.text(t, name))
			decisions += replayed(t, list)
			noSecret(t, name, string(files.text(t, name)))
		}
		if decisions != w.kept || len(files.names()) < 2 {
			t.Errorf("%d decisions in %d files, %d were kept", decisions, len(files.names()), w.kept)
		}
	})
}

func TestFilesAreBounded(t *testing.T) {
	const maxBytes = 64 << 10
	onDisk(t, maxBytes, 24*time.Hour, func(t *testing.T, w *world, files *memory) {
		files.files = map[string]*bytes.Buffer{"of-others": bytes.NewBuffer(make([]byte, 1<<20))}
		first := ""
		for i := range 600 {
			w.available = 2*gi + int64(i%10)*gi/2
			w.roundLater(time.Minute)
			if first == "" {
				first = files.names()[0]
			}
			total := 0
			for _, name := range files.names() {
				if name != "of-others" {
					total += files.files[name].Len()
				}
			}
			// A file ends with the first decision after its bound that has a state.
			if total > maxBytes+maxBytes/4 {
				t.Fatalf("%d bytes", total)
			}
		}
		if slices.Contains(files.names(), first) {
			t.Error("the oldest file is still there")
		}
		if !slices.Contains(files.names(), "of-others") {
			t.Error("a file of others was removed")
		}
		for _, name := range files.names()[:len(files.names())-1] {
			replayed(t, lines(t, files.text(t, name)))
		}
	})
}

func TestOldFilesAreRemoved(t *testing.T) {
	const maxAge = 8 * time.Hour
	onDisk(t, 1<<30, maxAge, func(t *testing.T, w *world, files *memory) {
		for range 24 * 12 {
			w.roundLater(5 * time.Minute)
			for _, name := range files.names() {
				began, err := time.Parse(filePrefix+fileTime+fileSuffix, name)
				if err != nil || time.Since(began) > maxAge+2*maxAge/filesInAge {
					t.Fatalf("%s is there at %s: %v", name, time.Now(), err)
				}
			}
		}
		if n := len(files.names()); n < 8 || n > 10 {
			t.Errorf("%d files", n)
		}
	})
}

// A full disk costs records, and says so; afterwards records are written again, to a file that can be read alone.
func TestFullDisk(t *testing.T) {
	onDisk(t, 64<<20, 24*time.Hour, func(t *testing.T, w *world, files *memory) {
		w.roundLater(time.Minute)
		files.set(true, nil)
		for range 5 {
			w.roundLater(time.Minute)
		}
		s := w.log.Status(false)
		if s.Log.LostOnDisk != 5 || !strings.Contains(s.Log.DiskError, "no space") {
			t.Errorf("%+v", s.Log)
		}
		files.set(false, nil)
		for range 5 {
			w.roundLater(time.Minute)
		}
		if s := w.log.Status(false); s.Log.DiskError != "" {
			t.Errorf("%+v", s.Log)
		}
		names := files.names()
		list := lines(t, files.text(t, names[len(names)-1]))
		if n := replayed(t, list); n != 5 {
			t.Errorf("%d decisions after the disk was full", n)
		}
		if list[0].Trace.Start.Lost == 0 {
			t.Error("the file does not say that lines were lost")
		}
	})
}

// The disk has room for the header of a file only, so that each new file can be begun. Each lost line is counted once;
// the fault is reported once, and its end once.
func TestLinesThatCannotBeFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &memory{}
		disk := NewDisk(DiskConfig{Directory: "/d", Files: files, MaxBytes: 64 << 20, MaxAge: 24 * time.Hour, Node: "n1",
			Clock: clock.RealClock{}})
		var logged []string
		logger := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		var running sync.WaitGroup
		running.Go(func() { disk.Run(ctx) })
		w := newWorld(t, 5, Config{Disk: disk})
		w.roundLater(time.Minute)
		files.mu.Lock()
		files.small = true
		files.mu.Unlock()
		lost := int64(0)
		for range 5 {
			// Several lines for one flush: these are in the queue before the goroutine of the files runs.
			for range 3 {
				w.log.Admission(podObject(1), Rejected, "r", "m")
			}
			w.roundLater(time.Minute)
			lost += 4
			if s := w.log.Status(false); s.Log.LostOnDisk != lost || !strings.Contains(s.Log.DiskError, "no space") {
				t.Fatalf("%d lines are lost: %+v", lost, s.Log)
			}
		}
		if len(logged) != 1 {
			t.Errorf("%d lines in the log: %q", len(logged), logged)
		}
		files.mu.Lock()
		files.small = false
		files.mu.Unlock()
		w.roundLater(time.Minute)
		if s := w.log.Status(false); s.Log.LostOnDisk != lost || s.Log.DiskError != "" || len(logged) != 2 {
			t.Errorf("%+v, %q", s.Log, logged)
		}
		names := files.names()
		list := lines(t, files.text(t, names[len(names)-1]))
		if list[0].Trace.Start.Lost != lost {
			t.Errorf("the file says that %d lines were lost", list[0].Trace.Start.Lost)
		}
		stop()
		running.Wait()
	})
}

// While a disk is full files can be created still. None of them stays.
func TestAFullDiskIsNotFilledWithFiles(t *testing.T) {
	onDisk(t, 64<<20, 24*time.Hour, func(t *testing.T, w *world, files *memory) {
		w.roundLater(time.Minute)
		files.mu.Lock()
		files.small = true
		files.mu.Unlock()
		for range 100 {
			w.roundLater(time.Minute)
		}
		files.mu.Lock()
		files.small = false
		files.mu.Unlock()
		w.roundLater(time.Minute)
		if names := files.names(); len(names) != 2 {
			t.Errorf("%d files: one is from before the disk was full, one from afterwards", len(names))
		}
	})
}

// waiting returns how many bytes wait for the disk.
func (d *Disk) waiting() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queued
}

// A disk that hangs costs records. The log goes on, and what waits for the disk is bounded.
func TestHangingDisk(t *testing.T) {
	onDisk(t, 64<<20, 24*time.Hour, func(t *testing.T, w *world, files *memory) {
		w.roundLater(time.Minute)
		hangs := make(chan struct{})
		files.set(false, hangs)
		for range 1500 {
			w.round(time.Minute)
			if n := w.log.Disk.waiting(); n > diskQueueBytes {
				t.Fatalf("%d bytes wait for the disk", n)
			}
		}
		if s := w.log.Status(false); s.Log.LostOnDisk == 0 || s.Log.Records != w.kept {
			t.Errorf("%+v, %d kept", s.Log, w.kept)
		}
		files.set(false, nil)
		close(hangs)
		synctest.Wait()
		for range 3 {
			w.roundLater(time.Minute)
		}
		var last uint64
		for _, name := range files.names() {
			for _, l := range lines(t, files.text(t, name)) {
				if l.Trace.Decision != nil {
					last = l.Trace.Decision.Number
				}
			}
		}
		if list, _ := listed(w.log, &Query{Limit: 1}); last != list.Items[0].Number {
			t.Errorf("the last decision in files is %d, in memory %d", last, list.Items[0].Number)
		}
	})
}

func TestDirectory(t *testing.T) {
	d := Directory(t.TempDir() + "/a/b")
	if list, err := d.List(); err != nil || list != nil {
		t.Fatal(list, err)
	}
	f, err := d.Create("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "12345"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create("x"); err == nil {
		t.Error("a file was created twice")
	}
	if list, err := d.List(); err != nil || len(list) != 1 || list[0] != (File{"x", 5}) {
		t.Error(list, err)
	}
	if err := d.Remove("x"); err != nil {
		t.Error(err)
	}
}
