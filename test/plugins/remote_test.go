package plugins

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// refused waits for the refusal of a registration, with the reason in the answer to the plugin and in an event, and
// checks that the plugin is not called and evicts nothing.
func (r *rig) refused(s *server, script *script, reason string) {
	r.t.Helper()
	status := s.status(r.t)
	if status.GetPluginRegistered() || !strings.Contains(status.GetError(), reason) {
		r.t.Errorf("%s: %v, want the refusal %q", s.name, status, reason)
	}
	select {
	case event := <-r.events:
		if !strings.HasPrefix(event, "Warning PluginRefused") || !strings.Contains(event, reason) {
			r.t.Errorf("the event %q, want the refusal %q", event, reason)
		}
	case <-after():
		r.t.Error("no event")
	}
	if n := script.called(); n != 0 || len(r.killed()) != 0 {
		r.t.Errorf("%d calls, requests %q", n, r.killed())
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title, name, version, reason string
		change                       func(r *rig)
	}{
		{title: "version", version: "v1beta1", reason: "the version v1alpha1 is not among"},
		{title: "name", name: "a b", reason: "not a qualified name"},
		{title: "long name", name: strings.Repeat("n", 64), reason: "more than 63 characters"},
		{title: "not enabled", reason: "not enabled", change: func(r *rig) {
			r.reloadBefore(func(o *plugin.Options) { o.Remote = plugin.Selector{"*", "-p"} })
		}},
		{title: "nothing enabled", reason: "not enabled", change: func(r *rig) {
			r.reloadBefore(func(o *plugin.Options) { o.Remote = nil })
		}},
		{title: "E2: foreign owner", reason: "runs as the user", change: func(r *rig) { r.owner++ }},
		{title: "E6: name of a plugin in the agent", reason: "belongs to a plugin in the kubelet", change: func(r *rig) {
			r.inTree["p"] = &script{}
		}},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, pods("a")...)
			if c.change != nil {
				c.change(r)
			}
			script, name, versions := force("a"), c.name, []string(nil)
			if name == "" {
				name = "p"
			}
			if c.version != "" {
				versions = []string{c.version}
			}
			s := serve(t, r.socket("p"), name, &service{script: script}, versions...)
			r.start()
			r.refused(s, script, c.reason)
		})
	}
}

// TestRegistrationAfterReload: a plugin that was refused registers by itself when it is allowed.
func TestRegistrationAfterReload(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason        string
		before, after func(*plugin.Options)
	}{
		"enabled": {
			"not enabled", func(o *plugin.Options) { o.Remote = nil },
			func(o *plugin.Options) { o.Remote = plugin.Selector{"p"} },
		},
		"authentication": {
			"runs as the user", func(*plugin.Options) {}, func(o *plugin.Options) { o.Authentication = "None" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.before, pods("a")...)
			if name == "authentication" {
				r.owner++
			}
			script := force("a")
			s := r.serve("p", script)
			r.start()
			r.refused(s, script, c.reason)
			r.reload(c.after)
			r.scripts["p"] = script
			r.evicted("a/30")
		})
	}
}

// running starts a rig with one plugin behind a socket, and waits until it is registered.
func running(t *testing.T, script *script, options func(*plugin.Options), pods ...*v1.Pod) (*rig, *server) {
	t.Helper()
	r := newRig(t, options, pods...)
	s := r.serve("p", script)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.scripts["p"] = script
	return r, s
}

