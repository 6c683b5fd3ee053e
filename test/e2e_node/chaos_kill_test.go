//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
)

// startupGrace is how long after its start a kubelet may exit because the runtime does not run.
const startupGrace = 30 * time.Second

// kill kills kubelet, runtime or both, and starts them again: the runtime first, since no kubelet starts without one.
func (r *chaosRun) kill(ctx context.Context, action chaos.Action) string {
	r.supervise()
	processes.Lock()
	defer processes.Unlock()
	outage := chaos.Outage{
		Kubelet: action.Kind != chaos.KillRuntime,
		Runtime: action.Kind != chaos.KillKubelet,
		From:    time.Now(),
	}
	var errs []error
	if outage.Kubelet {
		errs = append(errs, node.KillKubelet(ctx))
	}
	if outage.Runtime {
		errs = append(errs, node.KillRuntime(ctx))
	}
	pause(ctx, action.Down)
	if outage.Runtime {
		errs = append(errs, node.ReviveRuntime(ctx))
	}
	outage.To = time.Now()
	if outage.Kubelet {
		errs = append(errs, r.reviveKubelet())
	}
	r.ledger.Outage(outage)
	if err := errors.Join(errs...); err != nil {
		r.problem("%v: %v", action, err)
		return "failed"
	}
	return done
}

func (r *chaosRun) reviveKubelet() error {
	r.kubeletFrom = time.Now()
	return node.ReviveKubelet()
}

// supervise starts a kubelet again that exited, as a service manager does. A kubelet must not exit unless the runtime
// did not run when it was started. It may only be called by the goroutine that kills.
func (r *chaosRun) supervise() {
	processes.Lock()
	defer processes.Unlock()
	alive, err := node.KubeletAlive()
	if err != nil {
		r.problem("find the kubelet: %v", err)
	}
	if alive || err != nil {
		return
	}
	// It exited soon after it wrote the last line of its log.
	exited := time.Now()
	if info, err := os.Stat(node.KubeletLog()); err == nil {
		exited = info.ModTime()
	}
	if chaos.MayExit(r.ledger.Outages(), r.kubeletFrom, exited, startupGrace*cluster.TimeFactor()) {
		r.count("kubelet exited without a runtime")
	} else {
		r.problem("the kubelet that was started at %s exited at %s", r.kubeletFrom.Format(time.TimeOnly),
			exited.Format(time.TimeOnly))
	}
	if err := r.reviveKubelet(); err != nil {
		r.problem("start the kubelet again: %v", err)
	}
}

// panics returns the lines of the kubelet's log of this run that report a panic.
func (r *chaosRun) panics() []string {
	file, err := os.Open(node.KubeletLog())
	if err != nil {
		return []string{err.Error()}
	}
	defer file.Close()
	if _, err := file.Seek(r.logFrom, io.SeekStart); err != nil {
		return []string{err.Error()}
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		for _, sign := range []string{"panic: ", "fatal error: ", "Observed a panic"} {
			if strings.HasPrefix(line, sign) || strings.Contains(line, `"`+sign) {
				found = append(found, fmt.Sprintf("in the log of the kubelet: %.300s", line))
			}
		}
	}
	return found
}
