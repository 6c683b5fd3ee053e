package kubelet

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/checkpoint"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/conditions"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/pressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/remote"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/system"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology"
)

const (
	// reporterPlugin is the type of reporter plugins in their answer to GetInfo. Katalyst's is the same.
	reporterPlugin = "ReporterPlugin"
	// reporterPluginVersion is the version of the protocol of reporter plugins.
	reporterPluginVersion = "v1alpha1"
)

// reporterPlugins are the reporter plugins in the agent and behind sockets, and what publishes their reports. Their
// settings may change at any time.
type reporterPlugins struct {
	settings   atomic.Pointer[reporterSettings]
	host       *pluginhost.Host
	inTree     map[string]reporter.Plugin
	conditions *conditions.Plugin
	pressure   *pressure.Plugin
	topology   *topology.Plugin
	checkpoint *checkpoint.Checkpoint
	driver     *reporter.Driver
	merger     *reporter.Merger
	// node and publisher publish the reports; both are nil in standalone mode.
	node      *reporter.NodeContent
	publisher *publish.Publisher
	overdue   *reporter.OverdueWatch
	// required has all of them run: a plugin is enabled, or an earlier run of the agent has published something.
	required demand
}

// reporterSettings are what the plugins, their host and their publication use of the pressure configuration.
type reporterSettings struct {
	reporter.Options
	merge            merge.Options
	settings         v1alpha1.ReporterPluginSettings
	authentication   pluginhost.Authentication
	monitoringPeriod time.Duration
	publish          publish.Options
	publishNode      bool
	// any: a plugin may be enabled, or conditions of eviction plugins are published.
	any bool
}

func newReporterSettings(c *v1alpha1.NodePressureConfiguration) *reporterSettings {
	r := &c.Plugins.Reporter
	s := &reporterSettings{
		Options: reporter.OptionsFrom(c), merge: reporter.MergeOptionsFrom(c), settings: r.Settings,
		authentication:   reporterAuthentication(c.Plugins.Eviction.Authentication),
		monitoringPeriod: c.MonitoringPeriod.Duration,
		publish: publish.Options{
			Enabled:   slices.Contains(r.Publish, v1alpha1.ReportedCustomNodeResource),
			Sustained: r.Sustained.Duration, Labels: r.Labels,
		},
		publishNode: slices.Contains(r.Publish, v1alpha1.ReportedNode),
	}
	s.any = len(r.Remote)+len(r.InTree)+len(r.Publish) > 0
	selected := s.InTree
	s.InTree = func(name string) bool {
		return selected(name) || name == conditions.Name && s.publish.Enabled
	}
	return s
}

// reporterAuthentication returns how reporter plugins prove their identity, from the setting of eviction plugins. Their
// protocol has no call for a token.
func reporterAuthentication(a v1alpha1.PluginAuthentication) pluginhost.Authentication {
	if a == v1alpha1.NoAuthentication {
		return pluginhost.None
	}
	return pluginhost.SocketOwner
}

// makeReporterPlugins makes the plugins, their host, and what merges and publishes their reports.
func (b *build) makeReporterPlugins(ctx context.Context) (err error) {
	p := &reporterPlugins{}
	b.plugins.reporter = p
	p.settings.Store(newReporterSettings(b.Pressure.Configuration()))
	b.makeInTreeReporters(p)
	p.host = pluginhost.New(pluginhost.Config{
		Type: reporterPlugin, Version: reporterPluginVersion, Directories: b.pluginDirectories(),
		InTree:         func(name string) bool { return p.inTree[name] != nil },
		Enabled:        func(name string) bool { return p.settings.Load().Remote(name) },
		Authentication: func() pluginhost.Authentication { return p.settings.Load().authentication },
		Probe:          remote.Probe,
		Clock:          b.clock, Recorder: b.Observability.Recorder, Node: b.nodeRef, Logger: klog.FromContext(ctx),
	})
	p.driver, err = reporter.New(reporter.Config{
		Options: p.settings.Load().Options, InTree: p.inTree, Remote: p.remote, RemoteChanged: p.host.Changed(),
		Clock: b.clock,
	})
	p.checkpoint = checkpoint.New(checkpoint.Config{
		File: b.layout.ReporterCheckpoint(), Clock: b.clock, Recorder: b.Observability.Recorder, Node: b.nodeRef,
		Logger: klog.FromContext(ctx),
	})
	p.requireIfUsed(b.layout.ReporterCheckpoint(), b.layout.ReportedNode(), b.layout.ReporterTaints())
	return errors.Join(err, b.makePublishers(ctx, p))
}

