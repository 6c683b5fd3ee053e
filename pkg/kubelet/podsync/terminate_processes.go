package podsync

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// verifyProcesses checks that no process of a container exists, whatever the runtime reports: a runtime may report
// containers as exited whose processes are in uninterruptible sleep, or whose shim has crashed. Remaining processes are
// killed; if that fails, the step fails.
type verifyProcesses struct{ *escalator }

func (verifyProcesses) Name() string { return "verify that processes are gone" }

func (s verifyProcesses) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	t := target{pod: p.Pod, status: p.stopped}
	remaining, known := s.remaining(t)
	if !known || len(remaining) == 0 {
		return nextStep, nil
	}
	killErr := s.inspector.cgroups.kill(ctx, t)
	if remaining, _ = s.remaining(t); len(remaining) == 0 {
		return nextStep, nil
	}
	facts := escalation.Facts{Processes: remaining}
	if first, _ := s.pods.record(s.pods.get(p.Pod.UID), escalation.Report, facts, time.Now()); first {
		s.events.warn(ctx, p.Pod, ContainerStopStuck, "The pod cannot be stopped, its termination continues: %s",
			facts.Summary())
	}
	return endPhase, fmt.Errorf("the runtime has stopped the pod, and processes remain: %s: %w", facts.Summary(), killErr)
}

// remaining lists the processes of containers; known is false if they cannot be distinguished from others.
func (s verifyProcesses) remaining(t target) (found []escalation.Process, known bool) {
	if hasOwnKernel(t.pod) {
		return nil, false
	}
	all, err := s.inspector.cgroups.processesOf(t)
	for _, process := range all {
		if process.Container {
			found = append(found, process)
		}
	}
	return found, err == nil || len(found) > 0
}
