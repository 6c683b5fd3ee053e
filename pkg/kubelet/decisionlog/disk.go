package decisionlog

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// diskQueueBytes bounds the lines that wait for the disk.
	diskQueueBytes = 2 << 20
	// diskRetry is the time after a failure before the next file is begun.
	diskRetry = 10 * time.Second
	// filesInLimit: a file has at most this fraction (an eighth) of what all files may have, so that removing the oldest
	// one removes little.
	filesInLimit = 8
	// filesInAge: a file has at most this fraction of the greatest age.
	filesInAge = 8

	filePrefix, fileSuffix = "decisions-", ".jsonl.gz"
	// fileTime sorts as time does.
	fileTime = "20060102T150405.000000000Z"
)

// Files are the files of one directory.
type Files interface {
	// Create creates a file, which must not exist.
	Create(name string) (io.WriteCloser, error)
	// List returns the names and sizes of all files.
	List() ([]File, error)
	Remove(name string) error
}

// File is a file of the directory.
type File struct {
	Name  string
	Bytes int64
}

// DiskConfig is the configuration of a Disk. All fields are required.
type DiskConfig struct {
	Directory string
	Files     Files
	// MaxBytes bounds the size of all files together, MaxAge the age of the newest line of a file.
	MaxBytes int64
	MaxAge   time.Duration
	Node     string
	Clock    clock.WithTicker
}

// Disk writes lines to compressed files: JSON lines, each file a trace of its own. Run writes; every other method
// returns at once, and may be called on a nil Disk, which writes nothing. Lines that the disk does not take in time are
// lost and counted.
type Disk struct {
	DiskConfig
	lost     atomic.Int64
	needsNew atomic.Bool
	fault    atomic.Pointer[string]

	mu     sync.Mutex
	queue  []diskItem
	queued int
	more   chan struct{}

	// What follows belongs to the goroutine of Run.

	file     *diskFile
	retryAt  time.Time
	reported bool
}

// diskItem is a line, or a decision.
type diskItem struct {
	line     []byte
	decision *diskDecision
}

// diskDecision is the line of a decision with what has to be in the file before it.
type diskDecision struct {
	text      []byte
	withState bool
	rules     debugv1alpha1.PressureTraceRules
	pods      []*snapshot.Facts
	// allPods: the pods are all of the node.
	allPods bool
}

// diskFile is the file that is being written.
type diskFile struct {
	name  string
	began time.Time
	out   io.WriteCloser
	// counted counts what is written to out.
	counted countingWriter
	zip     *gzip.Writer
	rules   map[string]bool
	pods    map[*snapshot.Facts]bool
	// unflushed is how many lines were written since the last flush. They are lost if that fails. flushed: a flush has
	// succeeded.
	unflushed int
	flushed   bool
}

type countingWriter struct {
	to      io.Writer
	written int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	w.written += int64(n)
	return n, err
}

// NewDisk returns a Disk that writes when Run is called.
func NewDisk(c DiskConfig) *Disk { return &Disk{DiskConfig: c, more: make(chan struct{}, 1)} }

// wantsState reports whether the next decision needs its state: a new file is to begin, or lines were lost.
func (d *Disk) wantsState() bool { return d != nil && d.needsNew.Swap(false) }

func (d *Disk) decision(x diskDecision) {
	if d != nil {
		d.put(diskItem{decision: &x}, len(x.text))
	}
}

func (d *Disk) line(text []byte) {
	if d != nil {
		d.put(diskItem{line: text}, len(text))
	}
}

func (d *Disk) put(i diskItem, size int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queued+size > diskQueueBytes {
		d.lose(lostQueueFull, 1)
		return
	}
	d.queue = append(d.queue, i)
	d.queued += size
	select {
	case d.more <- struct{}{}:
	default:
	}
}

func (d *Disk) lose(reason string, lines int) {
	d.lost.Add(int64(lines))
	d.needsNew.Store(true)
	recordsLost.WithLabelValues(reason).Add(float64(lines))
}

// Run writes until ctx ends, and then what is queued. While the disk hangs, it does not return.
func (d *Disk) Run(ctx context.Context) {
	defer d.closeFile(ctx)
	for {
		select {
		case <-d.more:
			d.write(ctx)
		case <-ctx.Done():
			d.write(ctx)
			return
		}
	}
}

// write writes all lines that are queued.
func (d *Disk) write(ctx context.Context) {
	for {
		d.mu.Lock()
		items := d.queue
		d.queue, d.queued = nil, 0
		d.mu.Unlock()
		if len(items) == 0 {
			break
		}
		for i := range items {
			if err := d.writeItem(ctx, &items[i]); err != nil {
				d.lose(lostDiskError, 1)
				d.fail(ctx, err)
			} else {
				d.file.unflushed++
			}
		}
	}
	if f := d.file; f != nil && f.unflushed > 0 {
		if err := f.zip.Flush(); err != nil {
			d.fail(ctx, err)
			return
		}
		d.succeeded(ctx)
	}
}

var errPaused = errors.New("waiting after a failure")

// writeItem writes one item. A file that is full ends before a decision that has its state.
func (d *Disk) writeItem(ctx context.Context, i *diskItem) error {
	now := d.Clock.Now()
	begins := i.decision != nil && i.decision.withState
	if d.file != nil && begins && d.isFull(now) {
		d.closeFile(ctx)
	}
	if d.file == nil {
		if now.Before(d.retryAt) {
			return errPaused
		}
		if err := d.open(now); err != nil {
			return err
		}
	}
	f := d.file
	if i.decision == nil {
		_, err := f.zip.Write(i.line)
		return err
	}
	if err := f.introduce(i.decision); err != nil {
		return err
	}
	if _, err := f.zip.Write(i.decision.text); err != nil {
		return err
	}
	if d.isFull(now) {
		d.needsNew.Store(true)
	}
	return nil
}

