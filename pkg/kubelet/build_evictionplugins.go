package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"google.golang.org/grpc"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/killer"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/notice"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records/collect"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/remote"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/memorygrowth"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/taints"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost/review"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/conditions"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/pressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// evictionPluginVersion is the version of the protocol of eviction plugins.
const evictionPluginVersion = "v1alpha1"

// evictionPlugins are the eviction plugins in the agent and behind sockets. Their settings may change at any time.
type evictionPlugins struct {
	standalone bool
	settings   atomic.Pointer[pluginSettings]
	host       *pluginhost.Host
	inTree     *plugins.Set
	encoder    remote.Encoder
	driver     *plugin.Driver
	records    *collect.Collector
	// killer evicts pods through the API server, and taints writes the taints of conditions; both are nil in standalone
	// mode.
	killer *killer.Killer
	taints *nodestatus.TaintWriter
	// required has the driver run: a plugin is enabled, or an earlier run of the agent has left conditions. taintsRequired
	// has the writer of taints run: then too, and if there is a record of taints.
	required, taintsRequired demand
}

// pluginSettings are what the plugins, their host and the eviction manager use of the pressure configuration.
type pluginSettings struct {
	plugin.Options
	monitoringPeriod time.Duration
	taintKubeconfig  string
	taintEffects     []v1.TaintEffect
}

func newPluginSettings(c *v1alpha1.NodePressureConfiguration, standalone bool) *pluginSettings {
	s := &pluginSettings{
		Options: plugin.OptionsFrom(c, standalone), monitoringPeriod: c.MonitoringPeriod.Duration,
		taintKubeconfig: c.Plugins.Eviction.Taints.Kubeconfig,
	}
	for _, effect := range c.Plugins.Eviction.Taints.Effects {
		s.taintEffects = append(s.taintEffects, v1.TaintEffect(effect))
	}
	return s
}

// makeEvictionPlugins makes the host of the plugins behind sockets. The driver, which calls all plugins, and the
// plugins in the agent are made with the eviction manager.
func (b *build) makeEvictionPlugins(ctx context.Context) *evictionPlugins {
	p := &evictionPlugins{standalone: b.Clients.Standalone()}
	p.settings.Store(newPluginSettings(b.Pressure.Configuration(), p.standalone))
	host := pluginhost.Config{
		Type: evictionPlugin, Version: evictionPluginVersion, Directories: b.pluginDirectories(),
		InTree:         func(name string) bool { return slices.Contains(v1alpha1.InTreePlugins(), name) },
		Enabled:        func(name string) bool { return p.settings.Load().Remote.Selects(name) },
		Authentication: p.authentication,
		Clock:          b.clock, Recorder: b.Observability.Recorder, Node: b.nodeRef, Logger: klog.FromContext(ctx),
	}
	if !p.standalone {
		host.Token, host.Review = remote.Token, review.New(b.Clients.Kube, review.EvictionPlugins).Review
	}
	p.host = pluginhost.New(host)
	return p
}

// makeDriver makes the driver of the plugins, which requests rounds of the eviction manager and the publication of
// conditions through forward, and what evicts the pods that plugins request through the API server.
func (b *build) makeDriver() (err error) {
	p, forward := b.plugins.eviction, b.forward
	records := collect.Config{PodByUID: b.pods.manager.GetPodByUID, Clock: b.clock}
	if !p.standalone {
		records.Client = b.Clients.Kube.PolicyV1()
	}
	p.records = collect.New(records)
	if p.inTree, err = b.newPluginsInAgent(p); err != nil {
		return err
	}
	p.driver, err = plugin.New(b.driverConfig())
	p.requireIfEnabled()
	if err != nil || p.standalone {
		return err
	}
	driver := p.driver
	p.killer, err = killer.New(killer.Config{
		Client: b.Clients.Kube, Requests: driver.Requests, Clock: b.clock,
		Changed: func() {
			driver.BlockedChanged()
			forward.wakeEviction()
		},
	})
	return err
}

func (b *build) driverConfig() plugin.Config {
	p, reporters, forward := b.plugins.eviction, b.plugins.reporter, b.forward
	return plugin.Config{
		Options: p.settings.Load().Options, InTree: p.inTree.Plugins(),
		Remote: p.remote, RemoteChanged: p.host.Changed(), Records: p.records.Records,
		Pods: b.pressure.pods.active, InFlight: forward.evictionsInFlight, Blocked: p.blocked, Wake: forward.wakeEviction,
		ConditionsChanged: func() {
			forward.pressureChanged()
			p.taintsChanged()
			reporters.conditions.Changed()
		},
		Recorder: b.Observability.Recorder, NoticeFiles: notice.Files{}, Clock: b.clock,
	}
}

// makeTaintWriter makes what writes the taints that conditions of plugins ask for.
func (b *build) makeTaintWriter() {
	p, updater := b.plugins.eviction, b.node.updater
	p.taints = nodestatus.NewTaintWriter(nodestatus.TaintWriterConfig{
		View: b.sources.view, File: b.layout.PluginTaints(),
		Kubeconfig:   func() string { return p.settings.Load().taintKubeconfig },
		PluginTaints: func() ([]taints.Condition, bool) { return p.taintState(updater.Restored) },
		Recorder:     b.Observability.Recorder,
	})
	p.requireIfRecorded(b.layout.PluginTaints())
}

// requireIfRecorded has the writer of taints run if there is a record of taints, or if that is unknown.
func (p *evictionPlugins) requireIfRecorded(record string) {
	if _, err := os.Stat(record); !errors.Is(err, fs.ErrNotExist) {
		p.taintsRequired.require()
	}
}

