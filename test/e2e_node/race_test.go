//go:build e2e

package e2enode

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/race"
)

// raceRest is how long the hog of a race rests.
const raceRest = 3 * time.Second

// TestRaceWithTheOOMKiller has a hog that ignores SIGTERM grow by 400 MiB and by 1,000 MiB per second, with 100 MiB of
// headroom: it is evicted, and neither is the OOM killer called for the limit of all pods, nor is another pod
// restarted. With stock's kubelet the OOM killer is first already at 100 MiB per second. "make race" runs the whole
// matrix.
func TestRaceWithTheOOMKiller(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	own := node.Kubelet()
	runner := race.Runner{
		Cluster: node, OurKubelet: own, StockKubelet: node.Layout().Program(build.StockKubelet().Name), Rest: raceRest,
		Log: testLog{t},
	}
	t.Cleanup(func() {
		node.SetKubelet(own)
		node.SetKubeletEnv(nil)
		if err := runner.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	cell := race.Cell{Kubelet: race.Ours, Kind: race.BestEffort, Cache: race.Cold, Headroom: 100, Rate: 400}
	s.mustWin(&runner, cell)
	cell.Cache, cell.Rate = race.Warm, 1000
	s.mustWin(&runner, cell)
	cell = race.Cell{Kubelet: race.Stock, Kind: race.BestEffort, Cache: race.Cold, Headroom: 100, Rate: 100}
	if run := s.race(&runner, cell); run.Won {
		t.Errorf("stock has won: %s", run.Line())
	}
}

// race carries out one run.
func (s *space) race(runner *race.Runner, c race.Cell) *race.Run {
	s.t.Helper()
	run, err := runner.Race(s.ctx, c)
	s.must(err)
	s.t.Log(run.Line())
	return run
}

// mustWin checks a run of ours, and what people see of it.
func (s *space) mustWin(runner *race.Runner, c race.Cell) {
	s.t.Helper()
	run := s.race(runner, c)
	if !run.Won || !run.Crossed || run.Fenced < 0 {
		s.t.Errorf("not won, or without a fence: %s", run.Line())
	}
	// An OOM of processes that are being killed is notified, but not logged: then the reason is the runtime's.
	if len(run.OOMs) > 0 && len(run.Misreported) > 0 {
		s.t.Errorf("reasons of containers: %v", run.Misreported)
	}
	for _, hog := range run.Hogs {
		if hog.Phase != "Failed" || hog.Reason != "Evicted" || !strings.Contains(hog.Message, "The pod was fenced at ") {
			s.t.Errorf("status of the hog: %+v", hog)
		}
	}
}

// testLog writes to the log of a test.
type testLog struct{ t testing.TB }

func (l testLog) Write(data []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(data), "\n"))
	return len(data), nil
}
