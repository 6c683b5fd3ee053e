//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// watchers are the clients that watch the decision log.
	watchers = 10
	// evictedShare is what the pod that is evicted again and again uses above the threshold, in MiB.
	evictedShare = 100
)

// BenchmarkWatchersOfTheDecisionLog measures the CPU time and the memory of the kubelet of a node with 110 pods,
// without clients of its decision log and with ten that watch it. One operation is a period of 5 s on a quiet node, or
// else the eviction of a pod:
//
//	go test -tags e2e -run '^$' -bench WatchersOfTheDecisionLog -benchtime 12x ./test/e2e_node
func BenchmarkWatchersOfTheDecisionLog(b *testing.B) {
	s := newSpace(b)
	s.restartKubelet(shortTransition)
	s.startMany(idlePods - 1)
	evicted := 0
	for range idleTurns {
		for _, n := range []int{0, watchers} {
			b.Run(fmt.Sprintf("quiet/clients=%d", n), func(b *testing.B) {
				s := s.in(b)
				defer s.watchDecisions(n)()
				s.idleCost(b)
			})
			b.Run(fmt.Sprintf("evicting/clients=%d", n), func(b *testing.B) {
				s := s.in(b)
				defer s.watchDecisions(n)()
				s.cost(b, func() {
					evicted++
					s.evictOne(fmt.Sprintf("evicted-%d", evicted))
				})
			})
		}
	}
}

// watchDecisions has clients read the decisions of the node as they are made, until stop is called.
func (s *space) watchDecisions(clients int) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	for range clients {
		stream, err := s.client.CoreV1().RESTClient().Get().
			AbsPath("/api/v1/nodes/" + cluster.NodeName + "/proxy/debug/pressure/watch").Stream(ctx)
		if err != nil {
			cancel()
			s.t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, stream) }() // ends with an error when the test does
	}
	return cancel
}

// evictOne starts a pod that exceeds the threshold of memory, and returns when it was evicted and is gone.
func (s *space) evictOne(name string) {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	// The threshold is a quarter of the pods' memory.
	start := (node.PodMemory()*3/4-used)/mebibyte + evictedShare
	hog := kit.HogPod(name, fmt.Sprintf("--start=%d", start), fmt.Sprintf("--limit=%d", start))
	// A pod without requests is not admitted while the node is under pressure.
	hog.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
	s.remove(s.wait(s.create(hog), slowTimeout, endedFor("Evicted")))
}
