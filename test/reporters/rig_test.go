package reporters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/checkpoint"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/remote"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// grace is the stop grace period of all cases. No case awaits anything for so long: a second passes each 20 ms.
const grace = time.Hour

// rig has the parts of one case, composed as by pkg/kubelet.
type rig struct {
	t      *testing.T
	behind bool // the plugins of the case are behind sockets
	// sockets is the directory of sockets, state that of files of the agent.
	sockets, state string
	owner          uint32
	// clock is that of the agent: fake, unless that is nil.
	clock  clock.WithTicker
	fake   *clocktesting.FakeClock
	config atomic.Pointer[pressure.NodePressureConfiguration]
	api    *apiServer
	// writes counts the requests of the agent that write the object.
	writes  *writeCounter
	scripts scripted
	servers map[string]*server
	inTree  map[string]reporter.Plugin
	events  *record.FakeRecorder

	// What follows is of one run of the agent.

	host      *pluginhost.Host
	driver    *reporter.Driver
	merger    *reporter.Merger
	node      *reporter.NodeContent
	publisher *publish.Publisher
	// passedOn is what the publisher was given last.
	passedOn atomic.Pointer[reporter.Merged]
	stop     func()
}

// scripted are plugins of a case by their names.
type scripted map[string]*script

// hostClock is the clock of the agent, at which no two times are the same: registrations differ by their times.
type hostClock struct {
	clock.WithTicker
	calls *atomic.Int64
}

func (c hostClock) Now() time.Time { return c.WithTicker.Now().Add(time.Duration(c.calls.Add(1))) }

// newRig returns a rig that does not run yet. All plugins are enabled, and both objects are published.
func newRig(t *testing.T, change func(*pressure.ReporterPluginsConfiguration)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "reporters") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{
		t: t, sockets: filepath.Join(dir, "s"), state: filepath.Join(dir, "state"), owner: uint32(os.Geteuid()),
		fake: clocktesting.NewFakeClock(time.Now()), scripts: scripted{}, servers: map[string]*server{},
		inTree: map[string]reporter.Plugin{}, events: record.NewFakeRecorder(1000),
	}
	r.clock = r.fake
	if err := os.Mkdir(r.sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	r.api, r.writes = newAPIServer(t, r.clock), &writeCounter{}
	c := pressure.Default()
	p := &c.Plugins.Reporter
	p.Remote, p.InTree, p.NodePrefixes = []string{"*"}, []string{"*"}, []string{"example.com"}
	p.Publish = []pressure.ReportedKind{pressure.ReportedCustomNodeResource, pressure.ReportedNode}
	p.StopGracePeriod, p.Sustained = &metav1.Duration{Duration: grace}, &metav1.Duration{Duration: time.Second}
	// Calls take real time. Only calls that a case has wait take so long.
	p.CallTimeout = &metav1.Duration{Duration: 30 * time.Second}
	if change != nil {
		change(p)
	}
	r.config.Store(c)
	return r
}

// begin runs the plugins of a case, in the agent or behind sockets, and the agent.
func (r *rig) begin(plugins scripted) {
	r.t.Helper()
	r.scripts = plugins
	for name, s := range plugins {
		if r.behind {
			r.serve(name, name, s)
		} else {
			r.inTree[name] = s
		}
	}
	r.start()
}

// serve serves a plugin at the socket of a name.
func (r *rig) serve(socket, name string, p reporter.Plugin) *server {
	r.t.Helper()
	s := serve(r.t, r.socket(socket), name, "v1alpha1", &service{plugin: p})
	r.servers[socket] = s
	return s
}

func (r *rig) socket(name string) string { return socketOf(r.sockets, name) }

func socketOf(dir, name string) string { return filepath.Join(dir, name+".sock") }

