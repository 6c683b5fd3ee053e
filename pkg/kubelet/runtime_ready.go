package kubelet

import (
	"context"
	"fmt"

	pluginwatcherapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/kubernetes/pkg/volume/csi"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// prepareRuntime makes the context of what needs the runtime, and the group of what stops pods among that. They end
// with ctx, or with the error for which something could not be started; the group ends earlier, before the pod workers
// stop.
func (b *build) prepareRuntime(ctx context.Context) {
	b.node.dependents, b.node.giveUp = context.WithCancelCause(ctx)
	b.node.killers = newGroup(b.node.dependents) //nolint:contextcheck // that context was made of ctx
}

// runtimeReady is called once, by whoever finds the runtime up first.
func (b *build) runtimeReady(context.Context) {
	//nolint:contextcheck // what is started outlives the update that found the runtime up
	if err := b.startRuntimeDependents(b.node.dependents); err != nil {
		b.node.giveUp(err)
	}
}

// watchRuntime keeps the runtime's state current until ctx ends, or until what needs the runtime could not be started: an error.
func (b *build) watchRuntime(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	//nolint:contextcheck // the other context is what this one ends with
	defer context.AfterFunc(b.node.dependents, cancel)()
	b.node.runtimeUp.Run(ctx)
	return context.Cause(b.node.dependents) //nolint:contextcheck // see above
}

// startRuntimeDependents starts, in stock's order, what needs a runtime that is up. It returns when all of it is started.
func (b *build) startRuntimeDependents(ctx context.Context) error {
	cm := b.Machine.ContainerManager
	go b.listRunning(ctx)
	if err := b.Machine.CAdvisor.Start(); err != nil {
		return fmt.Errorf("starting cAdvisor: %w", err)
	}
	// One collection now, so that the capacity of the root file system is known; the container manager does not start without.
	// What goes wrong here shows there.
	_, _, _ = b.stats.provider.GetCgroupStats("/", true)
	node, err := b.sources.view.Node(ctx)
	if err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	err = cm.Start(ctx, node, b.pods.view.Active, b.sources.view.Node, b.sources.ready, b.pods.status, b.Runtime.Runtime, b.Config.LocalStorageCapacityIsolation)
	if err != nil {
		return fmt.Errorf("starting the container manager: %w", err)
	}
	// Eviction needs cAdvisor to tell a dedicated image file system.
	b.node.killers.Go(b.pressure.eviction.Run)
	b.runtime.logs.Start(ctx)
	b.volumes.registration.AddHandler(pluginwatcherapi.CSIPlugin, cache.PluginHandler(csi.PluginHandler))
	// The DRA handler exists only once the container manager has started.
	for kind, handler := range cm.GetPluginRegistrationHandlers() {
		b.volumes.registration.AddHandler(kind, handler)
	}
	go b.volumes.registration.Run(ctx, b.sources.ready, ctx.Done())
	b.pressure.shutdown.Start(b.node.killers.ctx) //nolint:contextcheck // it ends earlier than ctx
	b.node.killers.Go(func(context.Context) { b.pressure.shutdown.Wait() })
	return nil
}

// listRunning reports the pods that run since before the agent was started: they are admitted again, and stopped if
// nothing else is known of them; a termination of an earlier run does not go on if another kubelet has started its pod
// again.
func (b *build) listRunning(ctx context.Context) {
	list := func(ctx context.Context) ([]*kubecontainer.Pod, error) { return b.runtime.manager.GetPods(ctx, false) }
	if running, err := runtimestate.AwaitPods(ctx, list); err == nil {
		b.workers.workers.ForgetOvertaken(running)
		b.workers.workers.SetRunning(running)
		b.pressure.readmission.SetRunning(running)
	}
}
