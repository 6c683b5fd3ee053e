package reporter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
)

// loop is the state of Run. One goroutine uses it.
type loop struct {
	*Driver
	ctx     context.Context
	callers map[answers.Run]*caller
	// turns are those of plugins in the agent, by name.
	turns map[string]*turns
	// calls counts the goroutines of polls and streams.
	calls sync.WaitGroup
	timer clock.Timer
	// lastPoll is when all plugins were polled, zero if they never were; nextExpiry is when an answer is removed, zero for
	// never.
	lastPoll, nextExpiry time.Time
}

// wait returns a channel that receives when something is due; nil if nothing is.
func (l *loop) wait() <-chan time.Time {
	due := l.nextExpiry
	if next := l.nextPoll(); len(l.callers) > 0 && (due.IsZero() || next.Before(due)) {
		due = next
	}
	if due.IsZero() {
		if l.timer != nil {
			l.timer.Stop()
		}
		return nil
	}
	left := max(0, due.Sub(l.config.Clock.Now()))
	if l.timer == nil {
		l.timer = l.config.Clock.NewTimer(left)
	} else {
		l.timer.Reset(left)
	}
	return l.timer.C()
}

func (l *loop) nextPoll() time.Time { return l.lastPoll.Add(l.options.Load().Period) }

// act does what is due.
func (l *loop) act() {
	now := l.config.Clock.Now()
	grace := l.options.Load().StopGracePeriod
	var expired []answers.Endpoint
	l.update(func(s *answers.Store, now time.Time) {
		expired, l.nextExpiry = s.Expire(now, grace), s.NextExpiry(grace)
	})
	for i := range expired {
		e := &expired[i]
		klog.FromContext(l.ctx).Info("Reporter plugins: answer is not served any more", "plugin", e.Plugin,
			"socket", e.Socket, "received", e.Received, "unconfirmedSince", e.Lost)
	}
	if next := l.nextPoll(); len(l.callers) > 0 && !next.After(now) {
		l.lastPoll = next
		if now.Sub(next) >= l.options.Load().Period {
			l.lastPoll = now
		}
		l.pollAll()
	}
}

// refresh brings the plugins that are called in line with the options and with what is registered.
func (l *loop) refresh() {
	active := l.active()
	registrations := make([]answers.Registration, 0, len(active))
	for _, name := range slices.Sorted(maps.Keys(active)) {
		r := active[name]
		registrations = append(registrations, answers.Registration{
			Key: answers.Key{Plugin: name, Socket: r.Socket}, Registered: r.Registered,
		})
	}
	var begun, ended []answers.Run
	l.update(func(s *answers.Store, now time.Time) { begun, ended = s.Register(registrations, now) })
	for _, run := range ended {
		l.callers[run].cancel()
		delete(l.callers, run)
		endsTotal.WithLabelValues(labels.Of(run.Plugin)).Inc()
		klog.FromContext(l.ctx).Info("Reporter plugins: plugin is no longer called", "plugin", run.Plugin,
			"socket", run.Socket)
	}
	if len(l.callers) == 0 && len(begun) > 0 {
		l.lastPoll = l.config.Clock.Now()
	}
	for _, run := range begun {
		l.callers[run] = l.newCaller(run, active[run.Plugin].Plugin)
		startsTotal.WithLabelValues(labels.Of(run.Plugin)).Inc()
		klog.FromContext(l.ctx).Info("Reporter plugins: plugin is called from now on", "plugin", run.Plugin,
			"socket", run.Socket)
		l.poll(l.callers[run])
		l.watch(l.callers[run])
	}
}

// active returns the plugins that are to be called, by name. Those in the agent have no socket.
func (l *loop) active() map[string]Remote {
	options := l.options.Load()
	active := map[string]Remote{}
	for _, r := range l.config.Remote() {
		if options.Remote(r.Name) {
			active[r.Name] = r
		}
	}
	for name, p := range l.config.InTree {
		delete(active, name)
		if options.InTree(name) {
			active[name] = Remote{Name: name, Plugin: p}
		}
	}
	return active
}

// pollAll polls the plugins in the order of names, each in a goroutine.
func (l *loop) pollAll() {
	for _, run := range slices.SortedFunc(maps.Keys(l.callers), func(a, b answers.Run) int {
		return cmp.Compare(a.Plugin, b.Plugin)
	}) {
		l.poll(l.callers[run])
	}
}

// stop ends all calls, and waits for them.
func (l *loop) stop() {
	for _, c := range l.callers {
		c.cancel()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.calls.Wait()
}