// TestE4RemovedPlugin: when its socket is removed, a plugin is not called any more and what it requests ends, although
// its process still serves. It registers again with a new socket.
func TestE4RemovedPlugin(t *testing.T) {
	t.Parallel()
	p := force("a", "b")
	p.demand.Condition = reporting("Hot").demand.Condition
	r, s := running(t, p, oneAtATime, pods("a", "b")...)
	r.evicted("a/30")
	r.requested("p", 1)
	if err := os.Remove(s.socket); err != nil {
		t.Fatal(err)
	}
	r.await("no plugin and no request", func() string {
		if n := len(r.driver.Requests()) + len(r.driver.List().Plugins); n > 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
	calls := p.called()
	other := &script{}
	r.serve("q", other)
	r.calledOne("q", other, 3)
	if n := p.called(); n > calls+1 { // the call that was under way may reach the plugin late
		t.Errorf("%d calls after the end of the registration", n-calls)
	}
	r.conditions("Hot=True") // for the transition period
	r.end("a")
	r.calledOne("q", other, 2)
	if list := r.killed(); !slices.Equal(list, []string{"a/30"}) {
		t.Errorf("got %q", list)
	}
	s.crash()
	r.serve("p", p)
	r.evicted("a/30", "b/30")
}

// TestCrashedPlugin: a process that has crashed and left its socket costs its calls. A new one takes over.
func TestCrashedPlugin(t *testing.T) {
	t.Parallel()
	p := &script{}
	r, s := running(t, p, nil, pods("a")...)
	r.called(1)
	s.crash()
	r.await("failures", func() string {
		if h := r.row("p").Health; h.Failures < 2 {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
	if err := os.Remove(s.socket); err != nil {
		t.Fatal(err)
	}
	next := force("a")
	r.scripts["p"] = next
	r.serve("p", next)
	r.evicted("a/30")
	if h := r.row("p").Health; h.Failures != 0 {
		t.Errorf("%+v", h)
	}
}

// TestE3SuspendedPlugin: after five failures in a row a plugin is called again after 30 s only.
func TestE3SuspendedPlugin(t *testing.T) {
	t.Parallel()
	p := &script{err: fmt.Errorf("broken")}
	r, _ := running(t, p, func(o *plugin.Options) { o.Period = 50 * time.Millisecond }, pods("a")...)
	r.await("suspension", func() string {
		if h := r.row("p").Health; h.Failures != 5 || h.SuspendedUntil.Before(time.Now().Add(10*time.Second)) {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
	calls := p.called()
	q := force("a")
	r.serve("q", q)
	delete(r.scripts, "p")
	r.calledOne("q", q, 5)
	r.evicted("a/30")
	if n := p.called(); n != calls {
		t.Errorf("%d calls of a suspended plugin", n-calls)
	}
}

// TestE5OneNameAtTwoSockets: of two sockets with one name the one that was registered last is called; whichever goes,
// the other one stays.
func TestE5OneNameAtTwoSockets(t *testing.T) {
	t.Parallel()
	for _, lastGoes := range []bool{false, true} {
		t.Run(fmt.Sprint("the last one goes: ", lastGoes), func(t *testing.T) {
			t.Parallel()
			first, second := &script{}, &script{}
			r, s1 := running(t, first, nil, pods("a", "b")...)
			r.called(1)
			s2 := serve(t, r.socket("p2"), "p", &service{script: second})
			if status := s2.status(t); !status.GetPluginRegistered() {
				t.Fatal(status)
			}
			r.calledOne("the second one", second, 1)
			first.set(func(s *script) { s.demand = force("a").demand })
			gone, left, want := s1, second, "b/30"
			if lastGoes {
				gone, left, want = s2, first, "a/30"
			}
			second.set(func(s *script) { s.demand = force("b").demand })
			if lastGoes {
				second.set(func(s *script) { s.demand = arbiter.Demand{} })
			}
			gone.stop()
			r.scripts["p"] = left
			r.evicted(want)
		})
	}
}

// TestManyPlugins: the 33rd plugin is refused.
func TestManyPlugins(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, pods("a")...)
	var servers []*server
	for i := range 33 {
		servers = append(servers, r.serve(fmt.Sprint("p", i), &script{}))
	}
	r.start()
	refusals := 0
	for _, s := range servers {
		if status := s.status(t); !status.GetPluginRegistered() {
			refusals++
			if !strings.Contains(status.GetError(), "32 plugins") {
				t.Error(status)
			}
		}
	}
	if n := len(r.driver.List().Plugins); refusals != 1 || n != 32 {
		t.Errorf("%d refusals, %d plugins", refusals, n)
	}
}

// nothing is a plugin that implements nothing.
type nothing struct {
	v1alpha1.UnimplementedEvictionPluginServer
}

// faulty answers GetEvictPods with what it has, and requests a pod by its threshold.
type faulty struct {
	service
	answer *v1alpha1.GetEvictPodsResponse
}

func (f *faulty) GetEvictPods(
	ctx context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	if _, err := f.service.GetEvictPods(ctx, r); err != nil {
		return nil, err
	}
	return f.answer, nil
}

func TestUnimplementedEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, pods("a")...)
	s := serve(t, r.socket("p"), "p", &nothing{})
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	q := &script{}
	r.serve("q", q)
	r.calledOne("q", q, 4)
	row := r.row("p")
	if row.Health.Failures != 0 || row.Health.LastError != "" || row.LastAnswer == nil || len(r.killed()) != 0 {
		t.Errorf("%+v, requests %q", row, r.killed())
	}
}

// TestFaultyAnswers: a part of an answer that is invalid costs that part; an answer that is invalid costs that call.
func TestFaultyAnswers(t *testing.T) {
	t.Parallel()
	invalid := []byte{0xff, 0xff, 0xff}
	for _, c := range []struct {
		name    string
		answer  *v1alpha1.GetEvictPodsResponse
		change  func(*script)
		evicted []string
		fails   bool
	}{
		{"an invalid pod", &v1alpha1.GetEvictPodsResponse{EvictPods: []*v1alpha1.EvictPod{
			{Pod: invalid, ForceEvict: true}, {Pod: encoded("a"), ForceEvict: true}, {ForceEvict: true}, {Pod: encoded("")},
		}}, nil, []string{"a/30", "b/30"}, false},
		{"an invalid condition", &v1alpha1.GetEvictPodsResponse{
			EvictPods: []*v1alpha1.EvictPod{{Pod: encoded("a"), ForceEvict: true}},
			Condition: &v1alpha1.Condition{ConditionType: 7, ConditionName: "Hot", MetCondition: true},
		}, nil, []string{"a/30", "b/30"}, false},
		{"an unknown type of threshold", &v1alpha1.GetEvictPodsResponse{
			EvictPods: []*v1alpha1.EvictPod{{Pod: encoded("a"), ForceEvict: true}},
		}, func(s *script) { s.threshold.Kind = 9 }, []string{"a/30"}, true},
		{"an answer over 4 MiB", &v1alpha1.GetEvictPodsResponse{EvictPods: []*v1alpha1.EvictPod{
			{Pod: encoded("a"), ForceEvict: true, Reason: strings.Repeat("x", 5<<20)},
		}}, nil, []string{"b/30"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, pods("a", "b")...)
			p := met(arbiter.Hard, "b")
			if c.change != nil {
				c.change(p)
			}
			s := serve(t, r.socket("p"), "p", &faulty{service: service{script: p}, answer: proto.CloneOf(c.answer)})
			r.start()
			if status := s.status(t); !status.GetPluginRegistered() {
				t.Fatal(status)
			}
			r.scripts["p"] = p
			r.evicted(c.evicted...)
			r.conditions()
			if fails := r.row("p").Health.LastError != ""; fails != c.fails {
				t.Errorf("%+v", r.row("p").Health)
			}
		})
	}
}

// older is a plugin of an older version of the protocol: its ThresholdMet takes Empty, and it implements nothing else
// but GetTopEvictionPods.
func older() (*grpc.ServiceDesc, any) {
	p := &service{script: met(arbiter.Hard, "a")}
	method := func(name string, handle func(ctx context.Context, decode func(any) error) (any, error)) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(
			_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			return handle(ctx, decode)
		}}
	}
	return &grpc.ServiceDesc{
		ServiceName: "evictionplugin.v1alpha1.EvictionPlugin", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method("ThresholdMet", func(ctx context.Context, decode func(any) error) (any, error) {
				if err := decode(&v1alpha1.Empty{}); err != nil {
					return nil, err
				}
				return p.ThresholdMet(ctx, &v1alpha1.GetThresholdMetRequest{})
			}),
			method("GetTopEvictionPods", func(ctx context.Context, decode func(any) error) (any, error) {
				r := &v1alpha1.GetTopEvictionPodsRequest{}
				if err := decode(r); err != nil {
					return nil, err
				}
				return p.GetTopEvictionPods(ctx, r)
			}),
		},
	}, p
}

func TestOlderProtocol(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, pods("a")...)
	desc, p := older()
	s := serveDesc(t, r.socket("p"), "p", desc, p)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.evicted("a/30")
	if h := r.row("p").Health; h.LastError != "" {
		t.Errorf("%+v", h)
	}
}

