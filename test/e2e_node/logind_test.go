//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/systembus"
)

// startLogind starts a private bus with a login manager, and makes it the system bus of the programs that this test
// starts. A delay lock may last for maxDelay.
func startLogind(t *testing.T, maxDelay time.Duration) *systembus.Logind {
	t.Helper()
	bus, err := systembus.Start(t.Context(), t.TempDir(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Setenv(systembus.Variable, bus.Address())
	logind, err := bus.ServeLogind(maxDelay)
	if err != nil {
		t.Fatal(err)
	}
	return logind
}

// locksRequested waits until that many locks were requested.
func (s *space) locksRequested(l *systembus.Logind, count int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := len(l.Requests()); got != count {
			return fmt.Errorf("%d locks were requested, want %d", got, count)
		}
		return nil
	})
}

// lock waits until that many locks were requested and the newest is held, or is not.
func (s *space) lock(l *systembus.Logind, count int, held bool) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		gotCount := len(l.Requests())
		got, err := l.Held()
		if err == nil && (gotCount != count || got != held) {
			err = fmt.Errorf("%d locks were requested and the newest is held %v, want %d and %v", gotCount, got, count, held)
		}
		return err
	})
}
