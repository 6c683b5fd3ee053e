package reporters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// behindSockets returns a rig that runs these plugins behind sockets, all of which are registered.
func behindSockets(t *testing.T, plugins scripted) *rig {
	t.Helper()
	r := newRig(t, nil)
	r.behind = true
	r.begin(plugins)
	for _, s := range r.servers {
		s.registered(t)
	}
	return r
}

// TestRefusals: registrations that are refused, with the reason in the answer to the plugin, in an event and on the
// page. Nothing of such a plugin is published.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		title, name, version, reason string
		change                       func(r *rig)
		plugin                       v1alpha1.ReporterPluginServer
	}{
		{title: "version", version: "v1beta1", reason: "the version v1alpha1 is not among"},
		{title: "name", name: "a b", reason: "not a qualified name"},
		{title: "long name", name: strings.Repeat("n", 64), reason: "more than 63 characters"},
		{title: "not enabled", reason: "not enabled", change: func(r *rig) {
			r.configure(func(p *pressure.ReporterPluginsConfiguration) { p.Remote = []string{"*", "-p"} })
		}},
		{title: "nothing enabled", reason: "not enabled", change: func(r *rig) {
			r.configure(func(p *pressure.ReporterPluginsConfiguration) { p.Remote = nil })
		}},
		{title: "foreign owner", reason: "runs as the user", change: func(r *rig) { r.owner++ }},
		{title: "name of a plugin in the agent", reason: "belongs to a plugin in the kubelet", change: func(r *rig) {
			r.inTree["p"] = polled(says("agent", "1"))
		}},
		{title: "R15: it hangs", reason: "the plugin does not answer", plugin: hanging{}},
		{title: "R15: it returns errors", reason: "the plugin does not answer", plugin: &service{plugin: &script{
			pollErr: errors.New("out of order"), streamErr: errEnd,
		}}},
		{title: "R15: it implements nothing", reason: "the plugin does not answer",
			plugin: v1alpha1.UnimplementedReporterPluginServer{}},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			if c.change != nil {
				c.change(r)
			}
			name, version, plugin := c.name, c.version, c.plugin
			if name == "" {
				name = "p"
			}
			if version == "" {
				version = "v1alpha1"
			}
			if plugin == nil {
				plugin = &service{plugin: polled(says("p", "1"))}
			}
			s := serve(t, r.socket("p"), name, version, plugin)
			r.start()
			if status := s.status(t); status.GetPluginRegistered() || !strings.Contains(status.GetError(), c.reason) {
				t.Errorf("%v, want the refusal %q", status, c.reason)
			}
			r.await("the event of the refusal", func() string {
				select {
				case event := <-r.events.Events:
					if strings.HasPrefix(event, "Warning PluginRefused") && strings.Contains(event, c.reason) {
						return ""
					}
					return event
				default:
					return "none"
				}
			})
			if list := r.host.Refusals(); len(list) != 1 || !strings.Contains(list[0].Message, c.reason) {
				t.Errorf("%+v", list)
			}
			if len(r.host.Endpoints()) > 0 {
				t.Error("the plugin is called")
			}
			r.never("p=1")
		})
	}
}

// configure changes the configuration before the agent runs.
func (r *rig) configure(change func(*pressure.ReporterPluginsConfiguration)) {
	c := r.config.Load().DeepCopy()
	change(&c.Plugins.Reporter)
	r.config.Store(c)
}

// hanging is a plugin that answers no call.
type hanging struct {
	v1alpha1.UnimplementedReporterPluginServer
}

func (hanging) GetReportContent(ctx context.Context, _ *v1alpha1.Empty) (*v1alpha1.GetReportContentResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream grpc.ServerStreamingServer[v1alpha1.GetReportContentResponse],
) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// TestR15HangingRegistration: other plugins register and are published while one hangs.
func TestR15HangingRegistration(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	serve(t, r.socket("a"), "a", "v1alpha1", hanging{})
	r.serve("p", "p", polled(says("p", "1")))
	r.start()
	r.published("p=1")
}

// TestEnabledByReload: a plugin that was refused registers by itself when it is enabled.
func TestEnabledByReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *pressure.ReporterPluginsConfiguration) { p.Remote = []string{"q"} })
	s := r.serve("p", "p", polled(says("p", "1")))
	r.serve("q", "q", polled(says("q", "1")))
	r.start()
	if status := s.status(t); status.GetPluginRegistered() || !strings.Contains(status.GetError(), "not enabled") {
		t.Errorf("%v", status)
	}
	r.published("q=1")
	r.reload(func(p *pressure.ReporterPluginsConfiguration) { p.Remote = []string{"*"} })
	r.published("p=1", "q=1")
	r.always("q")
}

