package eviction

import (
	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// SetOptions sets options for all following rounds. State is kept: grace periods, node conditions, and evictions in
// flight. It is safe for concurrent use; the last call takes effect.
func (m *Manager) SetOptions(o settings.Options) {
	m.newOptions.Store(&o)
	m.Wake()
}

// Options returns the options in force. The caller must not modify what they refer to.
func (m *Manager) Options() settings.Options { return *m.options.Load() }

// takeOptions applies options that were set since the last round. Only the goroutine of Run calls it.
func (m *Manager) takeOptions() {
	if o := m.newOptions.Swap(nil); o != nil {
		m.adopt(*o)
	}
}

// adopt puts options in force. New calls it, and then only the goroutine of Run.
func (m *Manager) adopt(o settings.Options) {
	l := &m.loop
	l.rules = m.config.Rules(&o)
	l.configured, l.underived, l.frozen = l.rules.Thresholds, true, nil
	if l.watcher != nil {
		l.watcher.Adopt(&o)
	}
	m.options.Store(&o)
}

// eventAnnotationIgnored is the reason of an event on a pod whose annotations have no effect.
const eventAnnotationIgnored = "EvictionAnnotationIgnored"

// checkAnnotations records an event if annotations of a pod that is admitted have no effect.
func (m *Manager) checkAnnotations(pod *v1.Pod) {
	if err := m.options.Load().Protection.CheckAnnotations(pod); err != nil {
		m.config.Recorder.Event(pod, v1.EventTypeWarning, eventAnnotationIgnored, err.Error())
	}
}
