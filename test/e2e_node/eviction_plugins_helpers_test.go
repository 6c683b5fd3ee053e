//go:build e2e

package e2enode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// pluginTimeout is for what an eviction plugin causes within some rounds.
const pluginTimeout = time.Minute

// katalystPlugin is a process of test/katalyst. Its answers are those in a file, and it records its calls in another.
type katalystPlugin struct {
	s                      *space
	name                   string
	socket, control, calls string
	flags                  []string
	process                *exec.Cmd
	output                 bytes.Buffer
	started                time.Time
}

// pluginCall is a call of the plugin, as it records it.
type pluginCall struct {
	Time  time.Time
	Call  string
	Pods  []string
	TopN  uint64
	Scope string
}

// startKatalyst starts the plugin of Katalyst, which registers at once, and ends it when the test ends.
func (s *space) startKatalyst(name string) *katalystPlugin {
	s.t.Helper()
	return s.startKatalystWith(name, `{"serve": true}`)
}

// startKatalystWith is startKatalyst for a plugin with these answers from its start on, and with more flags.
func (s *space) startKatalystWith(name, answers string, flags ...string) *katalystPlugin {
	s.t.Helper()
	s.must(builder.Build(s.ctx, []build.Part{build.KatalystPlugin()}))
	own, dir := s.t.TempDir(), filepath.Join(node.Layout().KubeletRoot(), "plugins_registry")
	p := &katalystPlugin{
		s: s, name: name, socket: filepath.Join(dir, name+".sock"), control: filepath.Join(own, "control.json"),
		calls: filepath.Join(own, "calls"),
	}
	p.flags = append([]string{"-dir", dir, "-control", p.control, "-calls", p.calls, "-name", name}, flags...)
	p.answer("%s", answers)
	p.start()
	s.t.Cleanup(func() {
		err := errors.Join(p.process.Process.Signal(syscall.SIGTERM), p.process.Wait())
		if err != nil || s.t.Failed() {
			s.t.Logf("plugin %s: %v\n%s", name, err, p.output.String())
		}
		_ = os.Remove(p.socket)
	})
	return p
}

// start starts the process.
func (p *katalystPlugin) start() {
	p.s.t.Helper()
	p.output.Reset()
	p.process = exec.Command(node.Layout().Program(build.KatalystPlugin().Name), p.flags...)
	p.process.Stdout, p.process.Stderr = &p.output, &p.output
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	p.s.must(p.process.Start())
}

// answer replaces the answers, which are JSON. It returns the time before.
func (p *katalystPlugin) answer(format string, args ...any) time.Time {
	p.s.t.Helper()
	before := time.Now()
	p.s.must(os.WriteFile(p.control+".new", fmt.Appendf(nil, format, args...), 0o600))
	p.s.must(os.Rename(p.control+".new", p.control))
	return before
}

// recorded returns the calls of that method, or of all methods for "", since that time.
func (p *katalystPlugin) recorded(since time.Time, method string) (list []pluginCall) {
	p.s.t.Helper()
	data, err := os.ReadFile(p.calls)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p.s.must(err)
	for line := range strings.Lines(string(data)) {
		var c pluginCall
		if !strings.HasSuffix(line, "\n") {
			continue // is being written
		}
		p.s.must(json.Unmarshal([]byte(line), &c))
		if !c.Time.Before(since) && (method == "" || c.Call == method) {
			list = append(list, c)
		}
	}
	return list
}

// called waits for a call of that method, or of any for "", since that time. It returns the first one.
func (p *katalystPlugin) called(since time.Time, method string) (first pluginCall) {
	p.s.t.Helper()
	p.s.eventually(pluginTimeout, func(context.Context) error {
		calls := p.recorded(since, method)
		if len(calls) == 0 {
			return fmt.Errorf("plugin %s was not called", p.name)
		}
		first = calls[0]
		return nil
	})
	return first
}

// registered waits until the plugin, which serves since that time, is registered and called.
func (p *katalystPlugin) registered(since time.Time) {
	p.s.t.Helper()
	p.s.eventually(pluginTimeout, func(context.Context) error {
		row := p.shown()
		if row == nil || row.Registered.Before(since) {
			return fmt.Errorf("plugin %s is not registered: %+v", p.name, row)
		}
		p.s.took("registration", row.Registered.Sub(since), 5*time.Second)
		return nil
	})
	p.s.took("first call", p.called(since, "").Time.Sub(since), 10*time.Second)
}

// shown returns the row of the plugin on the page /debug/plugins, nil if there is none.
func (p *katalystPlugin) shown() *debugv1alpha1.Plugin {
	p.s.t.Helper()
	page := p.s.pluginPage()
	for i := range page.Plugins {
		if page.Plugins[i].Name == p.name {
			return &page.Plugins[i]
		}
	}
	return nil
}

