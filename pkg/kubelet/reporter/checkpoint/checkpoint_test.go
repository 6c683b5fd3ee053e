package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/checksum"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// rig is a checkpoint, the answers that it writes, and its events.
type rig struct {
	*Checkpoint
	t      *testing.T
	events *record.FakeRecorder

	mu      sync.Mutex
	current []answers.Answer
	changed chan struct{}
}

func newRig(t *testing.T, file string) *rig {
	t.Helper()
	r := &rig{t: t, events: record.NewFakeRecorder(10), changed: make(chan struct{}, 1)}
	r.Checkpoint = New(Config{
		File: file, Clock: clock.RealClock{}, Recorder: r.events, Node: &v1.ObjectReference{Kind: "Node", Name: "n"},
	})
	return r
}

func newFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "plimsoll", "reporter", "reporter_manager_checkpoint")
}

func (r *rig) set(list ...answers.Answer) {
	r.mu.Lock()
	r.current = list
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// run runs the checkpoint, inside a bubble, until the returned function is called. It returns when the answers have
// been compared with the file so long ago that the next change is written at once.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		r.Run(ctx, func() []answers.Answer {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.current
		}, r.changed)
	})
	time.Sleep(2 * writePeriod)
	return func() { cancel(); running.Wait() }
}

// count returns how many writes were counted with a result.
func count(t *testing.T, result string) int {
	t.Helper()
	n, err := testutil.GetCounterMetricValue(writes.WithLabelValues(result))
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func answerOf(plugin, value string, received time.Time) answers.Answer {
	return answers.Answer{
		Key:      answers.Key{Plugin: plugin, Socket: "/s/" + plugin},
		Received: received, Confirmed: received,
		Contents: []merge.Content{{
			Kind:   schema.GroupVersionKind{Version: "v1", Kind: "Node"},
			Fields: []merge.ReportField{{Part: merge.Metadata, Name: "Labels", Value: []byte(value)}},
		}},
	}
}

// text returns answers without their times.
func text(list []answers.Answer) string {
	var all []string
	for _, a := range list {
		all = append(all, a.Plugin+"="+string(a.Contents[0].Fields[0].Value))
	}
	return strings.Join(all, " ")
}

// What was written is restored, byte by byte, whatever the values are.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t)
		r := newRig(t, file)
		if got := r.Restore(); got != nil {
			t.Errorf("without a file there is %v", got)
		}
		received := time.Now().UTC()
		inTree := answers.Answer{Key: answers.Key{Plugin: "pressure"}, Received: received, Lost: received.Add(time.Second)}
		want := []answers.Answer{
			answerOf("a", "\x00\xff{not JSON", received), answerOf("b", `{"a":"<&>"}`, received), inTree,
		}
		stop := r.run()
		r.set(want...)
		synctest.Wait()
		stop()
		got := newRig(t, file).Restore()
		for i := range want {
			want[i].Confirmed = got[i].Confirmed
			if want[i].Contents == nil {
				want[i].Contents = []merge.Content{}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if len(r.events.Events) != 0 {
			t.Errorf("got the event %s", <-r.events.Events)
		}
	})
}

// Katalyst rewrites its checkpoint after each round (R12). Here the file is written when an answer was added, changed,
// lost or removed, and not when a plugin has given the same answer again. Not parallel: it reads a counter of the
// process.
func TestR12UnchangedAnswersAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFile(t))
		before := count(t, "ok")
		defer r.run()()
		lost := answerOf("a", "2", time.Now())
		lost.Lost = time.Now()
		for i, tc := range []struct {
			list   []answers.Answer
			writes int
		}{
			{nil, 0},
			{[]answers.Answer{answerOf("a", "1", time.Now())}, 1},
			{[]answers.Answer{answerOf("a", "1", time.Now().Add(time.Hour))}, 1},
			{[]answers.Answer{answerOf("a", "2", time.Now())}, 2},
			{[]answers.Answer{answerOf("a", "2", time.Now()), answerOf("b", "2", time.Now())}, 3},
			{[]answers.Answer{answerOf("a", "2", time.Now())}, 4},
			{[]answers.Answer{lost}, 5},
			{[]answers.Answer{lost}, 5},
			{nil, 6},
			{nil, 6},
		} {
			for range 5 {
				r.set(tc.list...)
				time.Sleep(writePeriod)
				synctest.Wait()
			}
			if n := count(t, "ok") - before; n != tc.writes {
				t.Errorf("step %d: %d writes, want %d", i, n, tc.writes)
			}
			if got := newRig(t, r.File).Restore(); text(got) != text(tc.list) {
				t.Errorf("step %d: the file has %s, want %s", i, text(got), text(tc.list))
			}
		}
	})
}

