package kubelet

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"
	pluginwatcherapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/kubernetes/pkg/volume/csi"
)

// prepareRuntime makes the context of what needs the runtime. It ends with ctx, or with the error for which that could not be started.
func (b *build) prepareRuntime(ctx context.Context) {
	b.node.dependents, b.node.giveUp = context.WithCancelCause(ctx)
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
	b.forgetOvertaken(ctx)
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
	go b.pressure.eviction.Run(ctx)
	b.runtime.logs.Start(ctx)
	b.volumes.registration.AddHandler(pluginwatcherapi.CSIPlugin, cache.PluginHandler(csi.PluginHandler))
	// The DRA handler exists only once the container manager has started.
	for kind, handler := range cm.GetPluginRegistrationHandlers() {
		b.volumes.registration.AddHandler(kind, handler)
	}
	go b.volumes.registration.Run(ctx, b.sources.ready, ctx.Done())
	b.pressure.shutdown.Start(ctx)
	return nil
}

// forgetOvertaken looks, before any pod is seen, whose termination is not to go on since another kubelet was here in between. When the
// runtime does not say, the workers find it out by the status cache as far as that is filled.
func (b *build) forgetOvertaken(ctx context.Context) {
	running, err := b.runtime.manager.GetPods(ctx, false)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Terminations begun before: cannot tell which of their pods were started again since")
		return
	}
	b.workers.workers.ForgetOvertaken(running)
}
