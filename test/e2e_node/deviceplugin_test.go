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

// deviceResource is the extended resource of the tests' device plugin.
const deviceResource v1.ResourceName = "plimsoll.example/device"

// devicePlugin offers devices that are only names: the environment variable DEVICES of a container lists those
// allocated to it.
type devicePlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	devices []*pluginapi.Device
	socket  string
	server  *grpc.Server
}

// startDevicePlugin registers the devices with the kubelet. The plugin stops when the test ends.
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

// register listens and registers with the kubelet, as a plugin does at its start and whenever the kubelet was
// restarted. Both are repeated until they succeed: a kubelet that starts removes the sockets.
func (p *devicePlugin) register(ctx context.Context) error {
	return kit.Poll(ctx, time.Minute, func(ctx context.Context) error {
		return errors.Join(p.serve(), p.registerOnce(ctx))
	})
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

func (p *devicePlugin) registerOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, credentials)
	if err != nil {
		return err
	}
	defer connection.Close()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: string(deviceResource),
	})
	return err
}

func (p *devicePlugin) stop() {
	if p.server != nil {
		p.server.Stop()
	}
	_ = os.Remove(p.socket)
}

// GetDevicePluginOptions returns the defaults.
func (p *devicePlugin) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch lists the devices once: they never change.
func (p *devicePlugin) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate sets the environment variable of each container.
func (p *devicePlugin) Allocate(
	_ context.Context, request *pluginapi.AllocateRequest,
) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}

// allocatableDevices waits until the Node's status has that many allocatable devices.
func (s *space) allocatableDevices(count int64) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := kit.Node(ctx, s.client)
		if err != nil {
			return err
		}
		if allocatable := got.Status.Allocatable[deviceResource]; allocatable.Value() != count {
			return fmt.Errorf("%d of %s are allocatable, want %d", allocatable.Value(), deviceResource, count)
		}
		return nil
	})
}

func podWithDevice(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{deviceResource: resource.MustParse("1")}
	return pod
}

// hasDevice waits until the PodResources API reports that device for the pod.
func (s *space) hasDevice(pod, device string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		for _, devices := range got.Devices {
			if devices.ResourceName == string(deviceResource) && slices.Equal(devices.DeviceIds, []string{device}) {
				return nil
			}
		}
		return fmt.Errorf("%s has the devices %v, want %s", pod, got.Devices, device)
	})
}

// otherDevice returns the name of the other one of the two devices, "" if one is neither.
func otherDevice(one string) string { return map[string]string{"left": "right", "right": "left"}[one] }

// TestDevicesSurviveRestarts allocates devices to pods, restarts the kubelet and kills it. A pod keeps its device, also
// before the plugin has registered again, and no other pod gets it.
func TestDevicesSurviveRestarts(t *testing.T) {
	s := newSpace(t)
	plugin := s.startDevicePlugin("left", "right")
	s.allocatableDevices(2)
	first := s.ready(podWithDevice("first"))
	device := s.sh(first, "echo $DEVICES")
	if otherDevice(device) == "" {
		t.Fatalf("the pod has the device %q", device)
	}
	s.hasDevice("first", device)
	before := s.fingerprint()
	for _, stop := range []func(context.Context) error{node.StopKubelet, node.KillKubelet} {
		s.must(stop(s.ctx))
		s.must(node.StartKubelet(s.ctx, nil))
		s.hasDevice("first", device) // before the plugin has registered again
		s.must(s.sameAs(before))
		s.must(plugin.register(s.ctx))
		s.allocatableDevices(2)
		s.must(s.sameAs(before))
	}

	second := s.ready(podWithDevice("second"))
	s.expect("device of the second pod", s.sh(second, "echo $DEVICES"), otherDevice(device))
	third := s.wait(s.create(kit.Bound(podWithDevice("third"))), podTimeout, ended(v1.PodFailed))
	statuses := third.Status.ContainerStatuses
	if third.Status.Reason == "" || len(statuses) > 0 && statuses[0].ContainerID != "" {
		t.Errorf("a third pod for two devices: %s", kit.Describe(third))
	}
	s.remove(first)
	s.expect("device that was freed", s.sh(s.ready(podWithDevice("fourth")), "echo $DEVICES"), device)
}

// TestDevicesOfAPluginThatIsGone ends a device plugin. The node no longer offers its devices, and the pods that have
// them run on. No other parallel test has a device plugin.
func TestDevicesOfAPluginThatIsGone(t *testing.T) {
	s := parallelSpace(t)
	plugin := s.startDevicePlugin("left", "right")
	s.allocatableDevices(2)
	s.ready(podWithDevice("owner"))
	before := s.fingerprint()
	plugin.stop()
	s.allocatableDevices(0)
	s.must(s.sameAs(before))
	s.eventually(podTimeout, func(ctx context.Context) error {
		pod, err := s.podResources(ctx, "owner")
		if err == nil && len(pod.Devices) == 0 {
			err = errors.New("the pod lost its device")
		}
		return err
	})
	s.must(plugin.register(s.ctx))
	s.allocatableDevices(2)
}
