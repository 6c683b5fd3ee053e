package eviction

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// The files model_*_test.go hold a model of a node. Its memory and its image disk are functions of time: pods and the
// system use more and more, and a pod that is stopped gives back what it uses when its containers, and later its
// volumes, are gone. The eviction manager runs against the model on virtual time, and checks compare what it does with
// the true state.
//
//	model         random runs
//	model_node    the state of the node and how it changes
//	model_clock   a wall clock that is set while monotonic time goes on
//	model_sources what a manager reads of the node
//	model_kill    requests to stop pods, and node-level reclaim
//	model_draw    a node and its pods from a seed
//	model_script  what happens to the node, from the same seed
//	model_requests  requests of eviction plugins, and what must hold of them
//	model_stop    the stop of the agent during evictions, and what must hold then
//	model_checks  what must hold, by name, and what is missing and on its way by the true state
//	model_judge   checks of each decision
//	model_watch   checks that something is done in time
//	model_stock   stock's manager on the same node
//	model_found   what random runs have found, each as a small scenario

// TestModelOfTheNode runs the manager against random nodes. It reports each check that fails, with the seeds and the
// story of the first run that failed it. PLIMSOLL_NODE_RUNS overrides the number of runs,
// PLIMSOLL_NODE_SEED repeats one.
func TestModelOfTheNode(t *testing.T) {
	if seed := modelNumber(t, "PLIMSOLL_NODE_SEED", -1); seed >= 0 {
		n := runModel(t, seed)
		t.Log(n.story(seed))
		for _, f := range n.checks.faults {
			t.Errorf("%s: %s", f.check, f.text)
		}
		return
	}
	found := modelFindings{seeds: map[string][]int64{}, stories: map[string]string{}}
	found.collect(t, modelNumber(t, "PLIMSOLL_NODE_RUNS", modelRuns))
	found.report(t)
}

