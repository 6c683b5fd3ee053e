package plugin

import (
	"context"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// A pod that is being evicted, and that a plugin in dry run requests with less grace, is counted once while it is
// requested.
func TestDryRunOfAPodInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.DryRun = Selector{"*"}
		p := &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
			return &arbiter.Demand{Pods: []arbiter.PodDemand{{UID: "a", Force: true, GraceSeconds: new(int64(1))}}}, nil
		}}
		r := newRig(t, o, map[string]Plugin{"dry-hastens": p}, pod("a"))
		r.set(func() { r.inFlight = []eviction.InFlightPod{{UID: "a"}} })
		before := counted(t, "dry-hastens")
		r.start()
		defer r.stop()
		pass(10 * time.Minute)
		r.expect("counted", text(counted(t, "dry-hastens")-before), "1")
	})
}

// Pods in dry run are counted once each, also when there are more of them than may be in flight.
func TestDryRunOfManyPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.DryRun, o.Rules.MaxInFlight = Selector{"*"}, 2
		r := newRig(t, o, map[string]Plugin{"dry-many": forcing("a", "b", "c", "d", "e")},
			pod("a"), pod("b"), pod("c"), pod("d"), pod("e"))
		before := counted(t, "dry-many")
		r.start()
		defer r.stop()
		pass(10 * time.Minute)
		r.expect("counted", text(counted(t, "dry-many")-before), "5")
	})
}
