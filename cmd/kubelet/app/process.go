package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// process is one run of the agent with valid settings.
type process struct {
	settings *Settings
	newAgent func(context.Context, kubelet.Dependencies) (Agent, error)

	deps kubelet.Dependencies
	// api is how the API server is reached; nil in standalone mode.
	api *rest.Config
	// cancel ends the run. A nil cause is an orderly end.
	cancel context.CancelCauseFunc
	// background is started with the agent and ends with its context.
	background []func(context.Context)
	// closers run at the very end, last first.
	closers []func(context.Context)
}

// step is one part of the start. The order is that of stock: each entry says what makes it stand where it stands.
type step struct {
	name string
	do   func(*process, context.Context) error
}

var steps = []step{
	// systemd counts from the start of the process, so it hears from us first.
	{"watchdog", (*process).watchdog},
	// Before much is allocated.
	{"garbage collection", (*process).saveMemory},
	// Before the first histogram is registered.
	{"metrics", (*process).metrics},
	// Before anything is written that another agent on this node may be using.
	{"lock file", (*process).lock},
	// Before anybody takes a path from the settings.
	{"directories", (*process).makeAbsolute},
	{"identity", (*process).identify},
	// Before the clients and CRI connections, which carry it.
	{"tracing", (*process).trace},
	// Before the server certificate is needed; may write a self-signed one.
	{"TLS", (*process).makeTLS},
	{"API server clients", (*process).connect},
	// Needs a client for token and access reviews.
	{"authentication and authorization", (*process).guard},
	{"container runtime", (*process).reachRuntime},
	// The runtime has the last word, and configz and the container manager must show and use what it says.
	{"cgroup driver", (*process).adoptCgroupDriver},
	{"configz", (*process).showConfig},
	{"cAdvisor", (*process).makeCAdvisor},
	{"events", (*process).makeRecorder},
	// Needs machine facts from cAdvisor, and the recorder.
	{"container manager", (*process).makeContainerManager},
	{"volumes", (*process).makeVolumes},
	// Last before the agent: pod sources freeze capabilities as soon as they read the first pod.
	{"process limits", (*process).prepareProcess},
}

// run builds everything, then runs the agent until ctx ends, the lock file is wanted by another process, or the agent
// fails.
func (p *process) run(ctx context.Context) error {
	ctx, p.cancel = context.WithCancelCause(ctx)
	defer p.cancel(nil)
	defer p.close(ctx)
	agent, err := p.build(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it was up; the error is only what was interrupted
		}
		return err
	}
	for _, start := range p.background {
		go start(ctx)
	}
	klog.FromContext(ctx).Info("Started kubelet")
	go func() { _, _ = daemon.SdNotify(false, daemon.SdNotifyReady) }()
	return p.outcome(ctx, agent.Run(ctx))
}

func (p *process) build(ctx context.Context) (Agent, error) {
	for _, step := range steps {
		if err := step.do(p, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	p.deps.Config, p.deps.Flags, p.deps.Pressure = p.settings.Config, p.settings.Flags, p.settings.Pressure
	agent, err := p.newAgent(ctx, p.deps)
	if err != nil {
		return nil, fmt.Errorf("create kubelet: %w", err)
	}
	return agent, nil
}

// outcome tells an orderly end from a failure: the agent returns nil, or the context's error, in both cases.
func (p *process) outcome(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, errLockWanted) {
		return cause
	}
	return nil
}

// closeTimeout bounds the clean-up at the end, which is sending what has not been sent yet.
const closeTimeout = 5 * time.Second

func (p *process) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i](ctx)
	}
}
