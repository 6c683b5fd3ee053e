//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/pressure"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// forecastTime is the time before the threshold is met in which the published time must be right.
const forecastTime = 30 * time.Second

// pressureLeaks runs leaks, one after the other: one or, in soak, five of each rate. Growth counts when it has lasted
// for 20 s; in soak a leak takes more than a minute to the threshold, so that it is published half a minute before.
func (s *space) pressureLeaks(t *testing.T) {
	t.Helper()
	if !soak() {
		s.pressureLeak(5, 240)
		return
	}
	for round := range 5 {
		for _, leak := range []struct{ rate, headroom int64 }{{5, 500}, {20, 1400}} {
			t.Run(fmt.Sprintf("%d MiB per second, round %d", leak.rate, round+1), func(t *testing.T) {
				s.in(t).pressureLeak(leak.rate, leak.headroom)
			})
		}
	}
}

// pressureLeak runs a pod that leaks so many MiB per second with that headroom, in MiB. The label of the Node is near
// before the Node has the condition, and the time to the threshold was right to one step.
func (s *space) pressureLeak(rate, headroom int64) {
	s.t.Helper()
	s.eventually(slowTimeout, func(ctx context.Context) error {
		n, err := kit.Node(ctx, s.client)
		if err != nil {
			return err
		}
		return calm(n)
	})
	end := s.observed()
	leak := kit.HogPod("leak", fmt.Sprintf("--start=%d", max(1, s.growthRoom(headroom))),
		fmt.Sprintf("--rate=%d", rate), fmt.Sprintf("--limit=%d", 2*node.PodMemory()/mebibyte))
	leak.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
	leak = s.ready(kit.Bound(leak))
	began, crossed := time.Now(), time.Time{}
	limit := time.After(time.Duration(headroom/rate)*time.Second + reporterTimeout)
	for crossed.IsZero() {
		used, err := node.PodMemoryUsed()
		s.must(err)
		// The agent evicts the pod within milliseconds, so that the crossing itself may not be seen: it is computed from
		// the last two seconds.
		if left := node.PodMemory()*3/4 - used; left <= 2*rate*mebibyte {
			crossed = time.Now().Add(time.Duration(left) * time.Second / time.Duration(rate*mebibyte))
		}
		select {
		case <-time.After(objectInterval):
		case <-limit:
			s.t.Fatal("the leak did not meet the threshold")
		}
	}
	// The condition is published before the pod has ended. It may be over by then.
	evicted := s.wait(leak, podTimeout, endedFor("Evicted"))
	_, nodes, err := end()
	s.must(err)
	s.t.Logf("leak of %d MiB per second met the threshold after %v", rate, crossed.Sub(began).Round(100*time.Millisecond))
	s.checkForecast(nodes, crossed)
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, evicted.Name, metav1.DeleteOptions{}))
	s.must(kit.WaitGone(s.ctx, s.client, evicted, podTimeout))
	s.noPressure()
}

// checkForecast checks what was published in the versions of the Node before the threshold was met.
func (s *space) checkForecast(nodes []seenObject, crossed time.Time) {
	s.t.Helper()
	var near, condition time.Time
	for i, seen := range nodes {
		n := nodeOf(seen)
		level := n.Labels[pressure.Domain+"/memory"]
		if near.IsZero() && level == "near" {
			near = seen.at
		}
		if condition.IsZero() && kit.NodeCondition(n, v1.NodeMemoryPressure).Status == v1.ConditionTrue {
			condition = seen.at
		}
		if i > 0 && sameForecast(nodeOf(nodes[i-1]), n) {
			continue
		}
		s.t.Logf("%v before the threshold: %s, time %q", crossed.Sub(seen.at).Round(10*time.Millisecond), level,
			publishedTimes(n))
	}
	if near.IsZero() || condition.IsZero() || !near.Before(condition) {
		s.t.Errorf("label near at %v, condition at %v", near, condition)
		return
	}
	s.t.Logf("near %v before the condition", condition.Sub(near).Round(10*time.Millisecond))
	for _, problem := range wrongTimes(nodes, crossed) {
		if soak() {
			s.t.Error(problem)
		} else {
			s.t.Log(problem)
		}
	}
}

func sameForecast(a, b *v1.Node) bool {
	return a.Labels[pressure.Domain+"/memory"] == b.Labels[pressure.Domain+"/memory"] &&
		slices.Equal(publishedTimes(a), publishedTimes(b))
}

// publishedTimes returns the times to the thresholds of memory, as signal=time.
func publishedTimes(n *v1.Node) (times []string) {
	var entries []struct{ Signal, Level, TimeToThreshold string }
	if err := json.Unmarshal([]byte(n.Annotations[pressure.SignalsAnnotation]), &entries); err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Signal, "emory.available") && e.TimeToThreshold != "" {
			times = append(times, e.Signal+"="+e.TimeToThreshold)
		}
	}
	return times
}

// wrongTimes returns when the published time was wrong by more than one step, from forecastTime before the threshold
// was met: it must be 30s, or 1m.
func wrongTimes(nodes []seenObject, crossed time.Time) (problems []string) {
	from := crossed.Add(-forecastTime)
	for i, seen := range nodes {
		last := i+1 == len(nodes) || nodes[i+1].at.After(from)
		if seen.at.After(crossed) || !last {
			continue
		}
		n := nodeOf(seen)
		times := publishedTimes(n)
		if n.Labels[pressure.Domain+"/memory"] != "met" && !slices.Contains(times, "allocatableMemory.available=30s") &&
			!slices.Contains(times, "allocatableMemory.available=1m") {
			problems = append(problems, fmt.Sprintf("%v before the threshold the published time is %q",
				crossed.Sub(seen.at).Round(100*time.Millisecond), times))
		}
	}
	return problems
}