// start composes and runs the agent, until the end of the test at most.
func (r *rig) start() {
	r.t.Helper()
	c := r.config.Load()
	nodeRef := &v1.ObjectReference{Kind: "Node", Name: "n1"}
	r.host = pluginhost.New(pluginhost.Config{
		Type: "ReporterPlugin", Version: "v1alpha1", Directories: []string{r.sockets}, Owner: r.owner,
		InTree:         func(name string) bool { return r.inTree[name] != nil },
		Enabled:        func(name string) bool { return pressure.Selects(r.config.Load().Plugins.Reporter.Remote, name) },
		Authentication: func() pluginhost.Authentication { return pluginhost.SocketOwner },
		Probe:          remote.Probe, Clock: hostClock{r.clock, &atomic.Int64{}}, Recorder: r.events, Node: nodeRef,
	})
	var err, publishErr error
	r.driver, err = reporter.New(reporter.Config{
		Options: reporter.OptionsFrom(c), InTree: r.inTree, Remote: r.remote, RemoteChanged: r.host.Changed(),
		Clock: r.clock,
	})
	answers := checkpoint.New(checkpoint.Config{
		File: filepath.Join(r.state, "checkpoint"), Clock: r.clock, Recorder: r.events, Node: nodeRef,
	})
	r.publisher, publishErr = publish.New(publish.Config{
		Client: r.client(), NodeName: "n1", NodeUID: func() (types.UID, bool) { return "node", true },
		Options: publishOptions(c), Record: filepath.Join(r.state, "taints.json"), Clock: r.clock, Recorder: r.events,
		Node: nodeRef,
	})
	if err := errors.Join(err, publishErr); err != nil {
		r.t.Fatal(err)
	}
	r.node = reporter.NewNodeContent(true, r.clock, func() {})
	publisher := r.publisher
	r.merger = reporter.NewMerger(reporter.MergerConfig{
		Driver: r.driver, Options: reporter.MergeOptionsFrom(c), Clock: r.clock,
		Sinks: []func(reporter.Merged){r.node.Set, func(m reporter.Merged) {
			publisher.Set(publish.ObjectOf(&m))
			r.passedOn.Store(&m)
		}},
	})
	r.driver.Restore(answers.Restore())
	r.run(func(ctx context.Context) { answers.Run(ctx, r.driver.Answers, r.driver.AnswersChanged()) },
		r.driver.Run, r.merger.Run, r.publisher.Run)
}

// client returns a client of the API server whose writes are counted.
func (r *rig) client() dynamic.Interface {
	r.t.Helper()
	client, err := publish.NewClient(&rest.Config{Host: r.api.server.URL, WrapTransport: r.writes.wrap})
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

// run runs the parts of the agent, and the plugin manager, until stop is called.
func (r *rig) run(parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { part(ctx) })
	}
	plugins := pluginmanager.NewPluginManager(r.sockets, record.NewFakeRecorder(100))
	plugins.AddHandler("ReporterPlugin", r.host)
	running.Go(func() { plugins.Run(ctx, nil, ctx.Done()) })
	host := r.host
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait(); host.Close() })
	r.t.Cleanup(r.stop)
}

// restart ends the agent, and starts it again.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

func publishOptions(c *pressure.NodePressureConfiguration) publish.Options {
	p := &c.Plugins.Reporter
	return publish.Options{
		Enabled:   slices.Contains(p.Publish, pressure.ReportedCustomNodeResource),
		Sustained: p.Sustained.Duration, Labels: p.Labels,
	}
}

func (r *rig) remote() (list []reporter.Remote) {
	for _, e := range r.host.Endpoints() {
		call := func(ctx context.Context, f func(context.Context, grpc.ClientConnInterface) error) error {
			return e.Call(ctx, r.config.Load().Plugins.Reporter.CallTimeout.Duration, f)
		}
		list = append(list, reporter.Remote{
			Name: e.Name(), Socket: e.Socket(), Plugin: remote.New(call, e.Stream), Registered: e.Registered(),
			Health: func() debugv1alpha1.PluginHealth {
				return debugv1alpha1.PluginHealth{Failures: e.Health().Failures, LastError: e.Health().LastError}
			},
		})
	}
	return list
}

// reload puts another configuration into force, as a change of the file does.
func (r *rig) reload(change func(*pressure.ReporterPluginsConfiguration)) {
	c := r.config.Load().DeepCopy()
	change(&c.Plugins.Reporter)
	r.config.Store(c)
	r.host.Recheck()
	r.driver.SetOptions(reporter.OptionsFrom(c))
	r.merger.SetOptions(reporter.MergeOptionsFrom(c))
	r.publisher.SetOptions(publishOptions(c))
	r.node.Select(slices.Contains(c.Plugins.Reporter.Publish, pressure.ReportedNode))
}

// await waits until check returns the empty text, which says what is missing. A second passes after each check.
func (r *rig) await(what string, check func() string) {
	r.t.Helper()
	await.Until(r.t, what, func() error {
		if missing := check(); missing != "" {
			r.fake.Step(time.Second)
			return errors.New(missing)
		}
		return nil
	})
}