// modelNumber is an environment variable as a number.
func modelNumber(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// modelFindings are the seeds that failed a check, and the story of the first.
type modelFindings struct {
	seeds                      map[string][]int64
	stories                    map[string]string
	runs                       int64
	evictions, besides, joined int
	replayed, refused          int
	// requesting are the runs with requests of plugins, served the evictions for them, and hastened those of pods that
	// were being stopped.
	requesting, served, hastened int
}

func (f *modelFindings) collect(t *testing.T, runs int64) {
	t.Helper()
	for f.runs = range runs {
		n := runModel(t, f.runs)
		f.evictions += len(n.orders)
		f.besides += n.checks.compared
		f.joined += n.checks.together
		f.replayed += n.checks.decisions
		f.refused += n.agent.refused
		if n.requests.drawn {
			f.requesting++
		}
		f.served += n.requests.served
		f.hastened += n.requests.hastened
		for _, fault := range n.checks.faults {
			f.seeds[fault.check] = append(f.seeds[fault.check], f.runs)
			if f.stories[fault.check] == "" {
				f.stories[fault.check] = n.story(f.runs)
			}
		}
	}
	f.runs = runs
}

// report also fails when too little has happened for the checks to mean anything.
func (f *modelFindings) report(t *testing.T) {
	t.Helper()
	t.Logf("%d runs, %d evictions, %d decisions with several victims, %d evictions compared with stock's, "+
		"%d decisions replayed, %d kill requests refused; %d runs with requests of plugins, %d evictions for them, "+
		"%d of pods that were being stopped", f.runs, f.evictions, f.joined, f.besides, f.replayed, f.refused,
		f.requesting, f.served, f.hastened)
	for _, check := range modelCheckNames {
		if seeds := f.seeds[check]; len(seeds) > 0 {
			t.Errorf("%s: %d of %d runs, seeds %v\n%s",
				check, len(seeds), f.runs, seeds[:min(len(seeds), 12)], f.stories[check])
		}
	}
	if runs := int(f.runs); f.evictions < runs || f.joined < runs/50 || f.besides < runs/50 || f.replayed < runs ||
		f.refused < runs/100 || f.requesting < runs/7 || f.served < f.requesting || f.hastened == 0 {
		t.Error("the runs exercise too little")
	}
}

// story is all that happened in a run.
func (n *modelNode) story(seed int64) string {
	return fmt.Sprintf("PLIMSOLL_NODE_SEED=%d\n%s\n", seed, strings.Join(n.trace, "\n"))
}

// runModel runs the manager against the node of a seed, and stock's against another like it where the two can be
// compared.
func runModel(t *testing.T, seed int64) (n *modelNode) {
	t.Helper()
	var traits modelTraits
	synctest.Test(t, func(t *testing.T) {
		n, traits = newModelNode(seed)
		n.replayed = seed%modelReplays == 0
		n.drive(t)
	})
	if traits.plain {
		var other *modelNode
		synctest.Test(t, func(t *testing.T) {
			other, _ = newModelNode(seed)
			other.driveStock(t)
		})
		n.compare(other)
	}
	return n
}

// modelReplays: one run of so many replays its decisions, since that takes twice the time of the rest.
const modelReplays = 10

// drive runs the manager until nothing happens any more.
func (n *modelNode) drive(t *testing.T) {
	t.Helper()
	parsed, err := settings.ParseThresholds(n.settings.config)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{
		Collector: collectorOf(t, collect.Sources{Summary: n, DiskInfo: n, Parts: n, Clock: modelClock{node: n}}),
		Memory:    n, Reclaimer: n, Recorder: n, Clock: modelClock{node: n},
		Kill: n.killer, ActivePods: n.active, PodByUID: n.activePod, PodStopped: n.ended,
		PodCleanedUp: n.cleanedUp, TerminationRequested: n.stopping, Features: stockFeatures(),
		NodeRef: &v1.ObjectReference{Kind: "Node", Name: "node"},
		Kubelet: settings.Kubelet{Thresholds: parsed, PressureTransitionPeriod: modelTransition,
			MaxPodGracePeriodSeconds: modelMaxGrace, LocalStorageCapacityIsolation: true},
	}
	r, a := newReplay(&c, false), newAlone(&c)
	c.Sinks = append(c.Sinks, modelResults{n})
	if n.replayed {
		c.Sinks = append(c.Sinks, r)
	}
	if n.requests.drawn {
		c.Requests, c.Sinks = n.Requests, append(c.Sinks, a)
	}
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.requests.changed = m.Wake
	ctx, cancel := context.WithCancel(t.Context())
	n.agent.cancel = cancel
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	n.play()
	cancel()
	<-done
	n.checkReports()
	a.adds(n)
	if n.checks.decisions = r.decisions; r.fault != "" {
		n.fail(sameWritten, "%s", r.fault)
	}
}

const (
	modelTransition = 5 * time.Minute
	modelMaxGrace   = 60
	// modelTick is how often the checks of model_watch are made.
	modelTick = 250 * time.Millisecond
	// modelQuiet is for how long nothing must have happened until a run ends, modelLongest how long it is at most.
	modelQuiet   = 12 * time.Second
	modelLongest = 4 * time.Minute
)

// play lets time pass.
func (n *modelNode) play() {
	quiet := time.Duration(0)
	for time.Since(n.began) < modelLongest && quiet < modelQuiet {
		<-time.After(modelTick)
		synctest.Wait()
		if n.stopsNow() {
			return
		}
		n.watch()
		if quiet += modelTick; n.busy() {
			quiet = 0
		}
	}
}

// busy is true while something is still to come.
func (n *modelNode) busy() bool {
	defer n.locked()()
	short := n.below() > 0 && slices.ContainsFunc(n.pods, func(p *modelPod) bool { return p.here() && !p.critical })
	if n.images != nil {
		short = short || n.images.otherRate > 0 || n.imagesFree() < n.settings.images
	}
	waiting := slices.ContainsFunc(n.script, func(e modelEvent) bool { return e.at.Before(n.began.Add(modelLongest)) })
	changing := func(p *modelPod) bool {
		return p.rate() > 0 || p.diskRate > 0 || (p.dying && !p.clean && p.takes < time.Hour)
	}
	return n.systemRate != 0 || n.requestsWait() || short || waiting || slices.ContainsFunc(n.pods, changing)
}