func (b *build) makeInTreeReporters(p *reporterPlugins) {
	machine, eviction, view, ready := b.machineInfo, b.plugins.eviction, b.pods.view, b.sources.ready
	machineInfo := func() (*cadvisorapi.MachineInfo, error) { return machine, nil }
	p.conditions = conditions.New(func() []conditions.Condition {
		list := eviction.driver.ResourceConditions()
		reported := make([]conditions.Condition, len(list))
		for i, c := range list {
			reported[i] = conditions.Condition(c)
		}
		return reported
	})
	p.pressure = pressure.New(b.clock, func() pressure.Settings {
		s := p.settings.Load()
		return pressure.Settings{MonitoringPeriod: s.monitoringPeriod, NodeLabels: s.settings.Pressure.NodeLabels}
	})
	p.topology = topology.New(topology.Config{
		Managers: b.Machine.ContainerManager, Ready: ready.AllReady, MachineInfo: machineInfo, Pods: view.Active,
		Policy: b.Config.TopologyManagerPolicy, Scope: b.Config.TopologyManagerScope,
		OnlyNUMABound: func() bool { return p.settings.Load().settings.KubeletReporter.OnlyNUMABound },
		Clock:         b.clock,
	})
	p.inTree = map[string]reporter.Plugin{
		conditions.Name: p.conditions, pressure.Name: p.pressure, topology.Name: p.topology,
		system.Name: system.New(system.Config{
			MachineInfo: machineInfo, Root: os.DirFS("/"),
			CPUFlags: func() bool { return p.settings.Load().settings.SystemReporter.CPUFlags }, Clock: b.clock,
		}),
	}
}

// makePublishers makes what publishes the reports, and the merger, which passes them on.
func (b *build) makePublishers(ctx context.Context, p *reporterPlugins) (err error) {
	forward, view, s := b.forward, b.sources.view, p.settings.Load()
	var sinks []func(reporter.Merged)
	if !b.Clients.Standalone() {
		p.node = reporter.NewNodeContent(s.publishNode, b.clock, func() { forward.updater.ReportedChanged() })
		p.publisher, err = publish.New(publish.Config{
			Client: b.Clients.Reporter, NodeName: b.Identity.NodeName, Options: s.publish,
			NodeUID: func() (types.UID, bool) {
				n, err := view.Lookup(ctx)
				if err != nil {
					return "", false
				}
				return n.UID, true
			},
			Record: b.layout.ReporterTaints(), Clock: b.clock, Recorder: b.Observability.Recorder, Node: b.nodeRef,
		})
		publisher := p.publisher
		sinks = append(sinks, p.node.Set, func(m reporter.Merged) { publisher.Set(publish.ObjectOf(&m)) })
	}
	p.overdue = &reporter.OverdueWatch{
		Writes: p.writes, Clock: b.clock, Recorder: b.Observability.Recorder, Node: b.nodeRef,
	}
	p.merger = reporter.NewMerger(reporter.MergerConfig{
		Driver: p.driver, Options: s.merge, Sinks: sinks, Clock: b.clock,
	})
	return err
}

// requireIfUsed has the plugins run if one may be enabled, or if an earlier run has left one of the files.
func (p *reporterPlugins) requireIfUsed(files ...string) {
	used := p.settings.Load().any
	for _, file := range files {
		_, err := os.Stat(file)
		used = used || !errors.Is(err, fs.ErrNotExist)
	}
	if used {
		p.required.require()
	}
}

