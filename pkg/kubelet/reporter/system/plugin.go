package system

import (
	"bytes"
	"context"
	"encoding/json"
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

	// mu guards the last answer and when it was read.
	mu   sync.Mutex
	last *answer
	at   time.Time
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
func (p *Plugin) GetReportContent(context.Context) ([]merge.Content, error) {
	answer, err := p.read()
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
		current, err := p.read()
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
// nothing has changed.
func (p *Plugin) read() (*answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Clock.Now()
	if p.last != nil && now.Sub(p.at) < period {
		return p.last, nil
	}
	facts := readFacts(&p.config)
	value, err := json.Marshal(properties(&facts, p.config.CPUFlags()))
	if err != nil {
		return nil, err
	}
	p.at = now
	if p.last == nil || !bytes.Equal(p.last.value, value) {
		p.last = &answer{value, []merge.Content{{
			Kind: node.GroupVersionKind,
			Fields: []merge.ReportField{
				{Part: merge.Spec, Name: "NodeResourceProperties", Value: value},
			},
		}}}
	}
	return p.last, nil
}
