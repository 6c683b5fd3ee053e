package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/killer"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/notice"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records/collect"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/remote"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// patience is how long a pod may take beyond its grace period until it is overdue.
const patience = 100 * time.Millisecond

// rig has the parts of one case, composed as by pkg/kubelet.
type rig struct {
	*node
	t        *testing.T
	behind   bool             // the plugins of the case are behind sockets
	answers  func(*apiServer) // what the API server of the case answers; there is none if it is nil
	dir      string
	owner    uint32
	tokens   tokens
	scripts  map[string]*script
	inTree   map[string]plugin.Plugin
	options  atomic.Pointer[plugin.Options]
	host     *pluginhost.Host
	driver   *plugin.Driver
	manager  *eviction.Manager
	encoder  remote.Encoder
	events   chan string
	seen     []string // the events that were received
	reported atomic.Int32
	// api and killer are nil without an API server.
	api     *apiServer
	killer  *killer.Killer
	records *collect.Collector
}

// newRig returns a rig that does not run yet.
func newRig(t *testing.T, change func(*plugin.Options), pods ...*v1.Pod) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{
		t: t, dir: dir, owner: uint32(os.Geteuid()), node: &node{pods: pods}, scripts: map[string]*script{},
		inTree: map[string]plugin.Plugin{},
	}
	c := pressure.Default()
	o := plugin.OptionsFrom(c, false)
	o.Remote, o.InTree, o.Period = plugin.Selector{"*"}, plugin.Selector{"*"}, 200*time.Millisecond
	if change != nil {
		change(&o)
	}
	r.options.Store(&o)
	return r
}

func (r *rig) socket(name string) string { return filepath.Join(r.dir, name+".sock") }

// serve serves a plugin at the socket of its name.
func (r *rig) serve(name string, s *script) *server {
	r.t.Helper()
	return serve(r.t, r.socket(name), name, &service{script: s})
}

// start composes and runs the parts until the end of the test.
func (r *rig) start() {
	r.t.Helper()
	r.compose()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.manager.Run(ctx) })
	running.Go(func() { r.driver.Run(ctx) })
	plugins := pluginmanager.NewPluginManager(r.dir, record.NewFakeRecorder(100))
	plugins.AddHandler("EvictionPlugin", r.host)
	running.Go(func() { plugins.Run(ctx, nil, ctx.Done()) })
	r.t.Cleanup(func() { cancel(); r.endAll(); running.Wait(); r.host.Close() })
}

