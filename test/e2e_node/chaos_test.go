//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
)

// The size of the chaos test. PLIMSOLL_CHAOS_TIME is the time of the actions, after which the test waits until all pods
// are as requested. PLIMSOLL_CHAOS_SEED repeats a run.
//
// On a slow node, where cluster.TimeFactor is not 1, there is a third of the pods, and actions are slower by slowPace
// times the factor. Other tests mostly wait, but nearly all that happens here is computed, and pods that come faster
// than a node can start them only test how long they wait for each other.
const (
	chaosPods      = 24
	chaosStatic    = 6
	chaosTime      = 2 * time.Minute
	leastChaosTime = 30 * time.Second
	slowShare      = 3
	slowPace       = 2
	// restTimeout is how long that may take: the longest termination that is left, a kubelet that was just killed, its
	// back-offs.
	restTimeout = 4 * time.Minute
)

// TestChaos creates, deletes and evicts 30 pods at random, and kills kubelet and runtime meanwhile. Package chaos
// checks the observations and the result.
func TestChaos(t *testing.T) {
	seed, config := chaosSettings(t)
	again := fmt.Sprintf("PLIMSOLL_CHAOS_SEED=%d PLIMSOLL_CHAOS_TIME=%v", seed, config.Time*chaosPace())
	t.Logf("%s repeats this run", again)
	r := newChaosRun(t)
	actions := chaos.Slowed(chaos.Plan(seed, config), int64(chaosPace()))

	ctx, cancel := context.WithCancel(t.Context())
	watching := r.observe(ctx)
	r.run(ctx, actions)
	t.Logf("all actions were executed after %v; waiting for the pods", r.since())
	r.rest("every pod is as requested", r.settled)
	r.clear(ctx)
	r.rest("nothing is left", r.settled)
	cancel()
	watching.Wait()
	r.verdict(again)
}

// chaosSettings returns the settings of the plan, whose time is that of a node that is not slow.
func chaosSettings(t *testing.T) (seed uint64, config chaos.Config) {
	t.Helper()
	seed, config = rand.Uint64(), chaos.Config{Pods: chaosPods, Static: chaosStatic, Time: chaosTime}
	if chaosPace() > 1 {
		config.Pods, config.Static, config.Time = config.Pods/slowShare, config.Static/slowShare, leastChaosTime
	}
	var err error
	if text := os.Getenv("PLIMSOLL_CHAOS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("PLIMSOLL_CHAOS_SEED is %q, want a number: %v", text, err)
		}
	}
	if text := os.Getenv("PLIMSOLL_CHAOS_TIME"); text != "" {
		whole, err := time.ParseDuration(text)
		if least := leastChaosTime * chaosPace(); err != nil || whole < least {
			t.Fatalf("PLIMSOLL_CHAOS_TIME is %q, want a duration such as 10m, at least %v: %v", text, least, err)
		}
		config.Time = whole / chaosPace()
	}
	return seed, config
}

// chaosPace is how many times slower the actions are than on a node that is not slow.
func chaosPace() time.Duration {
	if factor := cluster.TimeFactor(); factor > 1 {
		return slowPace * factor
	}
	return 1
}

// chaosRun is a run of the chaos test.
type chaosRun struct {
	s *space
	// notes is the directory into which containers and hooks write.
	notes  string
	ledger *chaos.Ledger
	phases *chaos.Phases
	began  time.Time
	// logFrom is the offset in the kubelet's log at which this run begins.
	logFrom int64

	mu     sync.Mutex
	runs   *chaos.Runs
	counts map[string]int
	wrong  []string
	// kubeletFrom is when the kubelet was started last.
	kubeletFrom time.Time
}

func newChaosRun(t *testing.T) *chaosRun {
	t.Helper()
	r := &chaosRun{
		notes: t.TempDir(), ledger: chaos.NewLedger(), phases: chaos.NewPhases(), runs: chaos.NewRuns(),
		counts: map[string]int{},
	}
	r.s = spaceForRestart(t)
	r.s.restartKubelet(func(config *kubeletv1beta1.KubeletConfiguration) {
		// The kubelet evicts for a full emptyDir after at most this time.
		config.VolumeStatsAggPeriod = metav1.Duration{Duration: 5 * time.Second * cluster.TimeFactor()}
		// The default: a change that the kubelet has missed is not soon repaired by the next synchronization.
		config.SyncFrequency = metav1.Duration{Duration: time.Minute}
	})
	r.s.configMap(chaos.SettingsName, map[string]string{"color": "red"})
	if info, err := os.Stat(node.KubeletLog()); err == nil {
		r.logFrom = info.Size()
	}
	r.began = time.Now()
	r.kubeletFrom = r.began
	return r
}