// TestE24LargePods: pods of more than 4 MiB together are no reason for a call to fail. The plugin sees the smaller
// ones, and may request the others.
func TestE24LargePods(t *testing.T) {
	t.Parallel()
	list := []*v1.Pod{pod("large", annotated("text", strings.Repeat("x", 200<<10))), pod("small")}
	for i := range 498 {
		list = append(list, pod(fmt.Sprint("p", i), annotated("text", strings.Repeat("x", 10<<10))))
	}
	p := force("large", "small")
	r, _ := running(t, p, func(o *plugin.Options) { o.CallTimeout = time.Minute }, list...)
	r.evicted("large/30", "small/30")
	seen := p.lastSeen()
	if len(seen) < 300 || len(seen) == 500 || slices.Contains(seen, "large") {
		t.Errorf("the plugin was shown %d pods", len(seen))
	}
	if h := r.row("p").Health; h.LastError != "" {
		t.Errorf("%+v", h)
	}
}

// stuck hangs in GetTopEvictionPods.
type stuck struct {
	service
	asked chan struct{}
}

func (s *stuck) GetTopEvictionPods(
	ctx context.Context, _ *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestE1RemovedWhileAsked: a plugin that is removed between ThresholdMet and its answer of GetTopEvictionPods evicts
// nothing and harms no other.
func TestE1RemovedWhileAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, pods("a", "b")...)
	p := &stuck{service{script: met(arbiter.Hard, "a")}, make(chan struct{}, 1)}
	s := serve(t, r.socket("p"), "p", p)
	q := &script{}
	r.serve("q", q)
	r.start()
	select {
	case <-p.asked:
	case <-after():
		t.Fatal("the plugin is not asked")
	}
	s.stop()
	r.await("the end of the registration", func() string {
		if list := r.driver.List().Plugins; len(list) != 1 || list[0].Name != "q" {
			return fmt.Sprint(len(list))
		}
		return ""
	})
	q.set(func(s *script) { s.demand = force("b").demand })
	r.scripts["q"] = q
	r.evicted("b/30")
	if list := r.driver.List(); len(list.Plugins) != 1 || list.Plugins[0].Name != "q" {
		t.Errorf("%+v", list.Plugins)
	}
}

// TestE3SocketWithoutAnswers: a socket at which nobody answers does not delay the registration of other plugins.
func TestE3SocketWithoutAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, pods("a")...)
	silent, err := net.Listen("unix", r.socket("a-silent"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	p := force("a")
	s := r.serve("p", p)
	r.start()
	if status := s.status(t); !status.GetPluginRegistered() {
		t.Fatal(status)
	}
	r.scripts["p"] = p
	r.evicted("a/30")
	if list := r.driver.List().Plugins; len(list) != 1 {
		t.Errorf("%+v", list)
	}
}