func (s *space) pluginPage() (list debugv1alpha1.PluginList) {
	s.t.Helper()
	code, body, err := node.KubeletGet(s.ctx, "/debug/plugins", true)
	s.must(err)
	if code != http.StatusOK {
		s.t.Fatalf("get the page of plugins: code %d: %.200s", code, body)
	}
	s.must(json.Unmarshal(body, &list))
	return list
}

// pluginRounds returns how often tests of eviction plugins repeat what they measure, and whether the times count.
func pluginRounds(t testing.TB) (rounds int, timesCount bool) {
	t.Helper()
	text := os.Getenv("PLIMSOLL_PLUGIN_ROUNDS")
	if text == "" {
		return 1, false
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("PLIMSOLL_PLUGIN_ROUNDS is %q, want a number from 1 on", text)
	}
	return rounds, true
}

// took logs how long something took. With PLIMSOLL_PLUGIN_ROUNDS it may not have taken longer than limit.
func (s *space) took(what string, took, limit time.Duration) {
	s.t.Helper()
	s.t.Logf("%s: %v, at most %v", what, took.Round(10*time.Millisecond), limit)
	if _, counts := pluginRounds(s.t); counts && took > limit {
		s.t.Errorf("%s: %v, more than %v", what, took, limit)
	}
}

// evictedFor checks the message, the condition and the event of a pod that was evicted for the plugin.
func (p *katalystPlugin) evictedFor(pod *v1.Pod, reason string) {
	s := p.s
	s.t.Helper()
	for _, text := range []string{"Eviction requested by plugin " + p.name + " ", p.name + ": " + reason} {
		if !strings.Contains(pod.Status.Message, text) {
			s.t.Errorf("message of %s is %q, want %q in it", pod.Name, pod.Status.Message, text)
		}
	}
	if kit.ConditionStatus(pod, v1.DisruptionTarget) != v1.ConditionTrue {
		s.t.Errorf("no condition DisruptionTarget: %v", pod.Status.Conditions)
	}
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, pod.Name, "Evicted", p.name+": "+reason)
	})
}

// pluginCondition is the type of a condition that plugins report, on the Node.
func pluginCondition(name string) v1.NodeConditionType {
	return v1.NodeConditionType("node.katalyst.kubewharf.io/" + name)
}

// nodeHas waits until the Node has the condition with that status.
func (s *space) nodeHas(kind v1.NodeConditionType, status v1.ConditionStatus) (condition v1.NodeCondition) {
	s.t.Helper()
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		got, err := kit.Node(ctx, s.client)
		if err != nil {
			return err
		}
		condition = kit.NodeCondition(got, kind)
		if condition.Status != status {
			return fmt.Errorf("condition %s is %q, want %q", kind, condition.Status, status)
		}
		return nil
	})
	return condition
}

// taintEffects returns the effects of the taints that the Node has for a condition of plugins.
func taintEffects(n *v1.Node, kind v1.NodeConditionType) (effects []v1.TaintEffect) {
	for _, taint := range n.Spec.Taints {
		if taint.Key == string(kind) {
			effects = append(effects, taint.Effect)
		}
	}
	return effects
}

// nodeTainted waits until the Node has taints with these effects, and no others, for a condition of plugins.
func (s *space) nodeTainted(kind v1.NodeConditionType, want ...v1.TaintEffect) {
	s.t.Helper()
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		got, err := kit.Node(ctx, s.client)
		if err != nil {
			return err
		}
		if effects := taintEffects(got, kind); !slices.Equal(effects, want) {
			return fmt.Errorf("the taints of %s have the effects %q, want %q", kind, effects, want)
		}
		return nil
	})
}

// watchCondition watches the Node from now on. Function stop ends that, and returns how often the Node was seen, and an
// error if the condition was not True each time, or had no taint NoSchedule.
func (s *space) watchCondition(kind v1.NodeConditionType) (stop func() (seen int, lost error)) {
	s.t.Helper()
	list, err := s.client.CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	watcher, err := s.client.CoreV1().Nodes().Watch(s.ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + cluster.NodeName, ResourceVersion: list.ResourceVersion,
	})
	s.must(err)
	s.t.Cleanup(watcher.Stop)
	var (
		seen    int
		lost    error
		stopped atomic.Bool
		done    = make(chan struct{})
	)
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			got, ok := event.Object.(*v1.Node)
			if !ok {
				if !stopped.Load() {
					lost = errors.Join(lost, fmt.Errorf("watch: %v", event.Object))
				}
				continue
			}
			seen++
			c, effects := kit.NodeCondition(got, kind), taintEffects(got, kind)
			if c.Status != v1.ConditionTrue || !slices.Equal(effects, []v1.TaintEffect{v1.TaintEffectNoSchedule}) {
				lost = errors.Join(lost, fmt.Errorf("at %s the condition is %q and has the taints %q",
					time.Now().Format(time.StampMilli), c.Status, effects))
			}
		}
	}()
	return func() (int, error) {
		stopped.Store(true)
		watcher.Stop()
		<-done
		return seen, lost
	}
}
