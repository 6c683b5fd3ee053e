package plugin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
)

// maxPods is how many pods of one answer count; maxError bounds the errors that the page shows, in bytes.
const (
	maxPods  = 500
	maxError = 512
)

// caller calls one active plugin. It makes one call at a time. Fields without a comment are set once.
type caller struct {
	name, socket string
	dryRun       bool
	plugin       Plugin
	registered   time.Time
	ctx          context.Context
	cancel       context.CancelFunc

	// The loop alone uses these: busy while a call is under way, again if the plugin is to be asked when that has ended;
	// answered if an answer has come in since the last round that is not because of a crossing, failed if one of the last
	// two calls was not answered. asked is the round in which it was last asked, taken the time of its view.
	busy, again, answered, failed bool
	asked                         uint64
	taken                         time.Time

	// Driver.mu guards these.
	health debugv1alpha1.PluginHealth
	last   *debugv1alpha1.PluginAnswer
}

// inTree reports whether the plugin is part of the agent.
func (c *caller) inTree() bool { return c.socket == "" }

// updateCallers ends the callers of plugins that are disabled or gone, and adds those that are missing. A plugin that
// registers again, or enters or leaves dry run, has a new caller. That of a plugin in the agent makes no call before
// the last call of an earlier one has ended.
func (l *loop) updateCallers() {
	wanted := l.wanted()
	for name, c := range l.callers {
		w := wanted[name]
		if w != nil && w.socket == c.socket && w.dryRun == c.dryRun && w.registered.Equal(c.registered) {
			continue
		}
		c.cancel()
		if c.busy && c.inTree() && l.ending[name] == nil {
			l.ending[name] = c
		}
		delete(l.callers, name)
		delete(l.refused, name)
		notCalled(name)
		klog.FromContext(l.ctx).Info("Eviction plugins: plugin is no longer called", "plugin", name, "socket", c.socket)
	}
	for name, w := range wanted {
		if l.callers[name] != nil {
			continue
		}
		w.ctx, w.cancel = context.WithCancel(l.ctx)
		w.busy = w.inTree() && l.ending[name] != nil
		l.callers[name] = w
		activePlugins.WithLabelValues(labels.Of(name)).Set(1)
		klog.FromContext(l.ctx).Info("Eviction plugins: plugin is called from now on", "plugin", name, "socket", w.socket,
			"dryRun", w.dryRun)
	}
}

// wanted are callers of the plugins that should be called.
func (l *loop) wanted() map[string]*caller {
	options := l.options.Load()
	wanted := map[string]*caller{}
	for _, r := range l.config.Remote() {
		if options.Remote.Selects(r.Name) {
			wanted[r.Name] = &caller{
				name: r.Name, socket: r.Socket, plugin: r.Plugin, registered: r.Registered,
				dryRun: options.DryRun.Selects(r.Name),
			}
		}
	}
	for name, p := range l.config.InTree {
		delete(wanted, name)
		if options.InTree.Selects(name) {
			wanted[name] = &caller{name: name, plugin: p, dryRun: options.DryRun.Selects(name)}
		}
	}
	return wanted
}

// goAsk asks the plugin for its part of a round, in a goroutine of its own.
func (l *loop) goAsk(c *caller, view *View) {
	timeout := l.options.Load().CallTimeout
	l.calls.Go(func() {
		answer := &arbiter.Answer{Plugin: c.name, Asked: view.Taken}
		answer.Demand = call(l, c, timeout, "GetEvictPods", func(ctx context.Context) (*arbiter.Demand, error) {
			return c.plugin.EvictPods(ctx, view)
		})
		if c.ctx.Err() == nil {
			answer.Threshold = call(l, c, timeout, "ThresholdMet", func(ctx context.Context) (*arbiter.Threshold, error) {
				return c.plugin.ThresholdMet(ctx, view)
			})
		}
		l.boundAnswer(answer)
		l.noteAnswer(c, answer)
		l.send(event{caller: c, answer: answer})
	})
}