func (p *evictionPlugins) require() {
	p.required.require()
	p.taintsRequired.require()
}

// requireIfEnabled has the driver run if any plugin may be enabled.
func (p *evictionPlugins) requireIfEnabled() {
	if s := p.settings.Load(); len(s.Remote) > 0 || len(s.InTree) > 0 {
		p.require()
	}
}

// restore takes over the conditions that an earlier run of the agent has published.
func (p *evictionPlugins) restore(conditions []v1.NodeCondition) {
	p.driver.Restore(conditions)
	if len(p.driver.Conditions()) > 0 {
		p.require()
	}
}

// restoreResource takes over conditions of the CustomNodeResource that an earlier run of the agent has published.
func (p *evictionPlugins) restoreResource(list []conditions.Condition) {
	restored := make([]plugin.ResourceCondition, len(list))
	for i, c := range list {
		restored[i] = plugin.ResourceCondition(c)
	}
	p.driver.RestoreResource(restored)
	if len(restored) > 0 {
		p.require()
	}
}

// taintState returns the conditions of plugins that are True, and whether those of an earlier run are among them. That
// is determined first: conditions that are read before they are restored would count as complete, so that their taints
// were removed (E16).
func (p *evictionPlugins) taintState(restored func() bool) (list []taints.Condition, known bool) {
	known = restored()
	return p.taintConditions(), known
}

// taintConditions returns the conditions of plugins that are True, for the taints of the Node.
func (p *evictionPlugins) taintConditions() (list []taints.Condition) {
	allowed := p.settings.Load().taintEffects
	for _, c := range p.driver.Conditions() {
		if c.True {
			list = append(list, taints.NewCondition(c.Name, c.Restored, c.Effects, allowed))
		}
	}
	return list
}

func (p *evictionPlugins) taintsChanged() {
	if p.taints != nil {
		p.taints.Changed()
	}
}

// blocked returns the pods whose eviction the API server has not accepted.
func (p *evictionPlugins) blocked() []types.UID {
	if p.killer == nil {
		return nil
	}
	return p.killer.Blocked()
}

// requests returns what plugins request, for snapshots.
func (p *evictionPlugins) requests() []snapshot.Request {
	requests := p.driver.Requests()
	if p.killer == nil {
		return requests
	}
	return p.killer.Mark(requests)
}

// apiKiller returns what evicts pods through the API server: not an interface with a nil pointer.
func (p *evictionPlugins) apiKiller() eviction.APIKiller {
	if p.killer == nil {
		return nil
	}
	return p.killer
}

func (p *evictionPlugins) authentication() pluginhost.Authentication {
	return pluginhost.Authentication(p.settings.Load().Authentication)
}

// remote returns the plugins behind sockets that are registered and enabled.
func (p *evictionPlugins) remote() []plugin.Remote {
	endpoints := p.host.Endpoints()
	list := make([]plugin.Remote, len(endpoints))
	for i, e := range endpoints {
		// The driver limits the time of a call. The host adds the limit to its own checks.
		call := func(ctx context.Context, f func(context.Context, grpc.ClientConnInterface) error) error {
			return e.Call(ctx, p.settings.Load().CallTimeout, f)
		}
		list[i] = plugin.Remote{
			Name: e.Name(), Socket: e.Socket(), Plugin: remote.New(e.Name(), call, &p.encoder), Registered: e.Registered(),
			Health: func() debugv1alpha1.PluginHealth { return pluginHealth(e.Health()) },
		}
	}
	return list
}

func pluginHealth(h pluginhost.Health) debugv1alpha1.PluginHealth {
	return debugv1alpha1.PluginHealth{
		Failures: h.Failures, LastError: h.LastError, LastErrorTime: h.LastErrorTime, SuspendedUntil: h.SuspendedUntil,
		LatencySeconds: h.Latency.Seconds(),
	}
}

// list is the page /debug/plugins, without what is known of reporter plugins.
func (p *evictionPlugins) list() debugv1alpha1.PluginList {
	list := p.driver.List()
	list.Refused = refusedRegistrations(evictionPlugin, p.host.Refusals())
	return list
}

// apply puts a new configuration into force.
func (p *evictionPlugins) apply(c *v1alpha1.NodePressureConfiguration) {
	s := newPluginSettings(c, p.standalone)
	p.settings.Store(s)
	p.host.Recheck()
	p.driver.SetOptions(s.Options)
	p.inTree.Enabled(s.InTree.Selects)
	p.requireIfEnabled()
	p.taintsChanged()
}

// conditions returns the conditions of the Node that plugins report.
func (p *evictionPlugins) conditions() []nodestatus.PluginCondition {
	reported := p.driver.Conditions()
	list := make([]nodestatus.PluginCondition, len(reported))
	for i := range reported {
		list[i] = nodestatus.NewPluginCondition(reported[i].Name, reported[i].True, reported[i].Plugins)
	}
	return list
}

// evictionOptions returns the options of the eviction manager. It reports the growth of memory, the outlook, and
// what all pods use, if a plugin uses it.
func evictionOptions(c *v1alpha1.NodePressureConfiguration) settings.Options {
	options := settings.OptionsFrom(c)
	options.ReportMemoryGrowth = plugin.OptionsFrom(c, false).InTree.Selects(memorygrowth.Name)
	options.AllPods = plugins.NeedsAllPods(plugin.OptionsFrom(c, false).InTree.Selects)
	options.ReportOutlook = reporter.OptionsFrom(c).InTree(pressure.Name)
	return options
}
