//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/pressure"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestReporterPlugins publishes what reporter plugins report in the CustomNodeResource and the Node. It is one test,
// since each configuration of the kubelet is a restart.
func TestReporterPlugins(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	s.noOtherPods()
	s.withoutReporterManifest("crd/customnoderesources.yaml")
	s.withPressureConfig(reporterSettings(anyTime, t), nil)
	t.Cleanup(func() {
		err := s.reporterUser("").Delete(context.Background(), cluster.NodeName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	t.Run("without kind and rights", func(t *testing.T) { s.in(t).withoutKindAndRights() })
	s.withReporterManifests()
	since := time.Now()
	s.publishAnew()
	t.Run("in the tree", func(t *testing.T) { s.in(t).inTreeReporters(since) })
	if length := idleTime(t); length > 0 {
		t.Run("idle", func(t *testing.T) { s.in(t).idleNode(length) })
	}
	t.Run("API server away", func(t *testing.T) { s.in(t).reportedWithoutAPIServer() })
	t.Run("kubelet killed", func(t *testing.T) { s.in(t).kubeletKilledWhileReporting() })
	s.shortReporterGrace()
	t.Run("deleted object", func(t *testing.T) { s.in(t).deletedObject() })
	t.Run("beside each other", func(t *testing.T) {
		// Where times count, nothing else runs.
		_, timesCount := pluginRounds(t)
		t.Run("pressure", func(t *testing.T) {
			if !timesCount {
				t.Parallel()
			}
			s.in(t).pressureLeaks(t)
		})
		t.Run("remote", func(t *testing.T) {
			if !timesCount {
				t.Parallel()
			}
			t.Run("of Katalyst", func(t *testing.T) { s.in(t).katalystReporters() })
			t.Run("one change", func(t *testing.T) { s.in(t).oneChange() })
			t.Run("other writers", func(t *testing.T) { s.in(t).otherWriters() })
			t.Run("fields left out", func(t *testing.T) { s.in(t).leftOutFields() })
		})
	})
}

// complete is nil if the object has what the plugins in the tree report, and the Node as its owner.
func complete(object *nodev1alpha1.CustomNodeResource, n *v1.Node) error {
	var missing []string
	for _, name := range []string{"cpu", "memory", "numa", "topology"} {
		if !slices.ContainsFunc(object.Spec.NodeResourceProperties, func(p nodev1alpha1.Property) bool {
			return p.PropertyName == name
		}) {
			missing = append(missing, "property "+name)
		}
	}
	zones := object.Status.TopologyZone
	if len(zones) == 0 || zones[0].Type != nodev1alpha1.TopologyTypeSocket || len(zones[0].Children) == 0 ||
		zones[0].Children[0].Type != nodev1alpha1.TopologyTypeNuma {
		missing = append(missing, fmt.Sprintf("zones of a socket and a NUMA node, but %+v", zones))
	}
	if object.Status.TopologyPolicy == "" {
		missing = append(missing, "topologyPolicy")
	}
	owners := object.OwnerReferences
	if len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != n.Name || owners[0].UID != n.UID {
		missing = append(missing, fmt.Sprintf("the Node as the only owner, but %+v", owners))
	}
	if len(missing) > 0 {
		return fmt.Errorf("the object lacks %q", missing)
	}
	return nil
}

// reportedComplete is nil if the object is complete, and has another UID than not.
func (s *space) reportedComplete(ctx context.Context, not types.UID) error {
	object, err := s.reported(ctx)
	if err != nil {
		return err
	}
	n, err := kit.Node(ctx, s.client)
	if err != nil {
		return err
	}
	if object.UID == not {
		return errors.New("the object is still that of before")
	}
	return complete(object, n)
}

// inTreeReporters waits for what plugins in the tree report.
func (s *space) inTreeReporters(since time.Time) {
	s.eventually(reporterTimeout, func(ctx context.Context) error { return s.reportedComplete(ctx, "") })
	s.t.Logf("the object is complete %v after it was selected", time.Since(since).Round(10*time.Millisecond))
	s.readyAnd(levelReported)
}

// levelReported is nil if the Node has what the plugin pressure reports. After pressure it is calm a minute later.
func levelReported(n *v1.Node) error {
	if n.Labels[pressure.Domain+"/memory"] == "" || n.Annotations[pressure.SignalsAnnotation] == "" {
		return fmt.Errorf("the labels are %v, the annotations %v", n.Labels, n.Annotations)
	}
	return nil
}

// calm is nil if the Node has the annotation of the plugin pressure, and its label for memory is calm.
func calm(n *v1.Node) error {
	if level := n.Labels[pressure.Domain+"/memory"]; level != "calm" || n.Annotations[pressure.SignalsAnnotation] == "" {
		return fmt.Errorf("the label is %q, the annotation %q", level, n.Annotations[pressure.SignalsAnnotation])
	}
	return nil
}

// leftOutFields has fields left out, and no longer.
func (s *space) leftOutFields() {
	all := reporterSettings(reporterGrace(s.t), s.t)
	without := all + "    fields: [-status.topologyZone, -spec.nodeResourceProperties]\n"
	since := time.Now()
	s.writePressureConfig(without)
	s.eventually(reporterTimeout, func(ctx context.Context) error {
		object, err := s.reported(ctx)
		if err == nil && len(object.Status.TopologyZone)+len(object.Spec.NodeResourceProperties) > 0 {
			err = errors.New("the object still has fields that are left out")
		}
		if err == nil && object.Status.TopologyPolicy == "" {
			err = kit.Hopeless(errors.New("another field is gone"))
		}
		return err
	})
	s.t.Logf("fields are gone %v after they were turned off", time.Since(since).Round(10*time.Millisecond))
	s.writePressureConfig(all)
	s.eventually(reporterTimeout, func(ctx context.Context) error { return s.reportedComplete(ctx, "") })
}

// deletedObject deletes the object, which comes back.
func (s *space) deletedObject() {
	before, err := s.reported(s.ctx)
	s.must(err)
	since := time.Now()
	s.must(s.reporterUser("").Delete(s.ctx, cluster.NodeName, metav1.DeleteOptions{}))
	s.eventually(reporterTimeout, func(ctx context.Context) error { return s.reportedComplete(ctx, before.UID) })
	s.took("the deleted object is back", time.Since(since), 10*time.Second)
}

// reportedWithoutAPIServer stops the API server while a plugin reports a new value each second. Afterwards each object
// is written once, with the newest value.
func (s *space) reportedWithoutAPIServer() {
	const key = "away"
	p := s.startReporter("katalyst-away", "%s", countedAnswers(key)(0))
	s.published(key, "0", reporterTimeout)
	stopped := time.Now()
	down := true
	s.t.Cleanup(func() {
		if down {
			if err := node.ReviveAPIServer(context.Background()); err != nil {
				s.t.Error(err)
			}
		}
	})
	before := map[string]int64{"CustomNodeResource": s.writesOf("CustomNodeResource"), "Node": s.writesOf("Node")}
	s.must(node.StopAPIServer(s.ctx))
	stop := p.counting(1, countedAnswers(key))
	s.stays(inSoak(time.Minute, 6*time.Second), func() error { return nil })
	last := strconv.Itoa(stop())
	s.must(node.ReviveAPIServer(s.ctx))
	down = false
	back := time.Now()
	s.published(key, last, 3*time.Minute)
	s.t.Logf("API server away for %v; %s is published %v after it is back",
		back.Sub(stopped).Round(time.Second), last, time.Since(back).Round(10*time.Millisecond))
	for kind, writes := range before {
		s.t.Logf("%s was written %d times afterwards", kind, s.writesOf(kind)-writes)
	}
	// What the plugin pressure reports of the Node may change at any time.
	if writes := s.writesOf("CustomNodeResource") - before["CustomNodeResource"]; writes != 1 {
		s.t.Errorf("the CustomNodeResource was written %d times, want once", writes)
	}
	if writes := s.writesOf("Node") - before["Node"]; writes < 1 || writes > 2 {
		s.t.Errorf("the Node was written %d times, want once", writes)
	}
}

// kubeletKilledWhileReporting kills the kubelet while a plugin reports a greater number each second; the plugin is back
// only after the next kubelet. A watch never sees either object without a number, or with a lesser one than before, or
// without what other plugins report.
func (s *space) kubeletKilledWhileReporting() {
	const key = "count"
	p := s.startReporter("katalyst-count", "%s", countedAnswers(key)(0))
	s.published(key, "0", reporterTimeout)
	end := s.observed()
	stop := p.counting(1, countedAnswers(key))
	// The record of answers is written every 5 s. After 3 s it is older than what is published.
	const records = `plimsoll_reporter_checkpoint_writes_total{result="ok"}`
	written := s.mustMetric(records)
	s.eventually(reporterTimeout, func(ctx context.Context) error {
		now, err := s.metric(ctx, records)
		if err == nil && now == written {
			err = errors.New("the record was not written")
		}
		return err
	})
	s.stays(3*time.Second, func() error { return nil })
	s.must(node.KillKubelet(s.ctx))
	last := stop()
	p.answer(`{"serve": false}`)
	s.must(node.StartKubelet(s.ctx, nil))
	s.stays(3*time.Second, func() error { return nil })
	stop = p.counting(last+1, countedAnswers(key))
	p.reporterRegistered(time.Now())
	s.stays(3*time.Second, func() error { return nil })
	last = stop()
	s.published(key, strconv.Itoa(last), reporterTimeout)
	resources, nodes, err := end()
	s.must(err)
	s.t.Logf("%d values; the object was seen %d times, the Node %d times", last, len(resources), len(nodes))
	if err := neverOlder(resources, key, metav1.Object.GetLabels); err != nil {
		s.t.Errorf("CustomNodeResource: %v", err)
	}
	if err := neverOlder(nodes, key, metav1.Object.GetAnnotations); err != nil {
		s.t.Errorf("Node: %v", err)
	}
	for _, seen := range nodes {
		n := nodeOf(seen)
		if n.Annotations[pressure.SignalsAnnotation] == "" || n.Labels[pressure.Domain+"/memory"] == "" {
			s.t.Errorf("at %s the Node lacks what the plugin pressure reports", seen.at.Format(time.StampMilli))
		}
	}
	s.completeThroughout(resources, nodeOf(nodes[0]))
}

// completeThroughout checks that each version of the object is complete.
func (s *space) completeThroughout(list []seenObject, n *v1.Node) {
	s.t.Helper()
	for _, seen := range list {
		object, err := decodedOf(seen)
		s.must(err)
		if err := complete(object, n); err != nil {
			s.t.Errorf("at %s: %v", seen.at.Format(time.StampMilli), err)
		}
	}
}

// reporterGrace returns the grace period of answers in the tests of a plugin that stops.
func reporterGrace(t testing.TB) time.Duration {
	if _, timesCount := pluginRounds(t); timesCount {
		return 30 * time.Second
	}
	return inSoak(30*time.Second, 5*time.Second)
}

func (s *space) shortReporterGrace() {
	settings := reporterSettings(reporterGrace(s.t), s.t)
	s.writePressureConfig(settings)
	s.inForce(settings)
}

// katalystReporters runs a reporter plugin from Katalyst's unmodified code. PLIMSOLL_PLUGIN_ROUNDS repeats that, and
// then the times that are logged count.
func (s *space) katalystReporters() {
	rounds, _ := pluginRounds(s.t)
	for round := range rounds {
		s.t.Logf("round %d", round+1)
		s.katalystReporter(fmt.Sprintf("katalyst-reporter-%d", round+1))
	}
}

func (s *space) katalystReporter(key string) {
	p := s.startReporter(key, `{"serve": true, "poll": %s}`, reports(key, "polled"))
	p.reporterRegistered(p.started)
	s.took("polled content in the objects", s.published(key, "polled", reporterTimeout).Sub(p.started), 8*time.Second)

	streamed := func(value string, ends int) string {
		return fmt.Sprintf(`{"serve": true, "stream": %s, "endStream": %d}`, reports(key, value), ends)
	}
	since := p.answer("%s", streamed("streamed", 0))
	s.took("streamed content in the objects", s.published(key, "streamed", reporterTimeout).Sub(since), 3*time.Second)
	since = p.answer("%s", streamed("again", 1))
	s.took("open again after the plugin has ended the stream",
		p.called(since, "ListAndWatchReportContent").Time.Sub(since), 3*time.Second)
	s.published(key, "again", reporterTimeout)

	grace := reporterGrace(s.t)
	killed := time.Now()
	s.must(p.process.Process.Signal(syscall.SIGKILL))
	_ = p.process.Wait()
	s.goneAfter(key, killed, grace)

	p.answer("%s", streamed("restarted", 1))
	p.start()
	s.took("streams after it was started again",
		s.published(key, "restarted", reporterTimeout).Sub(p.started), 5*time.Second)
	p.reporterRegistered(p.started)

	since = p.answer(`{"serve": false}`)
	s.eventually(reporterTimeout, func(context.Context) error {
		if row := p.reporterRow(); row != nil {
			return fmt.Errorf("the plugin is still called: %+v", row)
		}
		return nil
	})
	s.took("deregistration", time.Since(since), 5*time.Second)
	since = p.answer("%s", streamed("registered-again", 1))
	p.reporterRegistered(since)
	s.published(key, "registered-again", reporterTimeout)
	since = p.answer(`{"serve": false}`)
	s.goneAfter(key, since, grace)
}

// goneAfter waits until the value is gone, which is after the grace period.
func (s *space) goneAfter(key string, stopped time.Time, grace time.Duration) {
	s.t.Helper()
	gone := s.published(key, "", grace+reporterTimeout).Sub(stopped)
	s.took("the values are gone after the plugin has stopped", gone, grace+15*time.Second)
	// The grace period begins at the first call that fails after the plugin has stopped, or when it is deregistered.
	if gone < grace {
		s.t.Errorf("the values are gone after %v, before the grace period of %v", gone, grace)
	}
}
