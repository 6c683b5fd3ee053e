package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	checkpointerrors "k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
)

const (
	// writePeriod is the time between two writes at least.
	writePeriod = 5 * time.Second
	// touchPeriod is the time between two settings of the time of modification.
	touchPeriod = 5 * time.Minute
	// maxFileBytes is the greatest size of a file that is read. It has room for all answers at their limits.
	maxFileBytes = 192 << 20
	// rejectedSuffix is that of a file that is not used.
	rejectedSuffix = ".rejected"
	// eventRejected is the reason of the event on the Node about such a file.
	eventRejected = "ReporterCheckpointRejected"
)

// Config is what a Checkpoint works with. All fields are required, except Logger.
type Config struct {
	// File is the absolute path of the file. Its directory is created.
	File  string
	Clock clock.WithTicker
	// Recorder writes the event of a file that is not used about Node.
	Recorder record.EventRecorder
	Node     *v1.ObjectReference
	Logger   klog.Logger
}

// Checkpoint is the file with the last answers. It is for one goroutine at a time: first Restore, then Run, each once.
type Checkpoint struct {
	Config
	// written is the digest of what the file has.
	written digest
	// manager writes; nil until the directory could be created.
	manager checkpointmanager.CheckpointManager
	// compared is when the answers were last compared with the file, touched when the time of modification was last set;
	// zero for never. compared is also that of the last attempt to write.
	compared, touched time.Time
	// failing is true if the last write has failed.
	failing bool
}

// New returns a checkpoint. It reads and writes nothing.
func New(config Config) *Checkpoint {
	registerMetrics()
	return &Checkpoint{Config: config, written: digestOf(nil)}
}

// Restore returns the answers that the file has, for answers.Store.Restore, which leaves out those that are too old;
// none if there is no file. A file that is damaged, empty or of another program is set aside with the suffix
// ".rejected", which replaces one set aside before, and an event on the Node has the reason.
func (c *Checkpoint) Restore() []answers.Answer {
	c.removeTemporaryFiles()
	list, err := c.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		c.setAside(err)
		return nil
	}
	c.written = digestOf(list)
	return list
}

// read returns the answers in the file. The error is fs.ErrNotExist if there is none.
func (c *Checkpoint) read() ([]answers.Answer, error) {
	info, err := os.Stat(c.File)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no regular file, but %s", info.Mode().Type())
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("the file has %d bytes, more than %d", info.Size(), maxFileBytes)
	}
	if err := c.open(); err != nil {
		return nil, err
	}
	file := &file{}
	err = c.manager.GetCheckpoint(filepath.Base(c.File), file)
	if errors.Is(err, checkpointerrors.ErrCheckpointNotFound) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	return decode(file.Data, info.ModTime())
}

func (c *Checkpoint) setAside(why error) {
	aside := c.File + rejectedSuffix
	err := os.Rename(c.File, aside)
	if err != nil {
		_ = os.Remove(aside) // only a file of the same kind is replaced
		err = os.Rename(c.File, aside)
	}
	where := "set aside as " + aside
	if err != nil {
		where = "cannot be set aside: " + err.Error()
	}
	c.Logger.Error(why, "Reporter plugins: checkpoint is not used", "file", c.File, "where", where)
	c.Recorder.Eventf(c.Node, v1.EventTypeWarning, eventRejected,
		"The checkpoint of reporter plugins is not used (%v), and %s", why, where)
}

// removeTemporaryFiles removes what the checkpoint manager leaves behind if the agent is killed during a write: files
// whose names are a dot and a number.
func (c *Checkpoint) removeTemporaryFiles() {
	entries, err := os.ReadDir(filepath.Dir(c.File))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Logger.Error(err, "Reporter plugins: directory of the checkpoint cannot be read")
	}
	for _, e := range entries {
		number, dot := strings.CutPrefix(e.Name(), ".")
		if !dot || number == "" || strings.Trim(number, "0123456789") != "" || !e.Type().IsRegular() {
			continue
		}
		if err := os.Remove(filepath.Join(filepath.Dir(c.File), e.Name())); err != nil {
			c.Logger.Error(err, "Reporter plugins: temporary file of the checkpoint cannot be removed")
		}
	}
}

// Run writes the answers that current returns, whenever they have changed, until ctx is done. changed has a token after
// a change. current is not called by another goroutine of this package.
func (c *Checkpoint) Run(ctx context.Context, current func() []answers.Answer, changed <-chan struct{}) {
	pending := true
	timer := c.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(0, c.due(pending).Sub(c.Clock.Now())))
		select {
		case <-ctx.Done():
			c.compare(current()) // there may be a token in changed
			return
		case <-changed:
			pending = true
		case <-timer.C():
			switch now := c.Clock.Now(); {
			case now.Before(c.due(pending)):
			case pending:
				pending = !c.compare(current())
			default:
				c.touch(now)
			}
		}
	}
}

// due returns when the answers are compared with the file, if they have changed, else when the time of modification is
// set.
func (c *Checkpoint) due(pending bool) time.Time {
	if pending {
		return c.compared.Add(writePeriod)
	}
	return c.touched.Add(touchPeriod)
}

// compare writes the answers if the file has others. It returns whether the file has these answers.
func (c *Checkpoint) compare(list []answers.Answer) bool {
	c.compared = c.Clock.Now()
	digest := digestOf(list)
	if digest == c.written {
		return true
	}
	err := c.write(list)
	countWrite(err)
	if err == nil {
		c.written, c.touched = digest, c.compared
	}
	switch {
	case err != nil && !c.failing:
		c.Logger.Error(err, "Reporter plugins: checkpoint cannot be written, which is tried again", "file", c.File)
	case err == nil && c.failing:
		c.Logger.Info("Reporter plugins: checkpoint is written again", "file", c.File)
	}
	c.failing = err != nil
	return err == nil
}

func (c *Checkpoint) write(list []answers.Answer) error {
	if err := c.open(); err != nil {
		return err
	}
	file, err := encode(list)
	if err != nil {
		return err
	}
	return c.manager.CreateCheckpoint(filepath.Base(c.File), file)
}

func (c *Checkpoint) open() (err error) {
	if c.manager == nil {
		c.manager, err = checkpointmanager.NewCheckpointManager(filepath.Dir(c.File))
	}
	return err
}

// touch sets the time of modification. That the file does not exist is no error: nothing has been written.
func (c *Checkpoint) touch(now time.Time) {
	c.touched = now
	if err := os.Chtimes(c.File, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Logger.Error(err, "Reporter plugins: time of the checkpoint cannot be set", "file", c.File)
	}
}
