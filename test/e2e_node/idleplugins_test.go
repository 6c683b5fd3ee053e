//go:build e2e

package e2enode

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	// idlePlugins never name a pod; idlePods do nothing.
	idlePlugins, idlePods = 20, 110
	// idleConfig enables eviction plugins, with the default period.
	idleConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
plugins:
  eviction:
    remote: ["*"]
`
	idlePeriod = 5 * time.Second
	idleTurns  = 3
)

// BenchmarkIdlePlugins measures the CPU time of the kubelet of a node with 110 pods, without plugins and with 20 of
// Katalyst that never name a pod. One operation is one period of 5 s:
//
//	go test -tags e2e -run '^$' -bench IdlePlugins -benchtime 12x -count 3 ./test/e2e_node
func BenchmarkIdlePlugins(b *testing.B) {
	s := newSpace(b)
	s.withPressureConfig(idleConfig, nil)
	s.startMany(idlePods)
	for _, n := range []int{0, idlePlugins} {
		b.Run(fmt.Sprintf("plugins=%d", n), func(b *testing.B) {
			s := s.in(b)
			var plugins []*katalystPlugin
			for i := range n {
				plugins = append(plugins, s.startKatalyst(fmt.Sprintf("katalyst-idle-%d", i)))
			}
			for _, p := range plugins {
				p.registered(p.started)
			}
			before, began := s.mustMetric("process_cpu_seconds_total"), time.Now()
			tick := time.NewTicker(idlePeriod)
			defer tick.Stop()
			for b.Loop() {
				<-tick.C
			}
			cores := (s.mustMetric("process_cpu_seconds_total") - before) / time.Since(began).Seconds()
			b.ReportMetric(cores*1000, "millicores")
		})
	}
}

// BenchmarkIdlePluginsInTheAgent measures the CPU time and the memory of the kubelet of a node with 110 pods, without
// plugins and with all of those in the agent, which are called with the default period. None names a pod. Both are
// measured in turn, idleTurns times, since the memory of the kubelet grows in its first minutes:
//
//	go test -tags e2e -run '^$' -bench IdlePluginsInTheAgent -benchtime 12x ./test/e2e_node
func BenchmarkIdlePluginsInTheAgent(b *testing.B) {
	s := newSpace(b)
	none, all := idleConfig, strings.Replace(idleConfig, "remote:", "inTree:", 1)
	s.withPressureConfig(all, nil)
	s.startMany(idlePods)
	for range idleTurns {
		for _, config := range []string{none, all} {
			b.Run(fmt.Sprintf("plugins=%t", config == all), func(b *testing.B) {
				s := s.in(b)
				s.writePressureConfig(config)
				s.inForce(config)
				s.idleCost(b)
			})
		}
	}
}
