package fence

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Config has what a Fencer needs of the machine.
type Config struct {
	// Unified is true when the pods' cgroups are in the v2 hierarchy.
	Unified bool
	// Mounts are the mount points of the hierarchies by controller. On v2 all are the same.
	Mounts map[string]string
	// KernelLog is the device of the kernel log, /dev/kmsg if empty.
	KernelLog string
}

// Fencer sets fences. Run must run while Fence and Fence.Set are called, or these fail at their deadline; it is called
// once. All methods are safe for concurrent use.
type Fencer struct {
	config Config
	writer *writer
	// onRead is called between the read of the usage and the write of the limit. Tests set it.
	onRead func()

	mu sync.Mutex
	// prepared has open files for a fence on memory that was not set yet; nil without one.
	prepared *Fence
}

// New returns a Fencer, which opens no file.
func New(c Config) *Fencer {
	if c.KernelLog == "" {
		c.KernelLog = "/dev/kmsg"
	}
	return &Fencer{config: c, writer: newWriter(), onRead: func() {}}
}

// Run executes the writes until ctx ends. It occupies a thread while one is under way.
func (f *Fencer) Run(ctx context.Context) {
	defer f.keep(nil)
	f.writer.run(ctx)
}

// Limits is what a pod may still use.
type Limits struct {
	// Slack is how much memory the pod may use beyond what it uses now, in bytes.
	Slack int64
	// PIDs: the number of processes is limited to the present one, instead of the memory.
	PIDs bool
}

// widenings is how often the slack is doubled because the pod has used it up between the read and the write.
const widenings = 3

// ErrOutgrown is returned when the pod uses more than the limit each time it is written.
var ErrOutgrown = errors.New("the pod outgrows the limit")

// errLost: the kernel has not returned from an earlier write.
var errLost = errors.New("an earlier write has not returned")

// Fence is the fence of one pod. Its methods are safe for concurrent use, but only one of Set and Restore should be
// called at a time.
type Fence struct {
	fencer *Fencer
	cgroup string
	// dir is the directory of the cgroup in the hierarchy of the controller.
	dir    string
	limits Limits
	// caps are the limits in the order in which they are lowered. They are raised in reverse: on v1, that of memory and
	// swap together is never below that of memory.
	caps []*limit
	// group is memory.oom.group on v2, which has the OOM killer end the pod as a whole; grouped is its earlier value, nil
	// before it was set.
	group   *file
	grouped *int64
	// events is memory.events on v2.
	events *file
	log    *oomLog

	mu sync.Mutex
	// lost is true when the writer still uses the files, which it closes.
	lost, closed bool
	// forks and kills are the counters of failed forks and of OOM kills before the fence was set.
	forks, kills int64
	// oom is what the kernel log says, killed is true when a counter of OOM kills has risen.
	oom    OOM
	killed bool
}

// limit is one file with a limit, and that with what it limits.
type limit struct {
	usage, max *file
	// before is the limit that others have set last, value that of the fence once it is set. They are the same where the
	// limit of others stops the pod. When that limit is raised, the fence is computed again, so that Find recognises it.
	before, value int64
	set           bool
	fence         func(usage, slack, present int64) int64
	// atUsage is true for the limit of swap on v2, which is the present usage.
	atUsage bool
}

// Fence sets a fence on the pod cgroup with this path below the mount points. It returns after 20 ms at the latest, or
// 10 ms later if the kernel ignores signals. With an error there is no fence, or not on swap too: then the limit of
// memory is restored. A cgroup that does not exist is an error for which IsGone returns true.
func (f *Fencer) Fence(cgroup string, l Limits) (*Fence, error) {
	if p := f.take(cgroup); p != nil {
		if l.PIDs {
			p.closeFiles()
		} else if set, err := p.begin(l); !isGone(err) { // Otherwise the cgroup may have been created again.
			return set, err
		}
	}
	p, err := f.open(cgroup, l)
	if err != nil {
		return nil, err
	}
	return p.begin(l)
}