// The file of an unchanged agent stays the same one after a restart.
func TestR12RestartWithoutChangeWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFile(t))
		stop := r.run()
		r.set(answerOf("a", "1", time.Now()))
		synctest.Wait()
		stop()
		first, err := os.Stat(r.File)
		if err != nil {
			t.Fatal(err)
		}
		next := newRig(t, r.File)
		next.current = next.Restore()
		stop = next.run()
		next.set(next.current...)
		time.Sleep(time.Hour)
		stop()
		if again, err := os.Stat(r.File); err != nil || !os.SameFile(first, again) {
			t.Errorf("the file was replaced, or %v", err)
		}
	})
}

// What changes during the last write before the end is written too.
func TestAChangeAtTheEndIsWritten(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, newFile(t))
			ctx, cancel := context.WithCancel(t.Context())
			first, last := answerOf("a", "1", time.Now()), answerOf("a", "2", time.Now())
			calls := 0
			r.Run(ctx, func() []answers.Answer {
				if calls++; calls > 1 {
					return []answers.Answer{last}
				}
				r.changed <- struct{}{}
				cancel()
				return []answers.Answer{first}
			}, r.changed)
			if got, want := text(newRig(t, r.File).Restore()), text([]answers.Answer{last}); got != want {
				t.Errorf("the file has %q, want %q", got, want)
			}
		})
	}
}

// The first change is written at once, and then one in 5 s at most, the newest of them. What has changed since is
// written at the end.
func TestAtMostOneWriteInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFile(t))
		before := count(t, "ok")
		stop := r.run()
		const changes = 600 // in a minute
		for i := range changes {
			r.set(answerOf("a", fmt.Sprint(i), time.Now()))
			time.Sleep(100 * time.Millisecond)
			if i == 0 {
				synctest.Wait()
				if got := newRig(t, r.File).Restore(); text(got) != "a=0" {
					t.Errorf("the first change is not written at once: %s", text(got))
				}
			}
		}
		synctest.Wait()
		if n := count(t, "ok") - before; n < 12 || n > 13 {
			t.Errorf("%d writes in a minute", n)
		}
		r.set(answerOf("a", "last", time.Now()))
		stop()
		if got := newRig(t, r.File).Restore(); text(got) != "a=last" {
			t.Errorf("the file has %s", text(got))
		}
	})
}

// A file that cannot be used is set aside with an event, and the next write makes a new one.
func TestRejectedFiles(t *testing.T) {
	valid := func(data string) string {
		blob, err := json.Marshal(file{Data: data, Checksum: checksum.New(data)})
		if err != nil {
			t.Fatal(err)
		}
		return string(blob)
	}
	good := valid(`{"version":1,"answers":[{"plugin":"a","contents":[]}]}`)
	big := strings.Repeat(`{"kind":"a","fields":[]},`, merge.MaxContents) + `{"kind":"a","fields":[]}`
	for name, tc := range map[string]struct{ content, says string }{
		"empty":          {"", "EOF"},
		"zeros":          {strings.Repeat("\x00", 4096), "invalid character"},
		"cut":            {good[:len(good)-20], "unexpected EOF"},
		"changed":        {strings.Replace(good, `a\"`, `b\"`, 1), "corrupted"},
		"null":           {"null", "corrupted"},
		"object":         {"{}", "corrupted"},
		"two":            {good + good, "after the end"},
		"Katalyst's":     {`{"Data":{"a":{"content":[]}},"Checksum":1}`, "cannot unmarshal object"},
		"other fields":   {`{"PolicyName":"none","Checksum":1}`, "unknown field"},
		"other version":  {valid(`{"version":2,"answers":[]}`), "the version of the data is 2, not 1"},
		"no plugin":      {valid(`{"version":1,"answers":[{"contents":[]}]}`), "answer 0 has no plugin"},
		"unknown fields": {valid(`{"version":1,"answers":[],"more":1}`), `unknown field "more"`},
		"beyond limits":  {valid(`{"version":1,"answers":[{"plugin":"a","contents":[` + big + `]}]}`), "answer 0: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := newFile(t)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
				r := newRig(t, file)
				if got := r.Restore(); len(got) > 0 {
					t.Errorf("restored %v", got)
				}
				r.expectRejected(tc.says)
				if aside, err := os.ReadFile(file + rejectedSuffix); string(aside) != tc.content || err != nil {
					t.Errorf("set aside: %q, %v", aside, err)
				}
				defer r.run()()
				r.set(answerOf("a", "1", time.Now()))
				synctest.Wait()
				if got := newRig(t, file).Restore(); text(got) != "a=1" {
					t.Errorf("the new file has %q", text(got))
				}
			})
		})
	}
}

func (r *rig) expectRejected(says string) {
	r.t.Helper()
	if len(r.events.Events) != 1 {
		r.t.Fatalf("%d events, want 1", len(r.events.Events))
	}
	event := <-r.events.Events
	if !strings.HasPrefix(event, "Warning ReporterCheckpointRejected The checkpoint of reporter plugins is not used") ||
		!strings.Contains(event, says) {
		r.t.Errorf("got the event %s, want %s", event, says)
	}
}

