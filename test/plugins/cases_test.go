package plugins

import (
	"fmt"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// scenario is one case. Plugins, options and pods are what it begins with; evicted are all requests to the pod workers
// after that, unless play goes on with the case. It has an API server if api is set, which changes what that answers.
type scenario struct {
	name    string
	api     func(*apiServer)
	options func(*plugin.Options)
	pods    []*v1.Pod
	plugins func() scripted
	evicted []string
	play    func(r *rig)
}

func one(s func() *script) func() scripted { return func() scripted { return scripted{"p": s()} } }

// TestPlugins plays all cases with plugins in the agent and with the same plugins behind sockets.
func TestPlugins(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"in the agent", "behind sockets"} {
		for _, list := range [][]scenario{requestCases(), thresholdCases(), podCases(), conditionCases(), reloadCases(),
			faultCases(), killerCases(), blockedCases(), noticeCases()} {
			for _, c := range list {
				t.Run(kind+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t, c.options, c.pods...)
					r.behind, r.answers = kind == "behind sockets", c.api
					r.begin(c.plugins())
					r.begun()
					if c.play == nil || c.evicted != nil {
						r.evicted(c.evicted...)
					}
					if c.play != nil {
						c.play(r)
					}
				})
			}
		}
	}
}

// seldom makes rounds so rare that a case sees one only.
func seldom(o *plugin.Options) { o.Period = time.Hour }

// oneAtATime allows one pod in flight.
func oneAtATime(o *plugin.Options) { o.Rules.MaxInFlight = 1 }

func requestedUIDs(r *rig) (list []string) {
	for _, q := range r.driver.Requests() {
		if q.UID != "x" {
			list = append(list, string(q.UID))
		}
	}
	return list
}

func faultCases() []scenario {
	brief := func(o *plugin.Options) { o.CallTimeout = 300 * time.Millisecond }
	return []scenario{{
		name: "E3: a plugin that hangs", pods: pods("a"), options: brief, plugins: func() scripted {
			return scripted{"p": {hangs: true}, "q": force("a")}
		},
		play: func(r *rig) {
			delete(r.scripts, "p")
			r.evicted("a/30")
			r.await("a failure", func() string {
				if h := r.row("p").Health; h.Failures == 0 || h.LastError == "" {
					return fmt.Sprintf("%+v", h)
				}
				return ""
			})
		},
	}, {
		name: "E13: requests of a plugin that fails end", pods: pods("a", "x"),
		options: func(o *plugin.Options) { oneAtATime(o); o.Period = time.Second }, // longer than any call
		plugins: func() scripted { return scripted{"o": force("x"), "p": {}} }, evicted: []string{"x/30"},
		play: func(r *rig) {
			r.scripts["p"].set(func(s *script) { s.demand = force("a").demand })
			r.requested("p", 1)
			r.scripts["p"].set(func(s *script) { s.err = fmt.Errorf("broken") })
			r.requested("p", 0)
			if n := r.row("p").Health.Failures; n < 3 {
				r.t.Errorf("the request has ended after %d failures", n)
			}
		},
	}}
}

// TestMetrics checks the metrics of one plugin that acts and of one in dry run. No other test uses their names, since
// metrics are those of the process.
func TestMetrics(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		r := newRig(t, nil, pods("a", "b", "c")...)
		r.behind = behind
		acts, dry := fmt.Sprint("acts-", behind), fmt.Sprint("dry-", behind)
		r.reloadBefore(func(o *plugin.Options) { o.DryRun = plugin.Selector{dry} })
		s := force("a", "b", "elsewhere")
		s.demand.Condition = reporting("no/name").demand.Condition
		want := []struct {
			name, plugin string
			least, most  float64
		}{
			{"active", acts, 1, 1}, {"active", dry, 1, 1}, {"candidates", acts, 2, 2}, {"candidates", dry, 1, 1},
			{"victims_total", acts, 2, 2}, {"victims_total", dry, 0, 0}, {"dry_run_victims_total", acts, 0, 0},
			{"dry_run_victims_total", dry, 1, math.Inf(1)}, {"calls_total", acts, 4, math.Inf(1)},
			{"dropped_total", acts, 2, math.Inf(1)}, {"refused_conditions_total", acts, 2, math.Inf(1)},
		}
		before := map[string]float64{}
		for _, m := range want {
			before[m.name+m.plugin] = r.metric(m.name, m.plugin)
		}
		r.begin(scripted{acts: s, dry: force("c")})
		r.called(1)
		r.evicted("a/30", "b/30")
		for _, m := range want {
			// A call may have timed out on a busy machine: then the plugin has no candidates until the next one.
			r.await(m.name+" of "+m.plugin, func() string {
				if v := r.metric(m.name, m.plugin) - before[m.name+m.plugin]; v < m.least || v > m.most {
					return fmt.Sprintf("has risen by %v, want %v to %v", v, m.least, m.most)
				}
				return ""
			})
		}
		r.reload(func(o *plugin.Options) { o.Remote, o.InTree = nil, nil })
		r.await("the plugins are not active", func() string {
			if v := r.metric("active", acts) + r.metric("active", dry) + r.metric("candidates", acts); v != 0 {
				return fmt.Sprint(v)
			}
			return ""
		})
	}
}