// goQuestion asks the plugin for the pods of a threshold, in a goroutine of its own, if no call is under way.
func (l *loop) goQuestion(q arbiter.Question, view *View) {
	c := l.callers[q.Plugin]
	if c == nil || c.busy {
		return
	}
	c.busy = true
	timeout := l.options.Load().CallTimeout
	l.calls.Go(func() {
		view := l.withRecords(c.ctx, view, q.Candidates)
		if c.ctx.Err() != nil {
			l.send(event{caller: c})
			return
		}
		reply := call(l, c, timeout, "GetTopEvictionPods", func(ctx context.Context) (*arbiter.Reply, error) {
			return c.plugin.TopEvictionPods(ctx, view, q)
		})
		if reply != nil {
			reply = &arbiter.Reply{Question: q, Pods: l.bounded(c.name, reply.Pods), GraceSeconds: reply.GraceSeconds}
			l.noteReply(c, len(reply.Pods))
		}
		l.send(event{caller: c, reply: reply})
	})
}

// withRecords returns the view with the eviction records of the candidates of a question. As in Katalyst, a question
// without candidates has none.
func (d *Driver) withRecords(ctx context.Context, view *View, candidates []types.UID) *View {
	if d.config.Records == nil || len(candidates) == 0 {
		return view
	}
	var pods []*v1.Pod
	for _, pod := range view.Pods {
		if slices.Contains(candidates, pod.UID) {
			pods = append(pods, pod)
		}
	}
	withRecords := *view
	withRecords.Records = d.config.Records(ctx, pods)
	return &withRecords
}

func (l *loop) send(e event) {
	select {
	case l.events <- e:
	case <-l.ctx.Done():
	}
}

// call makes one call. It returns nil if the plugin has not answered in time or with an error, and the zero value if it
// has nothing to say.
func call[T any](l *loop, c *caller, timeout time.Duration, method string, f func(context.Context) (*T, error)) *T {
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	begun := l.config.Clock.Now()
	var answer *T
	err := plugincalls.Guard(func() (err error) {
		answer, err = f(ctx)
		return err
	})
	if err == nil {
		err = ctx.Err()
	}
	result := "ok"
	var p *plugincalls.PanicError
	switch {
	case err == nil:
	case c.ctx.Err() != nil:
		// The plugin is gone, or the agent is stopping.
		return nil
	case errors.As(err, &p):
		result = "panic"
		klog.FromContext(l.ctx).Error(err, "Eviction plugins: plugin panicked", "plugin", c.name, "method", method,
			"stack", p.Stack)
	case ctx.Err() != nil:
		result = "timeout"
	default:
		result = "error"
	}
	took := l.config.Clock.Since(begun)
	callsTotal.WithLabelValues(labels.Of(c.name), method, result).Inc()
	callDuration.WithLabelValues(labels.Of(c.name)).Observe(took.Seconds())
	l.noteCall(c, took, err)
	if err != nil {
		klog.FromContext(l.ctx).V(2).Info("Eviction plugins: call failed", "plugin", c.name, "method", method, "err", err)
		return nil
	}
	if answer == nil {
		answer = new(T)
	}
	return answer
}

// boundAnswer limits the pods of an answer. It changes nothing that the plugin may hold.
func (l *loop) boundAnswer(a *arbiter.Answer) {
	if d := a.Demand; d != nil && len(d.Pods) > maxPods {
		l.countDropped(a.Plugin, tooMany, len(d.Pods)-maxPods)
		a.Demand = &arbiter.Demand{Pods: d.Pods[:maxPods], Condition: d.Condition}
	}
	if t := a.Threshold; t != nil && len(t.Candidates) > maxPods {
		bounded := *t
		bounded.Candidates = l.bounded(a.Plugin, t.Candidates)
		a.Threshold = &bounded
	}
}

func (l *loop) bounded(plugin string, pods []types.UID) []types.UID {
	if len(pods) > maxPods {
		l.countDropped(plugin, tooMany, len(pods)-maxPods)
		pods = pods[:maxPods]
	}
	return slices.Clone(pods)
}

// noteCall records the end of a call for the page.
func (d *Driver) noteCall(c *caller, took time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c.health.LatencySeconds = took.Seconds()
	if err == nil {
		c.health.Failures = 0
		return
	}
	c.health.Failures++
	c.health.LastErrorTime = d.config.Clock.Now()
	c.health.LastError = err.Error()
	if len(c.health.LastError) > maxError {
		c.health.LastError = strings.Clone(strings.ToValidUTF8(c.health.LastError[:maxError], ""))
	}
}

func sortPods(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
}
