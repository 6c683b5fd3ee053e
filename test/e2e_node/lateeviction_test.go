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
	// belowThreshold is how much memory is left above the threshold before the last pod comes, which uses twice as
	// much.
	belowThreshold = 40 // MiB
	// slowKills has the kubelet reckon with kills that take a minute, so that memory looks as if it was used up
	// before a kill has taken effect: then evictions do not wait for each other. The monitoring period is stock's.
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

// TestEvictionVictimThatStopsLateIsTheOnlyOne halts the runtime's shim of a pod that is evicted, and that alone
// uses more memory than is missing. No other pod is evicted, neither when the kubelet no longer waits for the kill,
// nor when the kubelet is restarted meanwhile.
func TestEvictionVictimThatStopsLateIsTheOnlyOne(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	s.withPressureConfig(slowKills, shortTransition)
	before := s.startNeighbours()

	first, goOn := s.evictWithoutShim("first")
	s.killTimesOut(first)
	s.stays(settled, func() error { return errors.Join(s.onlyEvicted("first"), s.sameAs(before)) })
	goOn()
	s.wait(first, podTimeout, stopped)
	s.noPressure()
	s.must(errors.Join(s.onlyEvicted("first"), s.sameAs(before)))
	s.remove(first)
	s.remove(s.get("last"))

	answer := s.stopPodWithSilentHook()
	_, goOn = s.evictWithoutShim("second")
	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, shortTransition))
	answer()
	goOn()
	s.noPressure()
	s.must(errors.Join(s.onlyEvicted("first", "second"), s.sameAs(before)))
}

func (s *space) onlyEvicted(names ...string) error {
	return s.onlyChosen("Evicted", logEvicting, names...)
}

// evictWithoutShim has a pod evicted whose shim is halted until goOn is called.
func (s *space) evictWithoutShim(name string) (hog *v1.Pod, goOn func()) {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	hog = s.ready(kit.Bound(holding(name, (node.PodMemory()*3/4-used)/mebibyte-belowThreshold)))
	s.tellLog(hog)
	goOn = s.halt(s.shimOf(s.mainPID(hog)))
	s.create(kit.Bound(within(holding("last", 2*belowThreshold))))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.hasEvent(ctx, name, "Evicted", "memory") })
	return hog, goOn
}

// stopPodWithSilentHook deletes a pod whose preStop hook is an HTTP request that gets no answer before answer is
// called. The kubelet takes some seconds to end meanwhile: such a request does not end with it.
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

// startNeighbours returns their prints when all are Ready.
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

// within has the pod request more memory than it will use.
func within(pod *v1.Pod) *v1.Pod {
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
