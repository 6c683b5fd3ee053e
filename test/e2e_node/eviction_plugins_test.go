//go:build e2e

package e2enode

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// pluginConfig enables eviction plugins, and taints for their conditions.
	pluginConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
plugins:
  eviction:
    remote: ["*"]
    period: %s
    conditionTransitionPeriod: %s
    taints:
      kubeconfig: %s
`
	// pluginTransition is the transition period of conditions of plugins.
	pluginTransition = 6 * time.Second
	// hardGrace is the grace period of the hard threshold of a plugin.
	hardGrace = 10 * time.Second
)

// TestKatalystPlugin runs plugins from Katalyst's unmodified code, one in each subtest. PLIMSOLL_PLUGIN_ROUNDS repeats
// all of them, and then the times that are logged count.
func TestKatalystPlugin(t *testing.T) {
	rounds, _ := pluginRounds(t)
	s := spaceForRestart(t)
	s.withTaintIdentity()
	s.withPressureConfig(pluginsWith(pluginTransition, t), nil)
	for round := range rounds {
		t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) {
			for name, scenario := range map[string]func(*space, *katalystPlugin){
				"forced": forcedVictim, "soft": softCandidates, "hard": hardThreshold, "condition": conditionOfPlugin,
				"deregistered": deregisteredPlugin,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					in := newNamespace(t)
					p := in.startKatalyst("katalyst-" + name)
					p.registered(p.started)
					scenario(in, p)
				})
			}
		})
	}
}

// pluginsWith returns the configuration of eviction plugins with that transition period of their conditions. They are
// called every 2 s or, where times count, every 5 s, which is the default.
func pluginsWith(transition time.Duration, t testing.TB) string {
	t.Helper()
	period := 2 * time.Second
	if _, timesCount := pluginRounds(t); timesCount {
		period = 5 * time.Second
	}
	return fmt.Sprintf(pluginConfig, period, transition, node.Layout().TaintsConfig())
}

// forcedVictim has the plugin request a pod by force.
func forcedVictim(s *space, p *katalystPlugin) {
	pod := s.ready(kit.Bound(kit.IdlePod("victim")))
	s.ready(kit.Bound(kit.IdlePod("other")))
	since := p.answer(`{"serve": true, "evict": [
		{"pod": "%s/victim", "reason": "no longer needed", "force": true}]}`, s.name)
	evicted := s.wait(pod, pluginTimeout, endedFor("Evicted"))
	s.took("eviction after the answer was set", time.Since(since), 12*time.Second)
	p.evictedFor(evicted, "no longer needed")
	s.must(s.onlyEvicted("victim"))
}

// softCandidates has the plugin request five pods without force. They are evicted through the eviction API in the
// documented order, one in each round: a reclaimed pod, then by priority, then by UID.
func softCandidates(s *space, p *katalystPlugin) {
	s.priorityClass(s.name+"-low", -10)
	s.priorityClass(s.name+"-high", 10)
	s.priorityClass(s.name+"-top", 100)
	create := func(name, class string) *v1.Pod {
		pod := kit.Bound(kit.IdlePod(name))
		pod.Spec.PriorityClassName = class
		if name == "reclaimed" {
			pod.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores}
		}
		return s.create(pod)
	}
	high, low := create("high", s.name+"-high"), create("low", s.name+"-low")
	equal := []*v1.Pod{create("equal-1", ""), create("equal-2", "")}
	slices.SortFunc(equal, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	reclaimed := create("reclaimed", s.name+"-top")
	order := []*v1.Pod{reclaimed, low, equal[0], equal[1], high}
	for _, pod := range order {
		s.wait(pod, podTimeout, kit.Ready)
	}
	var requested []string
	for _, pod := range slices.Backward(order) {
		requested = append(requested, fmt.Sprintf(`{"pod": "%s/%s", "reason": "candidate"}`, s.name, pod.Name))
	}
	nextDeleted := s.watchDeletions()
	since := p.answer(`{"serve": true, "evict": [%s]}`, strings.Join(requested, ", "))
	for i, pod := range order {
		name := nextDeleted()
		s.t.Logf("%s evicted after %v", name, time.Since(since).Round(100*time.Millisecond))
		if name != pod.Name {
			s.t.Fatalf("pod %d that was evicted is %s, want %s", i+1, name, pod.Name)
		}
		if rounds := len(p.recorded(since, "GetEvictPods")); rounds < i+1 {
			s.t.Fatalf("%d pods were evicted in %d rounds, want one in each round", i+1, rounds)
		}
		s.eventually(podTimeout, func(ctx context.Context) error { return s.hasEvent(ctx, pod.Name, "Evicted", p.name) })
		s.must(s.hasEvent(s.ctx, pod.Name, "Evicted", "candidate"))
	}
}

// watchDeletions watches which pods of the namespace are deleted from now on. Function next waits for the next one, and
// returns its name.
func (s *space) watchDeletions() (next func() string) {
	s.t.Helper()
	list, err := s.client.CoreV1().Pods(s.name).List(s.ctx, metav1.ListOptions{})
	s.must(err)
	watcher, err := s.client.CoreV1().Pods(s.name).Watch(s.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	s.must(err)
	s.t.Cleanup(watcher.Stop)
	seen := map[types.UID]bool{}
	return func() string {
		s.t.Helper()
		late := time.After(pluginTimeout)
		for {
			select {
			case event := <-watcher.ResultChan():
				pod, ok := event.Object.(*v1.Pod)
				if !ok {
					s.t.Fatalf("the watch on pods ended: %v", event.Object)
				}
				if pod.DeletionTimestamp != nil && !seen[pod.UID] {
					seen[pod.UID] = true
					return pod.Name
				}
			case <-late:
				s.t.Fatalf("no further pod was deleted in %v", pluginTimeout)
			}
		}
	}
}

// hardThreshold has a hard threshold with a grace period.
func hardThreshold(s *space, p *katalystPlugin) {
	pod := s.ready(kit.Bound(kit.IdlePod("victim")))
	s.ready(kit.Bound(kit.IdlePod("other")))
	since := p.answer(`{"serve": true, "threshold": {"met": "HARD_MET", "scope": "memory", "target": 1, "observed": 2,
		"graceSeconds": %d}, "top": {"pods": ["%s/victim"]}}`, int(hardGrace/time.Second), s.name)
	met := p.called(since, "ThresholdMet").Time
	evicted := s.wait(pod, pluginTimeout, endedFor("Evicted"))
	passed := time.Since(met)
	s.took("eviction after the threshold was met first", passed, 17*time.Second)
	if passed < hardGrace {
		s.t.Errorf("the pod was evicted %v after the threshold was met, before its grace period", passed)
	}
	if asked := p.called(since, "GetTopEvictionPods"); asked.TopN != 1 || asked.Scope != "memory" {
		s.t.Errorf("GetTopEvictionPods had topN %d and scope %q", asked.TopN, asked.Scope)
	}
	p.evictedFor(evicted, "")
	if !strings.Contains(evicted.Status.Message, `(scope "memory")`) {
		s.t.Errorf("message has no scope: %q", evicted.Status.Message)
	}
	s.must(s.onlyEvicted("victim"))
}

// conditionOfPlugin has a condition become True and, when the plugin no longer reports it, False. The Node has the
// taint of the condition for as long; the effect NoExecute is not among those that the configuration allows.
func conditionOfPlugin(s *space, p *katalystPlugin) {
	kind := pluginCondition("Full")
	since := p.answer(`{"serve": true, "condition": {
		"name": "Full", "met": true, "effects": ["NoSchedule", "NoExecute"]}}`)
	reported := p.called(since, "").Time
	condition := s.nodeHas(kind, v1.ConditionTrue)
	s.took("condition on the Node after the answer", time.Since(reported), 2*time.Second)
	s.nodeTainted(kind, v1.TaintEffectNoSchedule)
	s.took("taint of the Node after the answer", time.Since(reported), 10*time.Second)
	if condition.Reason != "EvictionPluginConditionMet" || !strings.Contains(condition.Message, p.name) {
		s.t.Errorf("condition is %v", condition)
	}
	page, row := s.pluginPage(), p.shown()
	if row == nil || !row.Enabled || row.Socket != p.socket || row.Registered.IsZero() || row.LastAnswer == nil ||
		row.LastAnswer.ThresholdType != "NOT_MET" || row.Health.Failures != 0 {
		s.t.Errorf("the page shows the plugin as %+v", row)
	}
	if len(page.Conditions) != 1 || page.Conditions[0].Name != "Full" || !page.Conditions[0].True ||
		!slices.Equal(page.Conditions[0].Plugins, []string{p.name}) {
		s.t.Errorf("the page shows the conditions %+v", page.Conditions)
	}
	s.ready(kit.Bound(kit.IdlePod("admitted")))
	since = p.answer(`{"serve": true}`)
	s.nodeHas(kind, v1.ConditionFalse)
	s.took("end of the condition after the answer was set", time.Since(since), pluginTransition+6*time.Second)
	ended := time.Now()
	s.nodeTainted(kind)
	s.took("end of the taint after that of the condition", time.Since(ended), 10*time.Second)
}

// deregisteredPlugin stops the plugin, which is not called any more, and starts it again.
func deregisteredPlugin(s *space, p *katalystPlugin) {
	since := p.answer(`{"serve": false}`)
	s.eventually(pluginTimeout, func(context.Context) error {
		if row := p.shown(); row != nil {
			return fmt.Errorf("the page still shows the plugin: %+v", row)
		}
		return nil
	})
	deregistered := time.Now()
	s.took("deregistration", deregistered.Sub(since), 5*time.Second)
	quiet := inSoak(30*time.Second, 12*time.Second)
	if _, timesCount := pluginRounds(s.t); timesCount {
		quiet = 30 * time.Second
	}
	s.stays(quiet, func() error {
		if calls := p.recorded(deregistered, ""); len(calls) > 0 {
			return fmt.Errorf("called after the deregistration: %v", calls)
		}
		return nil
	})
	p.registered(p.answer(`{"serve": true}`))
}

// TestKubeletCrashUnderPluginCondition kills the kubelet while a plugin reports a condition and two pods are being
// evicted for the plugin, which is back only after the next kubelet. A watch on the Node never sees the condition or
// its taint go, and each pod is evicted once.
func TestKubeletCrashUnderPluginCondition(t *testing.T) {
	s := spaceForRestart(t)
	s.withTaintIdentity()
	s.withPressureConfig(pluginsWith(5*time.Minute, t), nil)
	p := s.startKatalyst("katalyst-crash")
	p.registered(p.started)
	dir := t.TempDir()
	victims := []*v1.Pod{s.ready(stopsWhenTold(dir, "victim-1")), s.ready(stopsWhenTold(dir, "victim-2"))}
	const answers = `{"serve": true, "condition": {"name": "Full", "met": true, "effects": ["NoSchedule"]}, "evict": [
		{"pod": "%[1]s/victim-1", "reason": "crash", "force": true},
		{"pod": "%[1]s/victim-2", "reason": "crash", "force": true}]}`
	p.answer(answers, s.name)
	kind := pluginCondition("Full")
	s.nodeHas(kind, v1.ConditionTrue)
	s.nodeTainted(kind, v1.TaintEffectNoSchedule)
	for _, victim := range victims {
		s.eventually(pluginTimeout, func(ctx context.Context) error {
			if _, err := os.Stat(terminationFile(victim)); err != nil {
				return err
			}
			return s.hasEvent(ctx, victim.Name, "Evicted", "crash")
		})
	}

	watch := s.watchCondition(kind)
	s.must(node.KillKubelet(s.ctx))
	p.answer(`{"serve": false}`)
	for _, victim := range victims {
		if err := gone(s.mainPID(victim)); err == nil {
			t.Errorf("%s has ended before the kubelet was killed", victim.Name)
		}
	}
	// The kubelet reports the Node before the plugin is back.
	s.must(node.StartKubelet(s.ctx, nil))
	back := p.answer(answers, s.name)
	p.registered(back)
	// The calls of the first round are settled when the second one begins.
	s.eventually(pluginTimeout, func(context.Context) error {
		if rounds := len(p.recorded(back, "GetEvictPods")); rounds < 2 {
			return fmt.Errorf("%d rounds, want two", rounds)
		}
		return nil
	})
	s.must(os.WriteFile(filepath.Join(dir, "now"), nil, 0o644))
	for _, victim := range victims {
		ended := s.wait(victim, podTimeout, endedFor("Evicted"))
		p.evictedFor(ended, "crash")
		s.evictedOnce(ended)
	}
	seen, lost := watch()
	t.Logf("the Node was seen %d times", seen)
	if lost != nil || seen == 0 {
		t.Errorf("the condition was lost: %v; the Node was seen %d times", lost, seen)
	}
	// The taint would keep pods of other tests away.
	s.writePressureConfig(pluginsWith(0, t))
	p.answer(`{"serve": true}`)
	s.nodeHas(kind, v1.ConditionFalse)
	s.nodeTainted(kind)
}

// stopsWhenTold is a pod that, once it is to stop, waits for the file now in the directory.
func stopsWhenTold(dir, name string) *v1.Pod {
	pod := counted(dir, name, "trap 'while ! [ -e /starts/now ]; do sleep 0.2; done; exit 143' TERM"+kit.Forever)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(120))
	return kit.Bound(pod)
}

// evictedOnce checks that the kubelets have evicted the pod once, and not deleted it.
func (s *space) evictedOnce(pod *v1.Pod) {
	s.t.Helper()
	if pod.DeletionTimestamp != nil || pod.Status.Reason != "Evicted" || pod.Status.Phase != v1.PodFailed {
		s.t.Errorf("pod %s: deleted at %v, %s", pod.Name, pod.DeletionTimestamp, kit.Describe(pod))
	}
	times, err := s.countEvents(s.name, "Evicted", func(e *v1.Event) bool { return e.InvolvedObject.Name == pod.Name })
	s.must(err)
	logged, err := s.loggedPods(logEvicting)
	s.must(err)
	logged = slices.DeleteFunc(logged, func(name string) bool { return name != pod.Name })
	if times != 1 || len(logged) != 1 {
		s.t.Errorf("pod %s has %d events Evicted and %d lines in the log, want one of each", pod.Name, times, len(logged))
	}
}

// countEvents returns how often the events with that reason that match were reported.
func (s *space) countEvents(namespace, reason string, match func(*v1.Event) bool) (times int, err error) {
	events, err := s.client.CoreV1().Events(namespace).List(s.ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
	if err != nil {
		return 0, err
	}
	for i := range events.Items {
		if e := &events.Items[i]; match(e) {
			times += max(1, int(e.Count))
		}
	}
	return times, nil
}
