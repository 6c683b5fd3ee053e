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

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
)

const (
	// evictionPlugin is the type of eviction plugins in their answer to GetInfo. Katalyst's is the same.
	evictionPlugin = "EvictionPlugin"
	// pluginReconcilePeriod is the period of stock's plugin manager.
	pluginReconcilePeriod = time.Second
)

// pluginParts register plugins (CSI, DRA, device plugins, eviction plugins) that create a socket below the directory
// plugins_registry, and eviction plugins in the directories of the NodePressureConfiguration.
type pluginParts struct {
	registry pluginmanager.PluginManager
	// handlers returns the handlers by type of plugin. It is called when the container runtime is up: the container
	// manager has its handlers only after it has started.
	handlers func() map[string]cache.PluginHandler
	// eviction are the eviction plugins. Their host registers those in all directories.
	eviction *evictionPlugins
	// directories are the absolute paths of the setting plugins.directories at the start of the agent.
	directories []string
}

func (b *build) makePlugins(ctx context.Context) error {
	containers := b.Machine.ContainerManager
	b.plugins.directories = b.Pressure.Configuration().Plugins.Directories
	b.plugins.eviction = b.makeEvictionPlugins(ctx)
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

// pluginDirectories are the directories in which the sockets of eviction plugins may be.
func (b *build) pluginDirectories() []string {
	return append([]string{b.layout.PluginsRegistry()}, b.plugins.directories...)
}

func (b *build) pluginRegistry() component {
	plugins, ready, recorder, host := b.plugins, b.sources.ready, b.Observability.Recorder, b.plugins.eviction.host
	return runs("plugin registry", func(ctx context.Context) {
		for kind, handler := range plugins.handlers() {
			plugins.registry.AddHandler(kind, handler)
		}
		defer host.Close()
		plugins.registry.AddHandler(evictionPlugin, host)
		var watches sync.WaitGroup
		defer watches.Wait()
		for _, directory := range plugins.directories {
			watches.Go(func() { watchPlugins(ctx, directory, host, recorder) })
		}
		plugins.registry.Run(ctx, ready, ctx.Done())
	})
}

// watchPlugins registers the eviction plugins of one directory, which it creates if it does not exist, until ctx ends.
// These are the parts of stock's plugin manager without its metrics: a process has them for one manager, the first that
// runs, and that must be the one of the directory plugins_registry.
func watchPlugins(ctx context.Context, directory string, host *pluginhost.Host, recorder record.EventRecorder) {
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
	loop.AddHandler(evictionPlugin, host)
	loop.Run(ctx.Done())
}
