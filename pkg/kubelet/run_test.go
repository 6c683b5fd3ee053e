package kubelet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary records what components do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) write(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) runner(name string) component {
	return runs(name, func(ctx context.Context) {
		d.write("start " + name)
		<-ctx.Done()
		d.write("stop " + name)
	})
}

func TestRunStartsInOrderAndStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		ended := make(chan struct{})
		// In the bubble time passes only once everybody else is idle.
		gate := starts("gate", func(context.Context) { <-time.After(time.Second); d.write("gate") })
		go func() { err = runAll(ctx, []component{d.runner("a"), gate, d.runner("b")}); close(ended) }()
		<-time.After(time.Minute)
		cancel()
		<-ended
		if want := []string{"start a", "gate", "start b", "stop b", "stop a"}; err != nil || !slices.Equal(d.lines, want) {
			t.Errorf("err %v, %v; want %v", err, d.lines, want)
		}
	})
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := component{name: "broken", run: func(context.Context) error { return errors.New("out of luck") }}
		err := runAll(t.Context(), []component{d.runner("a"), broken, d.runner("b")})
		if err == nil || err.Error() != "broken: out of luck" {
			t.Errorf("err %v", err)
		}
		if !slices.Contains(d.lines, "stop a") {
			t.Errorf("a goes on: %v", d.lines)
		}
	})
}

func TestRunDoesNotStartWhatComesAfterAFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		broken := component{name: "broken", start: func(context.Context) error { return errors.New("no") }}
		err := runAll(t.Context(), []component{d.runner("a"), broken, d.runner("b")})
		if err == nil || !strings.Contains(err.Error(), "starting broken: no") || slices.Contains(d.lines, "start b") {
			t.Errorf("err %v, %v", err, d.lines)
		}
	})
}

func TestRunGoesOnWithoutAComponentThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stuck := runs("stuck", func(context.Context) { <-release })
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		go func() { synctest.Wait(); cancel() }()
		if err := runAll(ctx, []component{stuck}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begin); waited != stopTimeout {
			t.Errorf("waited %v", waited)
		}
		close(release)
	})
}
