package plugin

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// pluginType is the type with which eviction plugins register.
const pluginType = "EvictionPlugin"

// noteAnswer records an answer to a round for the page.
func (d *Driver) noteAnswer(c *caller, a *arbiter.Answer) {
	if a.Threshold == nil && a.Demand == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := &debugv1alpha1.PluginAnswer{Time: d.wallTime(a.Asked)}
	if c.last != nil {
		last.TopPods = c.last.TopPods
	}
	if t := a.Threshold; t != nil {
		last.ThresholdType, last.Candidates = kindName(t.Kind), len(t.Candidates)
	}
	if a.Demand != nil {
		last.Pods = len(a.Demand.Pods)
	}
	c.last = last
}

// noteReply records the number of pods in the answer to a question.
func (d *Driver) noteReply(c *caller, pods int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.last != nil {
		c.last.TopPods = pods
	}
}

// wallTime converts a time on the agent's monotonic clock to wall time.
func (d *Driver) wallTime(t time.Time) time.Time {
	return snapshot.WallTime(d.config.Clock.Now()).Add(t.Sub(d.clock.now()))
}

func kindName(k arbiter.Kind) string {
	switch k {
	case arbiter.Soft:
		return "SOFT_MET"
	case arbiter.Hard:
		return "HARD_MET"
	default:
		return "NOT_MET"
	}
}

func killerName(k snapshot.Killer) string {
	switch k {
	case snapshot.EvictionAPI:
		return string(v1alpha1.EvictionAPI)
	case snapshot.DeleteAPI:
		return string(v1alpha1.DeleteAPI)
	default:
		return string(v1alpha1.PodWorker)
	}
}

// List returns the state of all plugins, enabled or not, for the page /debug/plugins. The caller adds
// refused registrations.
func (d *Driver) List() debugv1alpha1.PluginList {
	pods, inFlight, blocked, remote := d.config.Pods(), d.config.InFlight(), d.config.blocked(), d.config.Remote()
	d.mu.Lock()
	defer d.mu.Unlock()
	p := page{Driver: d, inFlight: map[types.UID]bool{}, blocked: blocked}
	for _, f := range inFlight {
		p.inFlight[f.UID] = f.Overdue
	}
	return debugv1alpha1.PluginList{
		Time: d.config.Clock.Now(), Plugins: p.plugins(remote), Requests: p.requests(pods), Conditions: p.conditions(),
		Notices: slices.Clone(d.notices),
	}
}

// page is one call of List. It holds the lock of the driver.
type page struct {
	*Driver
	// inFlight has the pods in flight, with true for those that are overdue.
	inFlight map[types.UID]bool
	blocked  []types.UID
}

func (p *page) plugins(remote []Remote) (list []debugv1alpha1.Plugin) {
	for _, r := range remote {
		if _, taken := p.config.InTree[r.Name]; !taken {
			list = append(list, p.plugin(r.Name, &r))
		}
	}
	for name := range maps.Keys(p.config.InTree) {
		list = append(list, p.plugin(name, nil))
	}
	slices.SortFunc(list, func(a, b debugv1alpha1.Plugin) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// plugin is one row; r is nil for a plugin of the agent.
func (p *page) plugin(name string, r *Remote) debugv1alpha1.Plugin {
	options, c := p.options.Load(), p.callers[name]
	row := debugv1alpha1.Plugin{
		Name: name, Type: pluginType, InTree: r == nil, DryRun: options.DryRun.Selects(name),
		RefusedConditions: slices.Clone(p.refused[name]),
	}
	row.Pods.Evicted, row.Pods.Dropped = p.evicted[labels.Of(name)], maps.Clone(p.dropped[labels.Of(name)])
	if r != nil {
		row.Socket, row.Registered, row.Enabled = r.Socket, r.Registered, options.Remote.Selects(name)
	} else {
		row.Enabled = options.InTree.Selects(name)
	}
	if c != nil {
		row.Health = c.health
		if c.last != nil {
			last := *c.last
			row.LastAnswer = &last
		}
		state := &p.bookOf(c).state
		row.Thresholds = thresholds(state.Clocks, name)
		p.countAsks(&row.Pods, state.Asks, name)
	}
	if r != nil && r.Health != nil {
		row.Health = r.Health()
	}
	return row
}

func thresholds(clocks []arbiter.Clock, plugin string) (list []debugv1alpha1.PluginThreshold) {
	for i := range clocks {
		c := &clocks[i]
		if c.Plugin != plugin {
			continue
		}
		t := debugv1alpha1.PluginThreshold{
			Type: kindName(c.Kind), Scope: c.Scope, Operator: "GREATER_THAN",
			Observed: debugv1alpha1.Number(c.Last.Observed), Target: debugv1alpha1.Number(c.Last.Target),
			GraceSeconds: c.Last.Grace.Seconds(), MetSeconds: c.Met.Seconds(), Missing: c.Missing, Confirmed: c.Confirmed,
		}
		if c.Last.LessThan {
			t.Operator = "LESS_THAN"
		}
		list = append(list, t)
	}
	return list
}

func (p *page) countAsks(pods *debugv1alpha1.PluginPods, asks []arbiter.Ask, plugin string) {
	seen := map[types.UID]bool{}
	for i := range asks {
		if a := &asks[i]; a.Plugin == plugin && !seen[a.UID] {
			seen[a.UID] = true
			pods.Asked++
			if _, flies := p.inFlight[a.UID]; flies {
				pods.InFlight++
			}
		}
	}
	pods.Waiting = pods.Asked - pods.InFlight
}

func (p *page) requests(pods []*v1.Pod) (list []debugv1alpha1.PluginRequest) {
	for _, r := range p.Requests() {
		row := debugv1alpha1.PluginRequest{
			UID: r.UID, Plugins: r.Plugins, Scope: r.Scope, Forced: r.Forced, GraceSeconds: r.GraceSeconds,
			Reason: r.Reason, Since: p.wallTime(r.Since), Killer: killerName(r.Killer), State: "Waiting",
		}
		if i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == r.UID }); i >= 0 {
			row.Namespace, row.Name = pods[i].Namespace, pods[i].Name
		}
		overdue, flies := p.inFlight[r.UID]
		switch {
		case overdue:
			row.State = "Overdue"
		case flies:
			row.State = "InFlight"
		case r.Killer != snapshot.PodWorker && slices.Contains(p.blocked, r.UID):
			row.State = "Blocked"
		}
		list = append(list, row)
	}
	return list
}

func (p *page) conditions() (list []debugv1alpha1.PluginCondition) {
	all := p.Driver.conditions.Load()
	if all == nil {
		return nil
	}
	for i := range *all {
		c := &(*all)[i]
		row := debugv1alpha1.PluginCondition{
			Target: "Node", Name: c.Name, True: c.True, Effects: c.Effects, Plugins: c.Plugins,
			LastMet: p.wallTime(c.LastMet),
		}
		if c.Resource {
			row.Target = "CustomNodeResource"
		}
		list = append(list, row)
	}
	return list
}