// TestR2DeadPlugin: a process dies and leaves its socket. Its values stay for the grace period. One that is started
// again at the same path registers again.
func TestR2DeadPlugin(t *testing.T) {
	t.Parallel()
	for name, plugin := range map[string]func(value string) *script{
		"polls":  func(value string) *script { return polled(says("p", value)) },
		"stream": func(value string) *script { return streamed(says("p", value)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := behindSockets(t, scripted{"p": plugin("1"), "q": polled(says("q", "1"))})
			r.published("p=1", "q=1")
			r.servers["p"].crash()
			r.goes(r.lost("p"), "q=1")
			if err := os.Remove(r.socket("p")); err != nil {
				t.Fatal(err)
			}
			r.serve("p", "p", plugin("2"))
			r.published("p=2", "q=1")
			r.always("q")
		})
	}
}

// TestRestartedPlugin: a process dies and another one takes its place within the grace period. Its values never go.
func TestRestartedPlugin(t *testing.T) {
	t.Parallel()
	r := behindSockets(t, scripted{"p": streamed(says("p", "1"))})
	r.published("p=1")
	r.servers["p"].crash()
	r.lost("p")
	if err := os.Remove(r.socket("p")); err != nil {
		t.Fatal(err)
	}
	r.serve("p", "p", streamed(says("p", "2")))
	r.published("p=2")
	r.always("p")
}

// TestDeregistered: a plugin whose socket is removed is not called, its values go after the grace period, and it may
// register again.
func TestDeregistered(t *testing.T) {
	t.Parallel()
	r := behindSockets(t, scripted{"p": polled(says("p", "1")), "q": polled(says("q", "1"))})
	r.published("p=1", "q=1")
	r.servers["p"].stop()
	r.await("the end of the registration", func() string {
		if row := r.row("p"); row.Active {
			return fmt.Sprintf("%+v", row)
		}
		return ""
	})
	calls, _ := r.scripts["p"].called()
	r.goes(r.lost("p"), "q=1")
	r.polled("q", 2)
	if after, _ := r.scripts["p"].called(); after != calls {
		t.Errorf("%d calls after the end of the registration", after-calls)
	}
	s := r.serve("p", "p", polled(says("p", "2")))
	s.registered(t)
	r.published("p=2", "q=1")
}

// TestR7TakenOver: another process takes the name at another socket. The answer of the first one is served until the
// second one has answered. When either is removed, the other one goes on.
func TestR7TakenOver(t *testing.T) {
	t.Parallel()
	for name, lastGoes := range map[string]bool{"the first one goes": false, "the last one goes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := polled(says("p", "1")), polled(says("p", "2"))
			r := behindSockets(t, scripted{"p": first})
			r.published("p=1")
			s2 := r.serve("p2", "p", second)
			s2.registered(t)
			r.published("p=2")
			gone, left, want := r.servers["p"], second, "p=3"
			if lastGoes {
				gone, left = s2, first
			}
			left.set(func(s *script) { s.poll = []merge.Content{says("p", "3")} })
			gone.stop()
			r.published(want)
			r.always("p")
			r.await("one endpoint", func() string {
				if row := r.row("p"); !row.Active || (row.Socket == r.socket("p")) != lastGoes {
					return fmt.Sprintf("%+v", row)
				}
				return ""
			})
		})
	}
}

// TestManyPlugins: the 33rd plugin is refused; all others are published.
func TestManyPlugins(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range 33 {
		name := fmt.Sprintf("p%02d", i)
		r.serve(name, name, polled(says(name, "1")))
	}
	r.start()
	r.await("32 plugins and a refusal", func() string {
		for _, refusal := range r.host.Refusals() {
			if n := len(r.host.Endpoints()); n == 32 && strings.Contains(refusal.Message, "32 plugins") {
				return ""
			}
		}
		return fmt.Sprintf("%d plugins, refusals %+v", len(r.host.Endpoints()), r.host.Refusals())
	})
	var want []string
	for _, e := range r.host.Endpoints() {
		want = append(want, e.Name()+"=1")
	}
	r.published(want...)
}
