//go:build e2e

package e2enode

// The tests of this file take longest of those that run in parallel, since they wait for long back-offs. Go starts
// parallel tests in the reverse order of their files: the name of this file is the last, so that no test of it is left
// when all others have ended.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestHungShim halts the shim of a pod, so that no request to stop its container comes to an end. The processes are
// killed all the same. The pod is not reported as stopped, and is deleted once the runtime has seen that they ended.
// Meanwhile the runtime does not answer requests for statistics of all containers: no other parallel test needs them.
func TestHungShim(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(quickPod("hung"))
	s.showLogIfFailed(pod)
	pid := s.mainPID(pod)
	resume := s.halt(s.shimOf(pid))
	s.delete(pod)
	for _, event := range [][2]string{
		{"ContainerStopOverdue", "running: main"},
		{"ContainerProcessesKilled", "sleep"},
		{"ContainerStopStuck", "running: main; no process is left"},
	} {
		s.eventually(podTimeout, func(ctx context.Context) error { return s.hasEvent(ctx, pod.Name, event[0], event[1]) })
	}
	s.must(dead(pid))
	if left := s.get(pod.Name); left.Status.Phase != v1.PodRunning || left.DeletionTimestamp == nil {
		t.Errorf("the runtime has not stopped the pod, whose status is %s", kit.Describe(left))
	}
	resume()
	s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
}

// TestPluginsNeedTheConfiguration registers a plugin with a kubelet whose configuration has no plugins. It is refused,
// with one event although it tries again, and never called.
func TestPluginsNeedTheConfiguration(t *testing.T) {
	s := parallelSpace(t)
	p := s.startKatalyst("katalyst-" + s.name)
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		return s.nodeEvent(ctx, p.started, "PluginRefused", p.name)
	})
	const refusals = `plimsoll_plugin_refusals_total{reason="NotEnabled",type="EvictionPlugin"}`
	before := s.mustMetric(refusals)
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		now, err := s.metric(ctx, refusals)
		if err == nil && now < before+2 {
			err = errors.New("the plugin was not refused again")
		}
		return err
	})
	times, err := s.countEvents(metav1.NamespaceDefault, "PluginRefused", func(e *v1.Event) bool {
		return strings.Contains(e.Message, p.name)
	})
	s.must(err)
	if calls := p.recorded(p.started, ""); times != 1 || len(calls) > 0 {
		t.Errorf("%d events about the refusal, want one; %d calls, want none", times, len(calls))
	}
	refused := s.pluginPage().Refused
	if !slices.ContainsFunc(refused, func(r debugv1alpha1.RefusedRegistration) bool { return r.Socket == p.socket }) {
		t.Errorf("the page shows the refusals %+v", refused)
	}
}
