package kubelet

import (
	"context"
	"maps"

	pluginwatcherapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/kubernetes/pkg/volume/csi"
)

// pluginParts serve plugins that register themselves by a socket below the directory plugins_registry.
type pluginParts struct {
	registry pluginmanager.PluginManager
	// handlers lists what handles plugins, by their type. It is called when the container runtime is up: the handlers of
	// the container manager exist only once that has started.
	handlers func() map[string]cache.PluginHandler
}

func (b *build) makePlugins(context.Context) error {
	containers := b.Machine.ContainerManager
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

func (b *build) pluginRegistry() component {
	plugins, ready := b.plugins, b.sources.ready
	return runs("plugin registry", func(ctx context.Context) {
		for kind, handler := range plugins.handlers() {
			plugins.registry.AddHandler(kind, handler)
		}
		plugins.registry.Run(ctx, ready, ctx.Done())
	})
}
