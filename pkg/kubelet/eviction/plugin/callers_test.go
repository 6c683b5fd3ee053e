package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// A plugin in the agent that ignores the end of its call is not called a second time meanwhile, even if it is disabled
// and enabled again.
func TestOneCallAtATimeWhenOptionsChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := forcing("a")
		answer, running, most := p.demand, 0, 0
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			p.mu.Lock()
			running++
			most = max(most, running)
			p.mu.Unlock()
			<-release
			p.mu.Lock()
			running--
			p.mu.Unlock()
			return answer(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": p}, pod("a"))
		r.start()
		defer r.stop()
		o := options()
		for _, dryRun := range []Selector{{"p"}, nil, {"p"}, nil} {
			o.DryRun = dryRun
			r.SetOptions(o)
			pass(10 * time.Second)
		}
		r.expect("calls at a time", text(most), "1")
		r.expect("requests while it hangs", r.requested(), "")
		close(release)
		pass(5 * time.Second)
		r.expect("requests after that", r.requested(), "a")
	})
}

// The page shows the beginning of an error, without a part of a character.
func TestErrorsOfPluginsAreShortened(t *testing.T) {
	d := &Driver{config: Config{Clock: clock.RealClock{}}}
	c := &caller{}
	d.noteCall(c, 0, errors.New("x"+strings.Repeat("é", maxError)))
	if text := c.health.LastError; len(text) != maxError-1 || !utf8.ValidString(text) {
		t.Errorf("got %d bytes, valid UTF-8: %t", len(text), utf8.ValidString(text))
	}
}
