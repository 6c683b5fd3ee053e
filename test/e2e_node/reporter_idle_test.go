//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// soak returns whether PLIMSOLL_SOAK is set, as make soak does.
func soak() bool { return os.Getenv("PLIMSOLL_SOAK") != "" }

// oneChange has a plugin change one value again and again, while nothing else is written. It logs the times to both
// objects: of seven changes, in soak of a hundred.
func (s *space) oneChange() {
	const key = "changed"
	changes := 7
	if soak() {
		changes = 100
	}
	answers := func(n int) string {
		return fmt.Sprintf(`{"serve": true, "stream": %s}`, reports(key, strconv.Itoa(n)))
	}
	p := s.startReporter("katalyst-change", "%s", answers(0))
	s.published(key, "0", reporterTimeout)
	var times []time.Duration
	for n := 1; n <= changes; n++ {
		since := p.answer("%s", answers(n))
		times = append(times, s.published(key, strconv.Itoa(n), reporterTimeout).Sub(since))
	}
	slices.Sort(times)
	s.t.Logf("%d changes of one value: half of them in the objects after %v, all after %v", changes,
		times[len(times)/2].Round(10*time.Millisecond), times[len(times)-1].Round(10*time.Millisecond))
	s.took("99 of 100 changes of one value in the objects", times[(len(times)*99-1)/100], 2500*time.Millisecond)
}

// idleTime returns how long the node is observed while it is idle: PLIMSOLL_REPORTER_IDLE, else an hour in soak, else
// not at all.
func idleTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("PLIMSOLL_REPORTER_IDLE")
	if text == "" {
		return inSoak(time.Hour, 0)
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal("PLIMSOLL_REPORTER_IDLE: ", err)
	}
	return length
}

// idleNode checks that an idle node is calm all the time, and that the plugin pressure has the Node written once in
// five minutes at most.
func (s *space) idleNode(length time.Duration) {
	s.readyAnd(calm)
	end, before := s.observed(), s.writesOf("Node")
	s.stays(length, func() error { return nil })
	writes := s.writesOf("Node") - before
	_, nodes, err := end()
	s.must(err)
	for _, seen := range nodes {
		if err := calm(nodeOf(seen)); err != nil {
			s.t.Errorf("at %s: %v", seen.at.Format(time.StampMilli), err)
		}
	}
	s.t.Logf("%d writes of the Node for reporter plugins in %v; it was seen %d times", writes, length, len(nodes))
	if most := int64((length + 5*time.Minute - 1) / (5 * time.Minute)); writes > most {
		s.t.Errorf("the Node was written %d times in %v, more than %d", writes, length, most)
	}
}

// idleReporters enables three plugins in the tree, with the defaults otherwise.
const idleReporters = pressureHeader + `plugins:
  reporter:
    inTree: [system-reporter-plugin, kubelet-reporter-plugin, pressure]
    publish: [CustomNodeResource, Node]
`

// BenchmarkIdleReporters measures the CPU time and the memory of the kubelet of a node with 110 pods, without reporter
// plugins and with three in the tree, by turns. One operation is five seconds:
//
//	go test -tags e2e -run '^$' -bench IdleReporters -benchtime 12x -timeout 1h ./test/e2e_node
//
// The memory is the greatest resident set that was seen.
func BenchmarkIdleReporters(b *testing.B) {
	s := newSpace(b)
	s.withPressureConfig(pressureHeader, nil)
	b.Cleanup(func() {
		err := s.reporterUser("").Delete(context.Background(), cluster.NodeName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			b.Error(err)
		}
	})
	s.startMany(idlePods)
	for round := range 3 {
		for _, with := range []bool{false, true} {
			settings, settled := pressureHeader, s.nothingReported
			if with {
				settings = idleReporters
				settled = func(ctx context.Context) error { return s.reportedComplete(ctx, "") }
			}
			s.writePressureConfig(settings)
			s.inForce(settings)
			s.eventually(slowTimeout, settled)
			b.Run(fmt.Sprintf("reporters=%t/round=%d", with, round+1), func(b *testing.B) { s.in(b).idleCost(b) })
		}
	}
}

// nothingReported is nil if the object has nothing of plugins in the tree, or does not exist.
func (s *space) nothingReported(ctx context.Context) error {
	object, err := s.reported(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	n, nodeErr := kit.Node(ctx, s.client)
	if err := errors.Join(err, nodeErr); err != nil {
		return err
	}
	if len(object.Status.TopologyZone)+len(object.Spec.NodeResourceProperties) > 0 || calm(n) == nil {
		return errors.New("what plugins have reported is still there")
	}
	return nil
}

// idleCost is cost with an operation of idlePeriod.
func (s *space) idleCost(b *testing.B) {
	tick := time.NewTicker(idlePeriod)
	defer tick.Stop()
	s.cost(b, func() { <-tick.C })
}

// cost repeats an operation and reports the CPU time of the kubelet, as a share of the time and for each operation, and
// its memory: resident at most, and what its heap has in use after a garbage collection in the end.
func (s *space) cost(b *testing.B, operation func()) {
	const processor, resident = "process_cpu_seconds_total", "process_resident_memory_bytes"
	before, began, most := s.mustMetric(processor), time.Now(), 0.0
	for b.Loop() {
		operation()
		most = max(most, s.mustMetric(resident))
	}
	seconds := s.mustMetric(processor) - before
	b.ReportMetric(seconds/time.Since(began).Seconds()*1000, "millicores")
	b.ReportMetric(seconds/float64(b.N)*1000, "CPU-ms/op")
	b.ReportMetric(most/mebibyte, "MiB")
	_, err := s.client.CoreV1().RESTClient().Get().
		AbsPath("/api/v1/nodes/"+cluster.NodeName+"/proxy/debug/pprof/heap").Param("gc", "1").DoRaw(s.ctx)
	s.must(err)
	b.ReportMetric(s.mustMetric("go_memstats_heap_alloc_bytes")/mebibyte, "heap-MiB")
}
