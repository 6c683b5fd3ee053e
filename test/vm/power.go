package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// monitorPrompt ends each answer of QEMU's monitor.
const monitorPrompt = "(qemu) "

// monitorTimeout bounds one command of the monitor.
const monitorTimeout = 30 * time.Second

func monitorSocket(layout cluster.Layout) string { return filepath.Join(layout.State, "monitor") }

// BootID returns an identifier that each boot of the machine has for itself.
func (n *Node) BootID(ctx context.Context) (string, error) {
	return n.Run(ctx, "cat /proc/sys/kernel/random/boot_id")
}

// Now is the time by the clock of the machine. Under emulation it falls behind when other programs take the processors.
func (n *Node) Now(ctx context.Context) (time.Time, error) {
	text, err := n.Run(ctx, "date +%s")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the machine's time: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

// PoweredOff is nil once the machine has switched itself off.
func (n *Node) PoweredOff(ctx context.Context) error {
	status, err := n.monitor(ctx, "info status")
	if err == nil && !strings.Contains(status, "shutdown") {
		err = fmt.Errorf("the machine is not off: %s", status)
	}
	return err
}

// PowerOn boots a machine that has switched itself off, with its disks as they are.
func (n *Node) PowerOn(ctx context.Context) error {
	n.closeSSH()
	if _, err := n.monitor(ctx, "system_reset"); err != nil {
		return err
	}
	_, err := n.monitor(ctx, "cont")
	return err
}

// WaitForBoot waits until the machine has booted, after the boot with the identifier before, and its node is Ready.
func (n *Node) WaitForBoot(ctx context.Context, before string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, bootTimeout*n.factor, true,
		func(ctx context.Context) (bool, error) {
			last = n.booted(ctx, before)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("the machine has not booted: %w", errors.Join(last, err))
	}
	since, err := n.Now(ctx)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollInterval, bootTimeout*n.factor, true,
		func(ctx context.Context) (bool, error) {
			last = n.Ready(ctx, since)
			return last == nil, nil
		})
	if err != nil {
		return fmt.Errorf("the node is not Ready after the boot: %w", errors.Join(last, err))
	}
	return nil
}

// booted is nil if the machine can be reached and has another identifier. The connection to the machine that has ended
// may seem to be open for minutes.
func (n *Node) booted(ctx context.Context, before string) error {
	n.closeSSH()
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	now, err := n.BootID(ctx)
	if err == nil && now == before {
		err = errors.New("it has not shut down")
	}
	return err
}

// monitor sends a command to QEMU's monitor and returns the answer.
func (n *Node) monitor(ctx context.Context, command string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", monitorSocket(n.config.Layout))
	if err != nil {
		return "", fmt.Errorf("monitor of the machine: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(monitorTimeout)); err != nil {
		return "", fmt.Errorf("monitor of the machine: %w", err)
	}
	if _, err := readAnswer(conn); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(conn, "%s\n", command); err != nil {
		return "", fmt.Errorf("monitor of the machine: %w", err)
	}
	return readAnswer(conn)
}

// readAnswer reads until the next prompt.
func readAnswer(conn net.Conn) (string, error) {
	var text strings.Builder
	buffer := make([]byte, 1024)
	for !strings.HasSuffix(text.String(), monitorPrompt) {
		count, err := conn.Read(buffer)
		if err != nil {
			return "", fmt.Errorf("monitor of the machine: %w", err)
		}
		text.Write(buffer[:count])
	}
	return strings.TrimSpace(strings.TrimSuffix(text.String(), monitorPrompt)), nil
}
