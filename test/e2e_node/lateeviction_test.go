//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// neighbours use more than they request, so that each is a candidate for eviction.
	neighbours   = 4
	neighbourUse = 20 // MiB
	// belowThreshold is how much memory is available above the threshold before the last pod is created, which uses twice
	// as much.
	belowThreshold = 40 // MiB
	// slowKills makes the kubelet expect that a kill takes a minute, so that memory seems to be used up before a kill has
	// taken effect: then evictions do not wait for each other. The monitoring period is stock's.
	slowKills = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
monitoringPeriod: 10s
eviction:
  killTime: 60s
  patience: 60s
`
)

// shortTransition ends conditions of the node soon after their thresholds are no longer met.
var shortTransition = transitionPeriod(time.Second)

// TestEvictionVictimThatStopsLateIsTheOnlyOne halts the shim of a pod that is evicted. Its memory alone is more than is
// needed. No other pod is evicted, neither when the kill has timed out, nor when the kubelet is restarted meanwhile.
func TestEvictionVictimThatStopsLateIsTheOnlyOne(t *testing.T) {
	s := spaceForRestart(t)
	s.withPressureConfig(slowKills, shortTransition)
	before := s.startNeighbours()

	first, resume := s.evictWithoutShim("first")
	s.killTimesOut(first)
	s.stays(settled, func() error { return errors.Join(s.onlyEvicted("first"), s.sameAs(before)) })
	resume()
	s.wait(first, podTimeout, stopped)
	s.noPressure()
	s.must(errors.Join(s.onlyEvicted("first"), s.sameAs(before)))
	s.remove(first)
	s.remove(s.get("last"))

	answer := s.stopPodWithSilentHook()
	_, resume = s.evictWithoutShim("second")
	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, shortTransition))
	answer()
	resume()
	s.noPressure()
	s.must(errors.Join(s.onlyEvicted("first", "second"), s.sameAs(before)))
}

func (s *space) onlyEvicted(names ...string) error {
	return s.onlyChosen("Evicted", logEvicting, names...)
}

// evictWithoutShim creates a pod that is evicted, and whose shim is halted until resume is called.
func (s *space) evictWithoutShim(name string) (hog *v1.Pod, resume func()) {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	hog = s.ready(kit.Bound(holding(name, (node.PodMemory()*3/4-used)/mebibyte-belowThreshold)))
	s.showLogIfFailed(hog)
	resume = s.halt(s.shimOf(s.mainPID(hog)))
	s.create(kit.Bound(requestingMore(filling("last", 2*belowThreshold))))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.hasEvent(ctx, name, "Evicted", "memory") })
	return hog, resume
}

// filling returns a pod whose memory grows slowly to that many MiB. A kubelet with slowKills extrapolates growth over a
// minute, so that a pod that fills its memory at once may be evicted for its own growth.
func filling(name string, mebibytes int64) *v1.Pod {
	pod := kit.HogPod(name, "--start=1", "--rate=8", fmt.Sprintf("--limit=%d", mebibytes))
	pod.Spec.Containers[0].Resources.Requests = kit.Memory("32Mi")
	return pod
}

// stopPodWithSilentHook deletes a pod whose preStop hook is an HTTP request that gets no response before answer is
// called. A kubelet that stops meanwhile takes some seconds, since it does not cancel such a request.
func (s *space) stopPodWithSilentHook() (answer func()) {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	asked := make(chan struct{}, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	})}
	go func() { _ = server.Serve(listener) }()
	s.t.Cleanup(func() { _ = server.Close() })

	pod := kit.IdlePod("hooked")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
	pod.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Host: "127.0.0.1", Port: intstr.FromInt(listener.Addr().(*net.TCPAddr).Port),
	}}}
	s.delete(s.ready(pod))
	select {
	case <-asked:
	case <-time.After(podTimeout):
		s.t.Fatal("the preStop hook sent no request")
	}
	return func() { s.must(server.Close()) }
}

// startNeighbours creates the neighbours and returns their fingerprint when all are Ready.
func (s *space) startNeighbours() map[string]string {
	s.t.Helper()
	var pods []*v1.Pod
	for i := range neighbours {
		pod := holding(fmt.Sprintf("neighbour-%d", i), neighbourUse)
		pod.Spec.Containers[0].Resources.Requests = kit.Mebibytes(1)
		pods = append(pods, s.create(pod))
	}
	for _, pod := range pods {
		s.wait(pod, podTimeout, kit.Ready)
	}
	return s.fingerprint()
}

// requestingMore makes the pod request more memory than it uses.
func requestingMore(pod *v1.Pod) *v1.Pod {
	pod.Spec.Containers[0].Resources.Requests = kit.Memory("128Mi")
	return pod
}

// stopped is a check for a pod whose container called main has ended.
func stopped(pod *v1.Pod) error {
	status, err := container(pod, "main")
	if err == nil && status.State.Terminated == nil {
		err = errors.New("still running: " + kit.Describe(pod))
	}
	return err
}