// since is the time since the run began.
func (r *chaosRun) since() time.Duration { return time.Since(r.began).Round(time.Millisecond) }

// problem records and logs a violation. The test goes on.
func (r *chaosRun) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf("at %v: ", r.since()) + fmt.Sprintf(format, args...)
	r.s.t.Logf("violation %s", text)
	r.wrong = append(r.wrong, text)
}

func (r *chaosRun) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

// run executes the actions: one goroutine those on pods, another one those on processes of the node.
func (r *chaosRun) run(ctx context.Context, actions []chaos.Action) {
	kills, asks := []chaos.Action{}, []chaos.Action{}
	for _, action := range actions {
		if action.Kind.Kills() {
			kills = append(kills, action)
		} else {
			asks = append(asks, action)
		}
	}
	var lanes sync.WaitGroup
	lanes.Go(func() { r.inOrder(ctx, asks, r.ask) })
	lanes.Go(func() { r.inOrder(ctx, kills, r.kill) })
	lanes.Wait()
}

// inOrder executes each action at its time, or as soon after it as the previous one has ended, and logs its outcome.
func (r *chaosRun) inOrder(ctx context.Context, actions []chaos.Action, do func(context.Context, chaos.Action) string) {
	for _, action := range actions {
		if !pause(ctx, action.At-time.Since(r.began)) {
			return
		}
		at := r.since()
		outcome := do(ctx, action)
		r.count(outcomeOf(action.Kind, outcome))
		r.s.t.Logf("%9v (planned %v) %v: %s", at, action.At.Round(time.Millisecond), action, outcome)
	}
}

// outcomeOf is what is counted for an action of that kind with that outcome.
func outcomeOf(kind chaos.Kind, outcome string) string { return string(kind) + " " + outcome }

// pause waits for d. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// idle returns what this run did not do or see: without that nothing else could be wrong.
func (r *chaosRun) idle(instances []chaos.Instance) []string {
	var idle []string
	for what, kinds := range map[string][]chaos.Kind{
		"created a pod":             {chaos.Create},
		"wrote a manifest":          {chaos.WriteManifest},
		"removed a pod":             {chaos.Delete, chaos.ForceDelete, chaos.Evict},
		"killed kubelet or runtime": {chaos.KillKubelet, chaos.KillRuntime, chaos.KillBoth},
	} {
		succeeded := func(kind chaos.Kind) bool { return r.counts[outcomeOf(kind, done)] > 0 }
		if !slices.ContainsFunc(kinds, succeeded) {
			idle = append(idle, "no action "+what)
		}
	}
	if r.counts[observed] <= r.counts[unobserved] {
		idle = append(idle,
			fmt.Sprintf("%d observations of the runtime, %d failed", r.counts[observed], r.counts[unobserved]))
	}
	if r.runs.Count() == 0 || len(instances) == 0 {
		idle = append(idle, fmt.Sprintf("%d containers and sandboxes were seen, and %d containers wrote notes",
			r.runs.Count(), len(instances)))
	}
	return idle
}

// verdict fails the test for every violation, and logs the number of actions by outcome.
func (r *chaosRun) verdict(again string) {
	wrong := append(r.wrong, r.phases.Violations()...)
	wrong = append(wrong, r.runs.Violations()...)
	instances, err := r.instances()
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	wrong = append(wrong, chaos.JudgeInstances(instances, r.neverRestarted(), r.ledger.Outages())...)
	wrong = append(wrong, r.panics()...)
	wrong = append(wrong, r.idle(instances)...)
	for _, text := range wrong {
		r.s.t.Error(text)
	}
	var counts []string
	for what, n := range r.counts {
		counts = append(counts, fmt.Sprintf("%s: %d", what, n))
	}
	slices.Sort(counts)
	r.s.t.Logf("%s: %d pods, %d containers and sandboxes, notes of %d containers, "+
		"%d hooks called again after a crash, %d outages; %s",
		again, len(r.ledger.Expected()), r.runs.Count(), len(instances), chaos.Repeated(instances),
		len(r.ledger.Outages()), strings.Join(counts, ", "))
}
