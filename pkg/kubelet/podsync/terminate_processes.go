package podsync

import (
	"context"
	"fmt"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
)

// verifyProcesses checks with the kernel that no process of a container is left, whatever the runtime says: a runtime reports containers
// as ended whose processes sleep in the kernel, or whose helper it has lost. What is left is killed; what cannot be killed keeps the
// pod from being reported as stopped.
type verifyProcesses struct{ *escalator }

func (verifyProcesses) Name() string { return "verify that processes are gone" }

func (s verifyProcesses) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	t := target{pod: p.Pod, status: p.stopped}
	left, known := s.left(t)
	if !known || len(left) == 0 {
		return proceed, nil
	}
	killErr := s.look.cgroups.kill(ctx, t)
	if left, _ = s.left(t); len(left) == 0 {
		return proceed, nil
	}
	facts := escalation.Facts{Processes: left}
	if first, _ := s.ledger.climb(s.ledger.open(p.Pod.UID), escalation.Report, facts, time.Now()); first {
		s.events.warn(ctx, p.Pod, ContainerStopStuck, "The pod cannot be stopped, it goes on terminating: %s", facts.Summary())
	}
	return settled, fmt.Errorf("the runtime has stopped the pod, and processes are left: %s: %w", facts.Summary(), killErr)
}

// left lists the processes of containers; known is false where they cannot be told from others.
func (s verifyProcesses) left(t target) (found []escalation.Process, known bool) {
	if ownKernel(t.pod) {
		return nil, false
	}
	all, err := s.look.cgroups.list(t)
	for _, process := range all {
		if process.Container {
			found = append(found, process)
		}
	}
	return found, err == nil || len(found) > 0
}