func (r *rig) compose() {
	r.t.Helper()
	recorder := record.NewFakeRecorder(1000)
	r.events = recorder.Events
	nodeRef := &v1.ObjectReference{Kind: "Node", Name: "n"}
	r.host = pluginhost.New(pluginhost.Config{
		Type: "EvictionPlugin", Version: "v1alpha1", Directories: []string{r.dir}, Owner: r.owner,
		InTree:  func(name string) bool { return r.inTree[name] != nil },
		Enabled: func(name string) bool { return r.options.Load().Remote.Selects(name) },
		Authentication: func() pluginhost.Authentication {
			return pluginhost.Authentication(r.options.Load().Authentication)
		},
		Token: remote.Token, Review: r.tokens.review,
		Clock: clock.RealClock{}, Recorder: recorder, Node: nodeRef,
	})
	killedPods := collect.Config{PodByUID: r.byUID, Clock: clock.RealClock{}}
	if r.answers != nil {
		killedPods.Client = r.composeKiller().PolicyV1()
	}
	r.records = collect.New(killedPods)
	var err error
	r.driver, err = plugin.New(plugin.Config{
		Options: *r.options.Load(), InTree: r.inTree, Remote: r.remote, RemoteChanged: r.host.Changed(), Pods: r.active,
		InFlight: func() []eviction.InFlightPod { return r.manager.InFlight() }, Wake: func() { r.manager.Wake() },
		Blocked: r.blocked, Records: r.records.Records,
		ConditionsChanged: func() { r.reported.Add(1) }, Recorder: recorder,
		NoticeFiles: notice.Files{}, Clock: clock.RealClock{},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.composeManager(recorder, nodeRef)
}

// composeKiller composes what evicts pods through the API server, and returns a client of that.
func (r *rig) composeKiller() (client kubernetes.Interface) {
	r.t.Helper()
	r.api, client = newAPIServer(r.t, r.node)
	r.answers(r.api)
	var err error
	r.killer, err = killer.New(killer.Config{
		Client: client, Requests: func() []snapshot.Request { return r.driver.Requests() }, Clock: r.api.clock,
		Changed: func() { r.driver.BlockedChanged(); r.manager.Wake() },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

func (r *rig) composeManager(recorder record.EventRecorder, nodeRef *v1.ObjectReference) {
	r.t.Helper()
	options := settings.DefaultOptions()
	options.Patience, options.MonitoringPeriod, options.AllPods = patience, time.Second, r.stats != nil
	config := eviction.Config{
		Collector: r.node, Kill: r.kill, ActivePods: r.active, PodByUID: r.byUID, PodStopped: r.gone, PodCleanedUp: r.gone,
		Reclaimer: r.node, Recorder: recorder, NodeRef: nodeRef, Clock: clock.RealClock{}, Options: &options,
		Kubelet: settings.Kubelet{MaxPodGracePeriodSeconds: -1}, Requests: r.requests,
		Sinks: []eviction.Sink{r.driver, r.records},
	}
	if r.killer != nil {
		config.APIKiller = r.killer
	}
	var err error
	if r.manager, err = eviction.New(config); err != nil {
		r.t.Fatal(err)
	}
}

// requests are what plugins request, for snapshots.
func (r *rig) requests() []snapshot.Request {
	if r.killer == nil {
		return r.driver.Requests()
	}
	return r.killer.Mark(r.driver.Requests())
}

// blocked are the pods whose eviction the API server has not accepted.
func (r *rig) blocked() []types.UID {
	if r.killer == nil {
		return nil
	}
	return r.killer.Blocked()
}

func (r *rig) remote() (list []plugin.Remote) {
	for _, e := range r.host.Endpoints() {
		call := func(ctx context.Context, f func(context.Context, grpc.ClientConnInterface) error) error {
			return e.Call(ctx, r.options.Load().CallTimeout, f)
		}
		list = append(list, plugin.Remote{
			Name: e.Name(), Socket: e.Socket(), Plugin: remote.New(e.Name(), call, &r.encoder), Registered: e.Registered(),
			Health: func() debugv1alpha1.PluginHealth {
				return debugv1alpha1.PluginHealth{Failures: e.Health().Failures, LastError: e.Health().LastError,
					SuspendedUntil: e.Health().SuspendedUntil}
			},
		})
	}
	return list
}

// reload puts other options into force, as a change of the configuration file does.
func (r *rig) reload(change func(*plugin.Options)) {
	o := *r.options.Load()
	change(&o)
	r.options.Store(&o)
	r.host.Recheck()
	r.driver.SetOptions(o)
}

// reloadBefore changes the options before the parts run.
func (r *rig) reloadBefore(change func(*plugin.Options)) { change(r.options.Load()) }

// await waits until check returns the empty text, which says what is missing.
func (r *rig) await(what string, check func() string) {
	r.t.Helper()
	await.Until(r.t, what, func() error {
		if missing := check(); missing != "" {
			return fmt.Errorf("%s", missing)
		}
		return nil
	})
}

// passes is await while time passes for the killer, a second at each check.
func (r *rig) passes(what string, check func() string) {
	r.t.Helper()
	r.await(what, func() string {
		missing := check()
		if missing != "" {
			r.api.clock.Step(time.Second)
		}
		return missing
	})
}

// eventsOf returns the events of a reason.
func (r *rig) eventsOf(reason string) (list []string) {
	for len(r.events) > 0 {
		r.seen = append(r.seen, <-r.events)
	}
	for _, event := range r.seen {
		if fields := strings.Fields(event); fields[1] == reason {
			list = append(list, event)
		}
	}
	return list
}

// begun waits until all plugins of the case have been called.
func (r *rig) begun() {
	r.t.Helper()
	for name, s := range r.scripts {
		r.await("a round of "+name, func() string {
			if s.called() == 0 {
				return "none"
			}
			return ""
		})
	}
}

// called waits until all plugins of the case have been called in so many more rounds.
func (r *rig) called(rounds int) {
	r.t.Helper()
	for name, s := range r.scripts {
		r.calledOne(name, s, rounds)
	}
}

func (r *rig) calledOne(name string, s *script, rounds int) {
	r.t.Helper()
	want := s.called() + rounds
	r.await("rounds of "+name, func() string {
		if n := s.called(); n < want {
			return fmt.Sprintf("%d of %d rounds", n, want)
		}
		return ""
	})
}

// evicted waits until exactly these requests have been sent to the pod workers since the start, each as name/grace
// period, and checks that they are all for two more rounds.
func (r *rig) evicted(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	r.await("requests to the pod workers", func() string { return differs(r.killed(), want) })
	r.called(2)
	if diff := differs(r.killed(), want); diff != "" {
		r.t.Error(diff)
	}
}

func differs(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("got %q, want %q", got, want)
}

// message checks that the message of a pod that was evicted has these parts.
func (r *rig) message(pod string, parts ...string) {
	r.t.Helper()
	d := r.disruption(pod)
	for _, part := range parts {
		if !strings.Contains(d.Message, part) {
			r.t.Errorf("%s: the message %q does not contain %q", pod, d.Message, part)
		}
	}
	if d.Phase != v1.PodFailed || d.Reason != "Evicted" || len(d.Conditions) != 1 ||
		d.Conditions[0].Type != v1.DisruptionTarget {
		r.t.Errorf("%s: %+v", pod, d)
	}
}

// row is the row of a plugin on the page.
func (r *rig) row(name string) debugv1alpha1.Plugin {
	for _, row := range r.driver.List().Plugins {
		if row.Name == name {
			return row
		}
	}
	return debugv1alpha1.Plugin{}
}

// noticed checks that a pod is given notice, by a file as well, until the plugin p asks for it with force.
func (r *rig) noticed(pod string) {
	r.t.Helper()
	directory := r.t.TempDir()
	r.reload(func(o *plugin.Options) { o.SoftNoticeDirectory = directory })
	path := filepath.Join(directory, fmt.Sprintf("ns_%s_%s.soft_eviction_notify.json", pod, pod))
	r.await("notice file", func() string {
		data, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		var n debugv1alpha1.PluginNotice
		if err := json.Unmarshal(data, &n); err != nil {
			return err.Error()
		}
		if list := r.driver.List().Notices; len(list) != 1 || list[0].UID != n.UID || n.Name != pod || n.GraceSeconds != 30 {
			return fmt.Sprintf("%+v, on the page %+v", n, list)
		}
		return ""
	})
	r.scripts["p"].set(func(s *script) { s.demand = force(types.UID(pod)).demand })
	r.await("eviction of "+pod, func() string {
		if _, err := os.Stat(path); !os.IsNotExist(err) || !slices.Contains(r.killed(), pod+"/30") {
			return fmt.Sprint(err, r.killed())
		}
		return ""
	})
}

// dropped waits until the page says that pods of the plugin p were dropped for this reason and no other.
func (r *rig) dropped(why arbiter.Exclusion) {
	r.t.Helper()
	r.await("dropped pods", func() string {
		if d := r.row("p").Pods.Dropped; len(d) != 1 || d[string(why)] == 0 {
			return fmt.Sprint(d)
		}
		return ""
	})
}

// conditions waits for the conditions of the Node, each as name=True or name=False.
func (r *rig) conditions(want ...string) {
	r.t.Helper()
	r.await("conditions", func() string {
		var got []string
		for _, c := range r.driver.Conditions() {
			n := nodestatus.NewPluginCondition(c.Name, c.True, c.Plugins)
			status := v1.ConditionFalse
			if n.True {
				status = v1.ConditionTrue
			}
			got = append(got, n.Name+"="+string(status))
		}
		return differs(got, want)
	})
}

// metric is the sum of a metric of a plugin over its other labels.
func (r *rig) metric(name, plugin string) (sum float64) {
	r.t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "plimsoll_eviction_plugin_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "plugin" && label.GetValue() == plugin {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// scripted are plugins of a case by their names.
type scripted map[string]*script

// begin runs the plugins of a case, in the agent or behind sockets.
func (r *rig) begin(plugins scripted) {
	r.t.Helper()
	r.scripts = plugins
	for name, s := range plugins {
		if r.behind {
			r.serve(name, s)
		} else {
			r.inTree[name] = s
		}
	}
	r.start()
}
