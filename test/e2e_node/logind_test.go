//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster/systembus"
)

// startLogind starts a private bus with a login manager, and makes it the system bus of the programs that this test
// starts. In a virtual machine the login manager takes the place of systemd's until the test ends, since the kubelet
// needs systemd on the same bus. A delay lock may last for maxDelay.
func startLogind(t *testing.T, maxDelay time.Duration) *systembus.Logind {
	t.Helper()
	bus, err := startBus(t)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bus.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if address := bus.Address(); address != "" {
		t.Setenv(systembus.Variable, address)
	}
	logind, err := bus.ServeLogind(maxDelay)
	if err != nil {
		t.Fatal(err)
	}
	return logind
}

func startBus(t *testing.T) (*systembus.Bus, error) {
	t.Helper()
	if clusterConfig.Guest == nil {
		return systembus.Start(t.Context(), t.TempDir(), os.Stderr)
	}
	const logind = "systemd-logind.service"
	t.Cleanup(func() {
		if out, err := exec.Command("systemctl", "unmask", "--runtime", logind).CombinedOutput(); err != nil {
			t.Errorf("allow systemd's login manager to be started: %v: %s", err, out)
		}
		if out, err := exec.Command("systemctl", "start", logind).CombinedOutput(); err != nil {
			t.Errorf("start systemd's login manager: %v: %s", err, out)
		}
	})
	if out, err := exec.Command("systemctl", "mask", "--runtime", "--now", logind).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("stop systemd's login manager: %w: %s", err, out)
	}
	return systembus.System(os.Stderr)
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