// Prepare opens the files that a fence on the memory of a pod needs, which takes longer than setting it. The next Fence
// on that pod uses them. They are closed when another pod is prepared, or Run ends. A failure is left to Fence.
func (f *Fencer) Prepare(cgroup string) {
	if p, err := f.open(cgroup, Limits{}); err == nil {
		f.keep(p)
	}
}

// keep replaces the prepared fence.
func (f *Fencer) keep(p *Fence) {
	f.mu.Lock()
	earlier := f.prepared
	f.prepared = p
	f.mu.Unlock()
	if earlier != nil {
		earlier.closeFiles()
	}
}

// take returns the prepared fence if it is one on this pod.
func (f *Fencer) take(cgroup string) *Fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.prepared
	if p == nil || p.cgroup != cgroup {
		return nil
	}
	f.prepared = nil
	return p
}

// open opens the files of a fence, which begin sets.
func (f *Fencer) open(cgroup string, l Limits) (*Fence, error) {
	p := &Fence{fencer: f, cgroup: cgroup, limits: l, log: openLog(f.config.KernelLog)}
	if err := p.open(); err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

// begin sets a fence that has open files, and returns it. With an error these are closed, and no limit is left.
func (p *Fence) begin(l Limits) (*Fence, error) {
	p.limits = l
	if p.log.skip() != nil {
		p.log.close()
		p.log = nil
	}
	p.forks = p.failedForks()
	p.kills = p.oomKills()
	if err := p.Set(); err != nil {
		return nil, errors.Join(err, p.Restore())
	}
	return p, nil
}

// IsGone is true for the error of a cgroup that does not exist any more.
func IsGone(err error) bool { return isGone(err) }

func (p *Fence) open() error {
	c := &p.fencer.config
	add := func(usage, maximum, unset string, fence func(usage, slack, present int64) int64) error {
		l := &limit{fence: fence, atUsage: len(p.caps) > 0 && c.Unified}
		var err error
		if l.max, err = openFile(p.dir, maximum, unset, unix.O_RDWR); err != nil {
			return err
		}
		if l.usage, err = openFile(p.dir, usage, "", unix.O_RDONLY); err == nil {
			l.before, err = l.max.read()
		}
		if err != nil {
			l.usage.close()
			l.max.close()
			return err
		}
		p.caps = append(p.caps, l)
		return nil
	}
	switch {
	case p.limits.PIDs:
		p.dir = filepath.Join(c.Mounts["pids"], p.cgroup)
		return add("pids.current", "pids.max", "max", func(count, _, present int64) int64 { return pidFence(count, present) })
	case c.Unified:
		p.dir = filepath.Join(c.Mounts["memory"], p.cgroup)
		if err := add("memory.current", "memory.max", "max", memoryFence); err != nil {
			return err
		}
		err := add("memory.swap.current", "memory.swap.max", "max",
			func(usage, _, present int64) int64 { return min(usage, present) })
		if err := ignoreMissing(err); err != nil {
			return err
		}
		if p.events, err = openFile(p.dir, "memory.events", "", unix.O_RDONLY); err != nil {
			return err
		}
		p.group, err = openFile(p.dir, "memory.oom.group", "0", unix.O_RDWR)
		return err
	}
	p.dir = filepath.Join(c.Mounts["memory"], p.cgroup)
	if err := add("memory.usage_in_bytes", "memory.limit_in_bytes", "-1", memoryFence); err != nil {
		return err
	}
	return ignoreMissing(add("memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes", "-1", memoryFence))
}

// ignoreMissing ignores that the kernel does not account for swap: it has no such files, or refuses to read them.
func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// Set sets the fence, again if it was set before: to the same limit, or to a higher one if the pod uses more than that.
// It takes as long as Fencer.Fence.
func (p *Fence) Set() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost || p.closed {
		return errLost
	}
	left, err := p.fencer.writer.do(p.set, p.restoreAndClose)
	p.lost = left
	return err
}