// run calls the plugins and publishes their reports until ctx ends.
func (p *reporterPlugins) run(ctx context.Context, updater *nodestatus.Updater, eviction *evictionPlugins) {
	p.restore(p.checkpoint.Restore(), eviction)
	parts := []func(context.Context){
		p.driver.Run, p.merger.Run,
		func(ctx context.Context) { p.checkpoint.Run(ctx, p.driver.Answers, p.driver.AnswersChanged()) },
	}
	if p.publisher != nil {
		parts = append(parts, p.publisher.Run, updater.RunReported, p.overdue.Run)
	}
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { part(ctx) })
	}
	running.Wait()
}

// restore takes over the answers of an earlier run of the agent, as far as they are served: those that are too old are
// not. Two plugins in the agent continue from theirs: the conditions are those of eviction plugins.
func (p *reporterPlugins) restore(list []answers.Answer, eviction *evictionPlugins) {
	p.driver.Restore(list)
	served := p.driver.Answers()
	for i := range served {
		switch served[i].Plugin {
		case conditions.Name:
			eviction.restoreResource(conditions.Parse(served[i].Contents))
		case pressure.Name:
			p.pressure.Restore(served[i].Contents)
		}
	}
}

// apply puts a new configuration into force.
func (p *reporterPlugins) apply(c *v1alpha1.NodePressureConfiguration) {
	s := newReporterSettings(c)
	p.settings.Store(s)
	p.host.Recheck()
	p.driver.SetOptions(s.Options)
	p.merger.SetOptions(s.merge)
	if p.publisher != nil {
		p.publisher.SetOptions(s.publish)
		p.node.Select(s.publishNode)
	}
	p.requireIfUsed()
}

// remote returns the plugins behind sockets that are registered and enabled.
func (p *reporterPlugins) remote() []reporter.Remote {
	endpoints := p.host.Endpoints()
	list := make([]reporter.Remote, len(endpoints))
	for i, e := range endpoints {
		call := func(ctx context.Context, f func(context.Context, grpc.ClientConnInterface) error) error {
			return e.Call(ctx, p.settings.Load().CallTimeout, f)
		}
		list[i] = reporter.Remote{
			Name: e.Name(), Socket: e.Socket(), Plugin: remote.New(call, e.Stream), Registered: e.Registered(),
			Health: func() debugv1alpha1.PluginHealth { return pluginHealth(e.Health()) },
		}
	}
	return list
}

// addTo adds what is known of reporter plugins to the page /debug/plugins.
func (p *reporterPlugins) addTo(list *debugv1alpha1.PluginList) {
	result := p.merger.Last().Result
	list.Reporters = p.driver.List(&result)
	for _, w := range p.writes() {
		list.Objects = append(list.Objects, reporter.ObjectOf(&result, w, list.Time))
	}
	list.Refused = append(list.Refused, refusedRegistrations(reporterPlugin, p.host.Refusals())...)
	slices.SortStableFunc(list.Refused, func(a, b debugv1alpha1.RefusedRegistration) int { return a.Time.Compare(b.Time) })
}

// writes returns what is known about the writes of both objects; nothing in standalone mode.
func (p *reporterPlugins) writes() []reporter.Write {
	if p.publisher == nil {
		return nil
	}
	s := p.publisher.State()
	resource := reporter.Write{
		Kind: node.GroupVersionKind.Kind, Selected: s.Enabled, Last: s.LastWrite, Count: s.Writes,
		PendingSince: s.PendingSince,
	}
	if s.LastError != "" {
		resource.Err = errors.New(s.LastError)
	}
	return []reporter.Write{resource, p.node.Write()}
}

func refusedRegistrations(kind string, refusals []pluginhost.Refusal) (list []debugv1alpha1.RefusedRegistration) {
	for _, r := range refusals {
		list = append(list, debugv1alpha1.RefusedRegistration{
			Time: r.Time, Type: kind, Name: r.Name, Socket: r.Socket, Reason: r.Message,
		})
	}
	return list
}
