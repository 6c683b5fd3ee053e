//go:build vm

package vm

import (
	"context"
	"fmt"
	"testing"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// A kubelet that hangs is killed and started again by systemd, since it no longer feeds the watchdog, and no container
// is restarted.
func TestWatchdogRestartsAHangingKubelet(t *testing.T) {
	pods := create(t, "watchdog", kit.IdlePod("idle"))
	idle := waitPod(t, pods[0], kit.Ready)
	// A process that is stopped does not react to the watchdog's SIGABRT: SIGKILL follows when this time is over.
	const short = "/etc/systemd/system/kubelet.service.d/60-short.conf"
	inMachine(t, `printf '[Service]\nWatchdogSec=60\nTimeoutAbortSec=2\nRestartSec=1\n' >`+short+
		" && systemctl daemon-reload && systemctl restart kubelet")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := node.Run(ctx, "rm "+short+" && systemctl daemon-reload && systemctl restart kubelet"); err != nil {
			t.Error(err)
		}
	})
	const pid = "systemctl show -p MainPID --value kubelet"
	hanging := inMachine(t, pid)
	inMachine(t, "kill -STOP "+hanging)
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		now, err := node.Run(ctx, pid)
		if err == nil && (now == hanging || now == "0") {
			err = fmt.Errorf("the kubelet is process %s, as before, or has not been started again", now)
		}
		return err
	}))
	since := now(t)
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error { return node.Ready(ctx, since) }))
	if got := inMachine(t, "systemctl show -p NRestarts --value kubelet"); got != "1" {
		t.Errorf("systemd has restarted the kubelet %s times", got)
	}
	if got := inMachine(t, "journalctl -u kubelet -o cat | grep -c 'Watchdog timeout'"); got == "0" {
		t.Error("the kubelet did not end because of the watchdog")
	}
	unharmed(t, idle)
}
