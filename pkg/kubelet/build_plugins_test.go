package kubelet

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/test/await"
)

// registeringPlugin registers as an eviction plugin and can do nothing else.
type registeringPlugin struct {
	registrationv1.UnimplementedRegistrationServer
	name     string
	statuses chan *registrationv1.RegistrationStatus
}

func (p *registeringPlugin) GetInfo(
	context.Context, *registrationv1.InfoRequest,
) (*registrationv1.PluginInfo, error) {
	return &registrationv1.PluginInfo{Type: evictionPlugin, Name: p.name, SupportedVersions: []string{"v1alpha1"}}, nil
}

func (p *registeringPlugin) NotifyRegistrationStatus(
	_ context.Context, s *registrationv1.RegistrationStatus,
) (*registrationv1.RegistrationStatusResponse, error) {
	p.statuses <- s
	return &registrationv1.RegistrationStatusResponse{}, nil
}

// startPlugin serves registration until the end of the test.
func startPlugin(t *testing.T, directory, name string) *registeringPlugin {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(directory, name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	p := &registeringPlugin{name: name, statuses: make(chan *registrationv1.RegistrationStatus, 10)}
	server := grpc.NewServer()
	registrationv1.RegisterRegistrationServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return p
}

// pluginsOf is a build with as much as pluginRegistry needs, with sockets below a directory whose path is short.
func pluginsOf(t *testing.T) (b *build, root string) {
	t.Helper()
	root, err := os.MkdirTemp("", "plugins")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	b = &build{layout: paths.New(root, "")}
	b.Observability.Recorder = record.NewFakeRecorder(100)
	b.plugins.registry = pluginmanager.NewPluginManager(b.layout.PluginsRegistry(), b.Observability.Recorder)
	b.plugins.handlers = func() map[string]cache.PluginHandler { return nil }
	return b, root
}

func (b *build) hostOfTests(kind string) *pluginhost.Host {
	return pluginhost.New(pluginhost.Config{
		Type: kind, Version: "v1alpha1", Directories: b.pluginDirectories(),
		InTree: func(string) bool { return false }, Enabled: func(string) bool { return true },
		Authentication: func() pluginhost.Authentication { return pluginhost.None },
		Clock:          clock.RealClock{}, Recorder: b.Observability.Recorder, Node: &v1.ObjectReference{},
	})
}

// Eviction plugins are registered in plugins_registry and in the directories of the configuration, which are created.
// All ends with the component.
func TestEvictionPluginsOfAllDirectories(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	b, root := pluginsOf(t)
	b.plugins.directories = []string{filepath.Join(root, "a"), filepath.Join(root, "below", "b")}
	host := b.hostOfTests(evictionPlugin)
	b.plugins.eviction = &evictionPlugins{host: host}
	b.plugins.reporter = &reporterPlugins{host: b.hostOfTests(reporterPlugin)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.pluginRegistry().run(ctx) }()

	names := []string{"p0", "p1", "p2"}
	t.Run("plugins", func(t *testing.T) {
		for i, directory := range b.pluginDirectories() {
			awaitDirectory(t, directory)
			p := startPlugin(t, directory, names[i])
			if status := <-p.statuses; !status.PluginRegistered {
				t.Errorf("%s: %v", directory, status)
			}
		}
		// Stock may register a socket again that was created while it began to watch.
		await.True(t, "all plugins are registered", func() bool {
			var registered []string
			for _, e := range host.Endpoints() {
				registered = append(registered, e.Name())
			}
			return slices.Equal(registered, names)
		})
		for _, directory := range b.plugins.directories {
			if info, err := os.Stat(directory); err != nil || info.Mode() != fs.ModeDir|0o750 {
				t.Errorf("%s: %v, %v", directory, info.Mode(), err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if endpoints := host.Endpoints(); len(endpoints) != 0 {
		t.Errorf("%d endpoints after the end", len(endpoints))
	}
}

func awaitDirectory(t *testing.T, path string) {
	t.Helper()
	await.True(t, path, func() bool { info, err := os.Stat(path); return err == nil && info.IsDir() })
}