// What is at the place of the file may be anything.
func TestNoFile(t *testing.T) {
	for name, tc := range map[string]struct {
		make func(file string) error
		says string
	}{
		"directory": {func(file string) error { return os.MkdirAll(filepath.Join(file, "a"), 0o755) }, "no regular file"},
		"pipe":      {func(file string) error { return syscall.Mkfifo(file, 0o600) }, "no regular file"},
		"long": {func(file string) error {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(file, maxFileBytes+1)
		}, "bytes, more than 201326592"},
	} {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), tc.make(file)); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, file)
			if got := r.Restore(); got != nil {
				t.Errorf("restored %v", got)
			}
			r.expectRejected(tc.says)
			if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there, or %v", err)
			}
		})
	}
}

// What was set aside before may be anything as well. The event does not name a file that does not exist.
func TestSetAsideAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		before, now func(file string) error
		says        string
	}{
		"file, directory": {
			func(aside string) error { return os.WriteFile(aside, nil, 0o600) },
			func(file string) error { return os.Mkdir(file, 0o755) }, "set aside as ",
		},
		"directory, file": {
			func(aside string) error { return os.MkdirAll(filepath.Join(aside, "a"), 0o755) },
			func(file string) error { return os.WriteFile(file, nil, 0o600) }, "cannot be set aside: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := newFile(t)
			err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), tc.before(file+rejectedSuffix), tc.now(file))
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, file)
			r.Restore()
			r.expectRejected(tc.says)
			if err := r.write([]answers.Answer{answerOf("a", "1", time.Now())}); err != nil {
				t.Error(err)
			}
		})
	}
}

// What cannot be written is tried again each 5 s, and nothing else happens.
func TestDirectoryThatCannotBeCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t)
		inTheWay := filepath.Dir(filepath.Dir(file))
		if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, file)
		if got := r.Restore(); got != nil {
			t.Errorf("restored %v", got)
		}
		ok, failed := count(t, "ok"), count(t, "error")
		defer r.run()()
		r.set(answerOf("a", "1", time.Now()))
		time.Sleep(4*writePeriod + time.Second)
		synctest.Wait()
		if n := count(t, "error") - failed; n != 5 {
			t.Errorf("%d failures, want 5", n)
		}
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
		time.Sleep(writePeriod)
		synctest.Wait()
		if n := count(t, "ok") - ok; n != 1 {
			t.Errorf("%d writes, want one", n)
		}
		if got := newRig(t, file).Restore(); text(got) != "a=1" {
			t.Errorf("the file has %q", text(got))
		}
	})
}

// fullDisk is a checkpoint manager that cannot write.
type fullDisk struct {
	checkpointmanager.CheckpointManager
	writes int
}

func (f *fullDisk) CreateCheckpoint(string, checkpointmanager.Checkpoint) error {
	f.writes++
	return syscall.ENOSPC
}

// A full disk costs the record only: the file keeps what it had, and the next attempts have the newest answers.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFile(t))
		stop := r.run()
		r.set(answerOf("a", "1", time.Now()))
		synctest.Wait()
		stop()

		disk := &fullDisk{CheckpointManager: r.manager}
		r.manager = disk
		stop = r.run()
		for i := range 100 {
			r.set(answerOf("a", fmt.Sprint(2+i), time.Now()))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		stop()
		if got := newRig(t, r.File).Restore(); text(got) != "a=1" || disk.writes > 4 {
			t.Errorf("the file has %q after %d attempts", text(got), disk.writes)
		}
		r.manager = disk.CheckpointManager
		stop = r.run()
		time.Sleep(writePeriod)
		stop()
		if got := newRig(t, r.File).Restore(); text(got) != "a=101" {
			t.Errorf("the file has %q", text(got))
		}
	})
}

// The time of modification is when the agent was last running, to 5 min, although nothing is written.
func TestTimeOfModification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newFile(t))
		stop := r.run()
		r.set(answerOf("a", "1", time.Now()))
		begun := time.Now()
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		stop()
		got := newRig(t, r.File).Restore()
		if len(got) != 1 || got[0].Confirmed.Sub(begun) != 3*time.Hour || !got[0].Received.Equal(begun) {
			t.Errorf("got %+v, want confirmed %s", got, begun.Add(3*time.Hour))
		}
	})
}

// Temporary files of a write during which the agent was killed are removed, others are not.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	r := newRig(t, newFile(t))
	dir := filepath.Dir(r.File)
	if err := os.MkdirAll(filepath.Join(dir, ".7"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".123", ".0", ".a1", ".", "taints.json", "1"} {
		if name != "." {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Restore()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{".7", ".a1", "1", "taints.json"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
