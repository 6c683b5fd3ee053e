// Package plugincalls has what the drivers of eviction plugins and of reporter plugins have in common.
package plugincalls

import (
	"fmt"
	"runtime/debug"
	"sync"
)

const (
	// maxLabels is the number of names of plugins that metrics distinguish; further ones are otherPlugins.
	maxLabels    = 64
	otherPlugins = "other"
)

// Labels are the names of plugins that metrics distinguish. Plugins choose their names, so that the number is bounded.
// The zero value is ready to use. It is safe for concurrent use.
type Labels struct {
	mu    sync.Mutex
	names map[string]bool
}

// Of returns the label of metrics for a plugin.
func (l *Labels) Of(plugin string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.names[plugin] {
		if len(l.names) >= maxLabels {
			return otherPlugins
		}
		if l.names == nil {
			l.names = map[string]bool{}
		}
		l.names[plugin] = true
	}
	return plugin
}

// PanicError is a panic of a plugin in the agent.
type PanicError struct{ Value, Stack string }

func (p *PanicError) Error() string { return "panic: " + p.Value }

// Guard calls f. If it panics, the error is a *PanicError.
func Guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{fmt.Sprint(p), string(debug.Stack())}
		}
	}()
	return f()
}

// Notify puts a token into a channel of capacity one, unless there is one. It does not block.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