// published waits until the object has these annotations below example.com and no others, each as key=value.
func (r *rig) published(want ...string) {
	r.t.Helper()
	r.await("annotations of the object", func() string {
		object := r.api.get()
		if object == nil {
			return "no object"
		}
		return differs(listOf(object.GetAnnotations()), want)
	})
}

// listOf returns a map with keys below example.com as a list, each as key=value, sorted.
func listOf(m map[string]string) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, strings.TrimPrefix(key, "example.com/")+"="+m[key])
	}
	return list
}

func differs(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("got %q, want %q", got, want)
}

// never checks that the object has never had an annotation, as key=value.
func (r *rig) never(pair string) {
	r.t.Helper()
	for i, v := range r.api.history() {
		if slices.Contains(listOf(v.annotations), pair) {
			r.t.Errorf("version %d of the object has %s", i, pair)
		}
	}
}

// always checks that the object has had an annotation key in all versions from the first one with it.
func (r *rig) always(key string) {
	r.t.Helper()
	had := false
	for i, v := range r.api.history() {
		_, has := v.annotations["example.com/"+key]
		if had && !has {
			r.t.Errorf("version %d of the object has no %s any more", i, key)
		}
		had = had || has
	}
}

// part waits until a part of the object is this JSON, empty for absent.
func (r *rig) part(path, want string) {
	r.t.Helper()
	r.await(path, func() string {
		if got := r.partOf(path); got != want {
			return fmt.Sprintf("got %s, want %s", got, want)
		}
		return ""
	})
}

// partOf returns a part of the object in JSON, empty for absent.
func (r *rig) partOf(path string) string {
	r.t.Helper()
	object := r.api.get()
	if object == nil {
		return "no object"
	}
	var value any = object.Object
	for name := range strings.SplitSeq(path, ".") {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	if value == nil {
		return ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// row is the row of a plugin on the page /debug/plugins: the active one, if there are several.
func (r *rig) row(name string) (row debugv1alpha1.Reporter) {
	result := r.merger.Last().Result
	for _, candidate := range r.driver.List(&result) {
		if candidate.Name == name && (row.Name == "" || candidate.Active) {
			row = candidate
		}
	}
	return row
}

// refusedFields waits until these fields of a plugin are left out, each as field: reason, of which the text is a part.
func (r *rig) refusedFields(name string, want ...string) {
	r.t.Helper()
	r.await("refused fields of "+name, func() string {
		refused := r.row(name).RefusedFields
		if len(refused) != len(want) {
			return fmt.Sprintf("%+v, want %q", refused, want)
		}
		for i, f := range refused {
			if !strings.Contains(strings.TrimPrefix(f.Field+": ", ": ")+f.Reason, want[i]) {
				return fmt.Sprintf("%+v, want %q", f, want[i])
			}
		}
		return ""
	})
}

// lost waits until a plugin does not confirm its answer, and returns since when.
func (r *rig) lost(name string) (since time.Time) {
	r.t.Helper()
	r.await("the end of "+name, func() string {
		if since = r.row(name).UnconfirmedSince; since.IsZero() {
			return "its answer is confirmed"
		}
		return ""
	})
	return since
}

// goes lets a grace period pass, waits until the object has these annotations and no others, and checks that it did not
// change before the end of the grace period.
func (r *rig) goes(since time.Time, want ...string) {
	r.t.Helper()
	before := len(r.api.history())
	r.fake.SetTime(since.Add(grace - 10*time.Second))
	r.published(want...)
	for _, v := range r.api.history()[before:] {
		if v.at.Before(since.Add(grace)) {
			r.t.Errorf("the object changed at %v, before %v: %v", v.at, since.Add(grace), v.annotations)
		}
	}
}

// polled waits until a plugin has been polled so many more times.
func (r *rig) polled(name string, times int) {
	r.t.Helper()
	begun, _ := r.scripts[name].called()
	r.polledSince(name, begun+times-1)
}

// polledSince waits until more polls of a plugin have begun.
func (r *rig) polledSince(name string, begun int) {
	r.t.Helper()
	r.await("polls of "+name, func() string {
		if n, _ := r.scripts[name].called(); n <= begun {
			return fmt.Sprintf("%d, want more than %d", n, begun)
		}
		return ""
	})
}