// succeeded withdraws the fault. A line that was only passed to the compressor is no success: a disk may be full for
// what that writes later.
func (d *Disk) succeeded(ctx context.Context) {
	d.file.unflushed, d.file.flushed = 0, true
	if d.reported {
		d.reported = false
		d.fault.Store(nil)
		klog.FromContext(ctx).Info("Decision log: files are written again", "directory", d.Directory)
	}
}

func (d *Disk) isFull(now time.Time) bool {
	return d.file.counted.written >= d.MaxBytes/filesInLimit || now.Sub(d.file.began) >= d.MaxAge/filesInAge
}

// open begins a file, after old ones were removed.
func (d *Disk) open(now time.Time) error {
	if err := d.prune(now); err != nil {
		return err
	}
	name := filePrefix + now.UTC().Format(fileTime) + fileSuffix
	out, err := d.Files.Create(name)
	if err != nil {
		return err
	}
	f := &diskFile{name: name, began: now, out: out, rules: map[string]bool{}, pods: map[*snapshot.Facts]bool{}}
	f.counted.to = out
	// An error is possible for invalid levels only.
	f.zip, _ = gzip.NewWriterLevel(&f.counted, gzip.BestSpeed)
	d.file = f
	start := &debugv1alpha1.PressureTraceStart{Node: d.Node, Time: now, Lost: d.lost.Load()}
	return f.encode(&debugv1alpha1.PressureTrace{
		APIVersion: debugv1alpha1.PressureAPIVersion, Kind: debugv1alpha1.PressureTraceKind, Start: start,
	})
}

// prune removes the oldest files, until what is left and the next file are within the bounds.
func (d *Disk) prune(now time.Time) error {
	all, err := d.Files.List()
	if err != nil {
		return err
	}
	type ours struct {
		File
		began time.Time
	}
	var list []ours
	total := d.MaxBytes / filesInLimit // the next one
	for _, f := range all {
		middle, ok := strings.CutPrefix(f.Name, filePrefix)
		middle, ok2 := strings.CutSuffix(middle, fileSuffix)
		began, err := time.Parse(fileTime, middle)
		if ok && ok2 && err == nil {
			list = append(list, ours{f, began})
			total += f.Bytes
		}
	}
	slices.SortFunc(list, func(a, b ours) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range list {
		// A file is written for a part of MaxAge: its newest line is at most that much newer.
		old := now.Sub(f.began) > d.MaxAge+d.MaxAge/filesInAge
		if total <= d.MaxBytes && !old {
			break
		}
		if err := d.Files.Remove(f.Name); err != nil {
			return err
		}
		total -= f.Bytes
	}
	return nil
}

// introduce writes the rules and pods that the file does not have.
func (f *diskFile) introduce(x *diskDecision) error {
	if !f.rules[x.rules.ID] {
		if err := f.encode(&debugv1alpha1.PressureTrace{Rules: &x.rules}); err != nil {
			return err
		}
		f.rules[x.rules.ID] = true
	}
	for _, facts := range x.pods {
		if f.pods[facts] {
			continue
		}
		pod, err := trace.EncodePod(facts)
		if err != nil {
			return err
		}
		if err := f.encode(&debugv1alpha1.PressureTrace{Pod: &pod}); err != nil {
			return err
		}
		f.pods[facts] = true
	}
	if x.allPods && len(f.pods) > len(x.pods) {
		// The others are gone. One that comes back is written again.
		clear(f.pods)
		for _, facts := range x.pods {
			f.pods[facts] = true
		}
	}
	return nil
}

func (f *diskFile) encode(line *debugv1alpha1.PressureTrace) error {
	text, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encoding a line: %w", err)
	}
	_, err = f.zip.Write(append(text, '\n'))
	return err
}

// fail gives the file up: what was written of it stays. The next one begins after diskRetry. A file that has nothing
// yet is removed: while a disk is full files can still be created, and there would be one more after each pause.
func (d *Disk) fail(ctx context.Context, err error) {
	if errors.Is(err, errPaused) {
		return
	}
	d.fault.Store(new(trace.Cut(err.Error())))
	d.retryAt = d.Clock.Now().Add(diskRetry)
	d.needsNew.Store(true)
	if f := d.file; f != nil {
		d.file = nil
		d.lose(lostDiskError, f.unflushed)
		_ = f.out.Close()
		if !f.flushed {
			_ = d.Files.Remove(f.name)
		}
	}
	if !d.reported {
		d.reported = true
		klog.FromContext(ctx).Error(err, "Decision log: files cannot be written, records are lost", "directory", d.Directory)
	}
}

func (d *Disk) closeFile(ctx context.Context) {
	f := d.file
	if f == nil {
		return
	}
	d.file = nil
	if err := errors.Join(f.zip.Close(), f.out.Close()); err != nil {
		d.lose(lostDiskError, f.unflushed)
		d.fail(ctx, err)
	}
}

// state fills in what the page shows of the files.
func (d *Disk) state(l *debugv1alpha1.PressureLog) {
	if d == nil {
		return
	}
	l.Directory, l.LostOnDisk = d.Directory, d.lost.Load()
	if fault := d.fault.Load(); fault != nil {
		l.DiskError = *fault
	}
}
