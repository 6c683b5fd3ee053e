package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// Kubelet is an agent that New has built. Run may be called once.
type Kubelet struct {
	runner *runner
	// setupFailed reports a component that did not start.
	setupFailed func(error)
}

// New builds the agent and starts no component of it. It returns an error for invalid settings that validation could
// not detect, and if the container runtime cannot be reached.
func New(ctx context.Context, deps Dependencies) (*Kubelet, error) {
	b, err := assemble(ctx, deps)
	if err != nil {
		return nil, err
	}
	return b.kubelet(), nil
}

func (b *build) kubelet() *Kubelet {
	recorder, node := b.Observability.Recorder, b.nodeRef
	b.runner.components = b.components()
	return &Kubelet{runner: b.runner, setupFailed: func(err error) {
		recorder.Eventf(node, v1.EventTypeWarning, events.KubeletSetupFailed, "%s", err.Error())
	}}
}

// Run starts all components in order, waits until ctx ends or a component fails, and stops them in reverse. It returns
// the error of the component, nil if ctx has ended. Pods continue to run. It must be called once.
func (k *Kubelet) Run(ctx context.Context) error {
	err := k.runner.run(ctx)
	if failed := (startError{}); errors.As(err, &failed) {
		k.setupFailed(failed)
	}
	return err
}

// assemble makes the parts in the order of the steps.
func assemble(ctx context.Context, deps Dependencies) (*build, error) {
	b := &build{
		Dependencies: deps, clock: clock.RealClock{}, layout: paths.New(deps.Flags.RootDirectory, deps.Config.PodLogsDir),
		runner: newRunner(), forward: &forward{},
	}
	for _, step := range []struct {
		name string
		make func(context.Context) error
	}{
		// Facts about the machine, which all other steps may read.
		{"machine", b.makeMachine},
		// Pod sources and the informers of nodes and services.
		{"sources", b.makeSources},
		// The state of each pod: configuration, lifecycle, status, allocation.
		{"pods", b.makePods},
		// Objects that pods refer to.
		{"objects", b.makeObjects},
		// Volumes come before the runtime: containers are started with them.
		{"volumes", b.makeVolumes},
		{"plugins", b.makePlugins},
		{"runtime", b.makeRuntime},
		// Statistics need the runtime, and eviction and garbage collection need statistics.
		{"statistics", b.makeStatistics},
		{"garbage collection", b.makeGarbageCollection},
		// The workers and their operations.
		{"pod workers", b.makeWorkers},
		// Eviction and shutdown, which stop pods; then admission, which decides which pods may start.
		{"pressure", b.makePressure},
		{"admission", b.makeAdmission},
		{"sync loop", b.makeSyncLoop},
		// Node status and servers come last: they report on all other parts.
		{"node", b.makeNode},
		{"servers", b.makeServers},
	} {
		if err := step.make(ctx); err != nil {
			return nil, fmt.Errorf("building %s: %w", step.name, err)
		}
	}
	return b, nil
}

// build is the agent while it is built: one group of parts per step. It does not outlive New: each part has references
// to the parts that it was built with, and to forward.
type build struct {
	Dependencies
	clock       clock.WithTickerAndDelayedExecution
	layout      paths.Layout
	runner      *runner
	forward     *forward
	nodeRef     *v1.ObjectReference
	machineInfo *cadvisorapi.MachineInfo

	sources   sourceParts
	pods      podParts
	objects   objectParts
	volumes   volumeParts
	plugins   pluginParts
	runtime   runtimeParts
	stats     statsParts
	garbage   garbageParts
	workers   workerParts
	pressure  pressureParts
	admission admissionParts
	loop      loopParts
	node      nodeParts
	servers   serverParts
}

func (b *build) enabled(gate featuregate.Feature) bool { return b.FeatureGates.Enabled(gate) }

func (b *build) makeMachine(context.Context) error {
	b.nodeRef = &v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: string(b.Identity.NodeName)}
	info, err := b.Machine.CAdvisor.MachineInfo()
	if err != nil {
		return fmt.Errorf("reading machine information: %w", err)
	}
	// The collector would publish metrics with this time, which never changes (kubernetes/kubernetes#95210).
	info.Timestamp = time.Time{}
	b.machineInfo = info
	return nil
}
