package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"k8s.io/utils/clock"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Name is the name of the plugin, which is that of Katalyst's.
const Name = "system-reporter-plugin"

// period is the time between two readings. Reading the speed of a network interface asks its hardware.
const period = 30 * time.Second

// Config are the parts that the plugin uses. Its functions may be called by two goroutines at a time.
type Config struct {
	// MachineInfo returns the hardware. The result is not modified. Without it numa, cpu and memory are absent.
	MachineInfo func() (*cadvisorapi.MachineInfo, error)
	// Root is the root directory of the machine, below which proc and sys are read: os.DirFS("/").
	Root fs.FS
	// CPUFlags returns whether cpu_flags is reported. It may change at any time, and counts with the next reading.
	CPUFlags func() bool
	Clock    clock.WithTicker
}

// Plugin implements reporter.Plugin.
type Plugin struct {
	config Config

	// mu guards the last answer, when its reading began, and the reading under way, nil if there is none.
	mu      sync.Mutex
	last    *answer
	at      time.Time
	running *reading
	// readings has one goroutine at most. Nobody waits for it, since a file may block.
	readings sync.WaitGroup
}

// reading is one reading of the machine. answer and err are set when done is closed.
type reading struct {
	done   chan struct{}
	answer *answer
	err    error
}

// answer is what was reported. It is immutable.
type answer struct {
	value    []byte
	contents []merge.Content
}

var _ reporter.Plugin = (*Plugin)(nil)

// New returns the plugin.
func New(config Config) *Plugin { return &Plugin{config: config} }

// GetReportContent returns nodeResourceProperties, as they were read at most 30 s ago.
func (p *Plugin) GetReportContent(ctx context.Context) ([]merge.Content, error) {
	answer, err := p.read(ctx)
	if err != nil {
		return nil, err
	}
	return answer.contents, nil
}

// ListAndWatch sends nodeResourceProperties at once and after each change.
func (p *Plugin) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	ticker := p.config.Clock.NewTicker(period)
	defer ticker.Stop()
	var sent *answer
	for {
		current, err := p.read(ctx)
		if err != nil {
			return err
		}
		if current != sent {
			send(current.contents)
			sent = current
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read reads the machine unless that was done less than a period ago. The answer is the last one, the same pointer, if
// nothing has changed. When ctx ends it returns; the reading continues, since a file may block.
func (p *Plugin) read(ctx context.Context) (*answer, error) {
	p.mu.Lock()
	now := p.config.Clock.Now()
	if p.last != nil && now.Sub(p.at) < period {
		defer p.mu.Unlock()
		return p.last, nil
	}
	r := p.running
	if r == nil {
		r = &reading{done: make(chan struct{})}
		p.running = r
		p.readings.Go(func() { p.run(r, now) })
	}
	p.mu.Unlock()
	select {
	case <-r.done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run makes a reading, which began at a time.
func (p *Plugin) run(r *reading, begun time.Time) {
	value, err := p.value()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = nil
	defer close(r.done)
	if r.err = err; err != nil {
		return
	}
	p.at = begun
	if p.last == nil || !bytes.Equal(p.last.value, value) {
		p.last = &answer{value, []merge.Content{{
			Kind: node.GroupVersionKind,
			Fields: []merge.ReportField{
				{Part: merge.Spec, Name: "NodeResourceProperties", Value: value},
			},
		}}}
	}
	r.answer = p.last
}

// value reads the machine. A panic is an error.
func (p *Plugin) value() (value []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic while the machine is read: %v", v)
		}
	}()
	facts := readFacts(&p.config)
	return json.Marshal(properties(&facts, p.config.CPUFlags()))
}
