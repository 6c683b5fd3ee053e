package kubelet

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	pluginwatcherapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/operationexecutor"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/pluginwatcher"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/reconciler"
	"k8s.io/kubernetes/pkg/volume/csi"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

const (
	// evictionPlugin is the type of eviction plugins in their answer to GetInfo. Katalyst's is the same.
	evictionPlugin = "EvictionPlugin"
	// pluginReconcilePeriod is the period of stock's plugin manager.
	pluginReconcilePeriod = time.Second
)

// pluginParts register plugins (CSI, DRA, device plugins, eviction and reporter plugins) that create a socket below the
// directory plugins_registry, and eviction and reporter plugins in the directories of the NodePressureConfiguration.
type pluginParts struct {
	registry pluginmanager.PluginManager
	// handlers returns the handlers by type of plugin. It is called when the container runtime is up: the container
	// manager has its handlers only after it has started.
	handlers func() map[string]cache.PluginHandler
	// eviction are the eviction plugins, reporter the reporter plugins. Their hosts register those in all directories.
	eviction *evictionPlugins
	reporter *reporterPlugins
	// directories are the absolute paths of the setting plugins.directories at the start of the agent.
	directories []string
}

func (b *build) makePlugins(ctx context.Context) error {
	containers := b.Machine.ContainerManager
	b.plugins.directories = b.Pressure.Configuration().Plugins.Directories
	b.plugins.eviction = b.makeEvictionPlugins(ctx)
	if err := b.makeReporterPlugins(ctx); err != nil {
		return err
	}
	b.plugins.registry = pluginmanager.NewPluginManager(b.layout.PluginsRegistry(), b.Observability.Recorder)
	b.plugins.handlers = func() map[string]cache.PluginHandler {
		handlers := map[string]cache.PluginHandler{
			pluginwatcherapi.CSIPlugin: csi.PluginHandler,
		}
		maps.Copy(handlers, containers.GetPluginRegistrationHandlers())
		return handlers
	}
	return nil
}

// pluginDirectories are the directories in which the sockets of eviction and reporter plugins may be.
func (b *build) pluginDirectories() []string {
	return append([]string{b.layout.PluginsRegistry()}, b.plugins.directories...)
}

// list is the page /debug/plugins.
func (p pluginParts) list() debugv1alpha1.PluginList {
	list := p.eviction.list()
	p.reporter.addTo(&list)
	return list
}

func (b *build) pluginRegistry() component {
	plugins, ready, recorder := b.plugins, b.sources.ready, b.Observability.Recorder
	host, reporters := plugins.eviction.host, plugins.reporter.host
	return runs("plugin registry", func(ctx context.Context) {
		for kind, handler := range plugins.handlers() {
			plugins.registry.AddHandler(kind, handler)
		}
		defer host.Close()
		defer reporters.Close()
		hosts := map[string]cache.PluginHandler{evictionPlugin: host, reporterPlugin: reporters}
		for kind, handler := range hosts {
			plugins.registry.AddHandler(kind, handler)
		}
		var watches sync.WaitGroup
		defer watches.Wait()
		for _, directory := range plugins.directories {
			watches.Go(func() { watchPlugins(ctx, directory, hosts, recorder) })
		}
		plugins.registry.Run(ctx, ready, ctx.Done())
	})
}

// watchPlugins registers the eviction and reporter plugins of one directory, which it creates if it does not exist,
// until ctx ends. These are the parts of stock's plugin manager without its metrics: a process has them for one
// manager, the first that runs, and that must be the one of the directory plugins_registry.
func watchPlugins(
	ctx context.Context, directory string, hosts map[string]cache.PluginHandler, recorder record.EventRecorder,
) {
	logger := klog.FromContext(ctx)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		logger.Error(err, "Directory of plugins cannot be created, its plugins are not registered", "path", directory)
		return
	}
	desired := cache.NewDesiredStateOfWorld()
	if err := pluginwatcher.NewWatcher(directory, desired).Start(ctx, ctx.Done()); err != nil {
		logger.Error(err, "Directory of plugins cannot be watched, its plugins are not registered", "path", directory)
		return
	}
	operations := operationexecutor.NewOperationExecutor(operationexecutor.NewOperationGenerator(recorder))
	loop := reconciler.NewReconciler(operations, pluginReconcilePeriod, desired, cache.NewActualStateOfWorld())
	for kind, handler := range hosts {
		loop.AddHandler(kind, handler)
	}
	loop.Run(ctx.Done())
}