// set is executed by the writer.
func (p *Fence) set(expired func() bool) error {
	if err := p.setGroup(); err != nil {
		return err
	}
	least := int64(0)
	for _, l := range p.caps {
		if err := p.lower(l, least, expired); err != nil {
			return err
		}
		if !p.fencer.config.Unified {
			least = l.value
		}
	}
	return nil
}

// setGroup has the OOM killer end the pod as a whole. Files may have been opened long before: what is restored is the
// value from just before the fence.
func (p *Fence) setGroup() error {
	if p.group == nil {
		return nil
	}
	if p.grouped == nil {
		before, err := p.group.read()
		if err != nil {
			return err
		}
		p.grouped = &before
	}
	return p.group.write(1)
}

// lower writes one limit, at least as high as least.
func (p *Fence) lower(l *limit, least int64, expired func() bool) error {
	slack := p.limits.Slack
	for widened := 0; ; {
		usage, err := l.usage.read()
		if err != nil {
			return err
		}
		present, err := l.max.read()
		if err != nil {
			return err
		}
		own := l.set && l.value != l.before
		if !l.set || present != l.value {
			l.before = present
		}
		value := l.value
		if !own || usage > value {
			value = l.fence(usage, slack, present)
		}
		value = max(value, least)
		if value >= present {
			// The present limit stops the pod.
			l.value, l.set = present, true
			return nil
		}
		p.fencer.onRead()
		switch err := l.max.write(value); {
		case err == nil:
			l.value, l.set = value, true
			return nil
		case errors.Is(err, unix.EINTR) && expired():
			return errors.Join(ErrDeadline, err)
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EBUSY):
			return err
		case widened == widenings:
			return errors.Join(ErrOutgrown, err)
		default:
			widened++
			slack *= 2
			l.set = false
		}
		if expired() {
			return ErrDeadline
		}
	}
}

// At returns the limit of the fence: bytes of memory, or processes.
func (p *Fence) At() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caps[0].value
}

// State is what became of a fence.
type State struct {
	// Gone: the cgroup does not exist any more.
	Gone bool
	// Replaced: another program has set a higher limit.
	Replaced bool
	// Hit: the pod has grown up to the fence, and has no page cache left that it could use instead.
	Hit bool
}

// Check reads the fence back. It does not use the writer.
func (p *Fence) Check() (State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost || p.closed {
		return State{}, errLost
	}
	var s State
	for _, l := range p.caps {
		present, err := l.max.read()
		if isGone(err) {
			return State{Gone: true}, nil
		}
		if err != nil {
			return State{}, err
		}
		s.Replaced = s.Replaced || present > l.value
	}
	hit, err := p.hit()
	if isGone(err) {
		return State{Gone: true}, nil
	}
	s.Hit = hit
	return s, err
}

// Restore sets the limits that were there before the fence, or that others have set since, and closes the files. Limits
// that are not the fence any more stay. It is called once; raising a limit never waits.
func (p *Fence) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.lost {
		return nil
	}
	return p.restore()
}

// restoreAndClose is called by the writer for a fence that was left to it.
func (p *Fence) restoreAndClose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The result is not used. If the write fails, the cgroup is gone, or the next start of the agent finds the fence.
	_ = p.restore()
}

func (p *Fence) restore() error {
	defer p.closeFiles()
	p.closed = true
	var errs []error
	for i := len(p.caps) - 1; i >= 0; i-- {
		l := p.caps[i]
		if !l.set || l.value == l.before {
			continue
		}
		present, err := l.max.read()
		if err == nil && present == l.value {
			err = l.max.write(l.before)
		}
		errs = append(errs, ignoreGone(err))
	}
	if p.grouped != nil {
		errs = append(errs, ignoreGone(p.group.write(*p.grouped)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("restoring the limits of cgroup %s: %w", p.cgroup, err)
	}
	return nil
}

// Close closes the files and leaves the fence: the pod has ended.
func (p *Fence) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && !p.lost {
		p.closed = true
		p.closeFiles()
	}
}

func (p *Fence) closeFiles() {
	for _, l := range p.caps {
		l.usage.close()
		l.max.close()
	}
	p.group.close()
	p.events.close()
	p.log.close()
}
