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
	// api is the client configuration for the API server; nil in standalone mode.
	api *rest.Config
	// cancel ends the run. A nil cause is an orderly end.
	cancel context.CancelCauseFunc
	// background functions are started with the agent and end with its context.
	background []func(context.Context)
	// closers are called at the end, the last first.
	closers []func(context.Context)
}

// step is one step of the start. The order is that of stock; the comments of steps are the reasons for their place.
type step struct {
	name string
	do   func(*process, context.Context) error
}

var steps = []step{
	// First, because systemd's timeout begins with the start of the process.
	{"watchdog", (*process).watchdog},
	// Before most allocations.
	{"garbage collection", (*process).setGCPercent},
	// Before the first histogram is registered.
	{"metrics", (*process).metrics},
	// Before any write to files that another agent on this node may use.
	{"lock file", (*process).lock},
	// Before paths of the settings are used.
	{"directories", (*process).makeAbsolute},
	{"identity", (*process).setIdentity},
	// Before the clients and CRI connections, which use it.
	{"tracing", (*process).makeTracing},
	// May write a self-signed server certificate.
	{"TLS", (*process).makeTLS},
	{"API server clients", (*process).makeClients},
	// Needs a client for token and access reviews.
	{"authentication and authorization", (*process).makeAuth},
	{"container runtime", (*process).connectRuntime},
	// The runtime's cgroup driver takes precedence; configz and the container manager must have it.
	{"cgroup driver", (*process).setCgroupDriver},
	{"configz", (*process).publishConfig},
	{"cAdvisor", (*process).makeCAdvisor},
	{"events", (*process).makeRecorder},
	// Needs the machine info from cAdvisor, and the recorder.
	{"container manager", (*process).makeContainerManager},
	{"volumes", (*process).makeVolumes},
	// Last before the agent: capabilities cannot be changed after a pod source has read the first pod.
	{"process limits", (*process).prepareProcess},
}

// run executes the steps, then runs the agent until ctx ends, another process opens the lock file, or the agent fails.
func (p *process) run(ctx context.Context) error {
	ctx, p.cancel = context.WithCancelCause(ctx)
	defer p.cancel(nil)
	defer p.close(ctx)
	agent, err := p.build(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // stopped before the start was complete; the error is that of the interrupted step
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
	p.deps.FeatureGates = p.settings.FeatureGates
	agent, err := p.newAgent(ctx, p.deps)
	if err != nil {
		return nil, fmt.Errorf("create kubelet: %w", err)
	}
	return agent, nil
}

// outcome distinguishes an orderly end from a failure: the agent returns nil, or the context's error, in both cases.
func (p *process) outcome(ctx context.Context, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, errLockContention) {
		return cause
	}
	return nil
}

// closeTimeout bounds the closers, which send pending events and traces.
const closeTimeout = 5 * time.Second

func (p *process) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i](ctx)
	}
}
