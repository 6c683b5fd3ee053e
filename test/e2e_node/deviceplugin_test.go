//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// thing is the extended resource of the tests' device plugin.
const thing v1.ResourceName = "plimsoll.example/thing"

// devicePlugin offers devices that are nothing but names: a container finds those that it was given in its variable THINGS.
type devicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	devices []*pluginapi.Device
	socket  string
	server  *grpc.Server
}

// startDevicePlugin makes the devices known to the kubelet. The plugin goes with the test.
func (s *space) startDevicePlugin(names ...string) *devicePlugin {
	s.t.Helper()
	plugin := &devicePlugin{socket: filepath.Join(pluginapi.DevicePluginPath, s.name+".sock")}
	for _, name := range names {
		plugin.devices = append(plugin.devices, &pluginapi.Device{ID: name, Health: pluginapi.Healthy})
	}
	s.must(plugin.register(s.ctx))
	s.t.Cleanup(func() { plugin.stop() })
	return plugin
}

// register serves anew and tells the kubelet, as a plugin does at its start and whenever the kubelet was restarted. A kubelet that starts
// empties the folder of sockets, so this is repeated as a whole.
func (p *devicePlugin) register(ctx context.Context) error {
	return kit.Poll(ctx, time.Minute, func(ctx context.Context) error { return errors.Join(p.serve(), p.tellKubelet(ctx)) })
}

func (p *devicePlugin) serve() error {
	p.stop()
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	p.server = server
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }()
	return nil
}

func (p *devicePlugin) tellKubelet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(thing),
	})
	return err
}

func (p *devicePlugin) stop() {
	if p.server != nil {
		p.server.Stop()
	}
	_ = os.Remove(p.socket)
}

// GetDevicePluginOptions asks for nothing special.
func (p *devicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch lists the devices once: they never change.
func (p *devicePlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate names the devices of each container.
func (p *devicePlugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"THINGS": strings.Join(container.DevicesIds, ",")},
		})
	}
	return answer, nil
}

// things waits until the node offers that many.
func (s *space) things(count int64) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := kit.Node(ctx, s.client)
		if err != nil {
			return err
		}
		if offered := got.Status.Allocatable[thing]; offered.Value() != count {
			return fmt.Errorf("the node offers %d of %s, want %d", offered.Value(), thing, count)
		}
		return nil
	})
}

func podWithThing(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{thing: resource.MustParse("1")}
	return pod
}

// holds waits until the PodResources API says that the pod has that device.
func (s *space) holds(pod, device string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		for _, devices := range got.Devices {
			if devices.ResourceName == string(thing) && slices.Equal(devices.DeviceIds, []string{device}) {
				return nil
			}
		}
		return fmt.Errorf("%s has the devices %v, want %s", pod, got.Devices, device)
	})
}

// other is the name of the two that is not one.
func other(one string) string { return map[string]string{"left": "right", "right": "left"}[one] }

// TestDevicesSurviveRestarts gives devices to pods and restarts the kubelet, in order and by a crash: who has one keeps it, also while
// the plugin has not come back, and nobody else gets it.
func TestDevicesSurviveRestarts(t *testing.T) {
	s := newSpace(t)
	plugin := s.startDevicePlugin("left", "right")
	s.things(2)
	first := s.ready(podWithThing("first"))
	device := s.sh(first, "echo $THINGS")
	if other(device) == "" {
		t.Fatalf("the pod was given %q", device)
	}
	s.holds("first", device)
	before := s.fingerprint()
	for _, stop := range []func(context.Context) error{node.StopKubelet, node.KillKubelet} {
		s.must(stop(s.ctx))
		s.must(node.StartKubelet(s.ctx, nil))
		s.holds("first", device) // before the plugin is back
		s.must(s.sameAs(before))
		s.must(plugin.register(s.ctx))
		s.things(2)
		s.must(s.sameAs(before))
	}

	second := s.ready(podWithThing("second"))
	s.expect("device of the second pod", s.sh(second, "echo $THINGS"), other(device))
	third := s.wait(s.create(kit.Bound(podWithThing("third"))), podTimeout, ended(v1.PodFailed))
	if third.Status.Reason == "" || len(third.Status.ContainerStatuses) > 0 && third.Status.ContainerStatuses[0].ContainerID != "" {
		t.Errorf("a third pod for two devices: %s", kit.Describe(third))
	}
	s.remove(first)
	s.expect("device that was given back", s.sh(s.ready(podWithThing("fourth")), "echo $THINGS"), device)
}

// TestDevicesOfAPluginThatIsGone ends a device plugin. The node no longer offers its devices, and the pods that have
// them run on. No other parallel test has a device plugin.
func TestDevicesOfAPluginThatIsGone(t *testing.T) {
	s := parallelSpace(t)
	plugin := s.startDevicePlugin("left", "right")
	s.things(2)
	s.ready(podWithThing("owner"))
	before := s.fingerprint()
	plugin.stop()
	s.things(0)
	s.must(s.sameAs(before))
	s.eventually(podTimeout, func(ctx context.Context) error {
		pod, err := s.podResources(ctx, "owner")
		if err == nil && len(pod.Devices) == 0 {
			err = errors.New("the pod lost its device")
		}
		return err
	})
	s.must(plugin.register(s.ctx))
	s.things(2)
}
