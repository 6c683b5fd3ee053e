//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// draDriver offers devices that are only names. The environment variable CLAIMED of a container has those of its claim;
// the runtime reads it from a file that the driver writes when it prepares the claim.
type draDriver struct {
	draapi.UnimplementedDRAPluginServer
	registrationapi.UnimplementedRegistrationServer
	client kubernetes.Interface
	// name is that of the driver, of its DeviceClass and of its ResourceSlice.
	name    string
	devices []string
	stop    func()

	mu sync.Mutex
	// failure is the error with which the driver fails to unprepare claims; "" for none.
	failure string
	// registered counts successful registrations with a kubelet, prepared and unprepared the calls by claim.
	registered           int
	prepared, unprepared map[string]int
}

// newDRADriver creates a DeviceClass and a ResourceSlice, and registers the driver with the kubelet, until the test
// ends.
func (s *space) newDRADriver(devices ...string) *draDriver {
	s.t.Helper()
	driver := &draDriver{
		client: s.client, name: s.name + ".example", devices: devices, stop: func() {},
		prepared: map[string]int{}, unprepared: map[string]int{},
	}
	resources := s.client.ResourceV1()
	selector := &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver.name)}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver.name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: selector}},
	}}
	_, err := resources.DeviceClasses().Create(s.ctx, class, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		driver.stop()
		ctx, options := context.Background(), metav1.DeleteOptions{}
		err := errors.Join(
			resources.DeviceClasses().Delete(ctx, driver.name, options), driver.removeFiles(),
			ignoreMissing(resources.ResourceSlices().Delete(ctx, driver.name, options)),
		)
		if err != nil {
			s.t.Error(err)
		}
	})
	s.startDRADriver(driver)
	return driver
}

// startDRADriver starts the driver and waits until the kubelet has registered it.
func (s *space) startDRADriver(driver *draDriver) {
	s.t.Helper()
	before := driver.count(func() int { return driver.registered })
	s.must(driver.serve(s.ctx))
	s.registeredTimes(driver, before+1)
}

// registeredTimes waits until the driver was registered that often.
func (s *space) registeredTimes(driver *draDriver, times int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := driver.count(func() int { return driver.registered }); got < times {
			return fmt.Errorf("the driver was registered %d times, want %d", got, times)
		}
		return nil
	})
}

// failUnprepare makes the driver fail to unprepare claims with that error; with "" it succeeds again.
func (d *draDriver) failUnprepare(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = reason
}

func (d *draDriver) count(what func() int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return what()
}

func (d *draDriver) socket() string {
	return filepath.Join(node.Layout().KubeletRoot(), "plugins", d.name, "dra.sock")
}

// kind is the kind of the driver's devices in the Container Device Interface.
func (d *draDriver) kind() string { return d.name + "/claimed" }

// serve listens where the kubelet finds plugins, and keeps the ResourceSlice published: a kubelet that starts deletes
// it.
func (d *draDriver) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	server := grpc.NewServer()
	var done sync.WaitGroup
	d.stop = func() { cancel(); server.Stop(); done.Wait() }
	draapi.RegisterDRAPluginServer(server, d)
	registrationapi.RegisterRegistrationServer(server, d)
	// The kubelet watches the directory of the second.
	registry := filepath.Join(node.Layout().KubeletRoot(), "plugins_registry", d.name+".sock")
	for _, socket := range []string{d.socket(), registry} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
			return err
		}
		listener, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		done.Go(func() { _ = server.Serve(listener) })
	}
	done.Go(func() { wait.UntilWithContext(ctx, d.publish, time.Second) })
	return nil
}

func (d *draDriver) publish(ctx context.Context) {
	var devices []resourceapi.Device
	for _, name := range d.devices {
		devices = append(devices, resourceapi.Device{Name: name})
	}
	// It exists already most of the time; after any other error publish is called again.
	_, _ = d.client.ResourceV1().ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: d.name, NodeName: new(cluster.NodeName), Devices: devices,
			Pool: resourceapi.ResourcePool{Name: cluster.NodeName, ResourceSliceCount: 1},
		},
	}, metav1.CreateOptions{})
}

// GetInfo describes the driver.
func (d *draDriver) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	return &registrationapi.PluginInfo{
		Type: registrationapi.DRAPlugin, Name: d.name, Endpoint: d.socket(),
		SupportedVersions: []string{draapi.DRAPluginService},
	}, nil
}

// NotifyRegistrationStatus counts successful registrations.
func (d *draDriver) NotifyRegistrationStatus(
	_ context.Context, status *registrationapi.RegistrationStatus,
) (*registrationapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if status.PluginRegistered {
		d.registered++
	}
	return &registrationapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources writes the description of each claim's device for the runtime.
func (d *draDriver) NodePrepareResources(
	ctx context.Context, request *draapi.NodePrepareResourcesRequest,
) (*draapi.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for _, claim := range request.Claims {
		d.prepared[claim.Uid]++
		devices, err := d.prepare(ctx, claim)
		if err != nil {
			response.Claims[claim.Uid] = &draapi.NodePrepareResourceResponse{Error: err.Error()}
			continue
		}
		response.Claims[claim.Uid] = &draapi.NodePrepareResourceResponse{Devices: devices}
	}
	return response, nil
}

func (d *draDriver) prepare(ctx context.Context, claim *draapi.Claim) ([]*draapi.Device, error) {
	got, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if string(got.UID) != claim.Uid || got.Status.Allocation == nil || len(got.Status.Allocation.Devices.Results) != 1 {
		return nil, fmt.Errorf("claim %s does not have one device", claim.Name)
	}
	allocated := got.Status.Allocation.Devices.Results[0]
	type object = map[string]any
	data, err := json.Marshal(object{"cdiVersion": "0.6.0", "kind": d.kind(), "devices": []object{{
		"name": claim.Uid, "containerEdits": object{"env": []string{"CLAIMED=" + allocated.Device}},
	}}})
	if err != nil {
		return nil, err
	}
	return []*draapi.Device{{
		RequestNames: []string{allocated.Request}, PoolName: allocated.Pool, DeviceName: allocated.Device,
		CdiDeviceIds: []string{d.kind() + "=" + claim.Uid},
	}}, os.WriteFile(d.file(claim.Uid), data, 0o644)
}

// NodeUnprepareResources removes the description.
func (d *draDriver) NodeUnprepareResources(
	_ context.Context, request *draapi.NodeUnprepareResourcesRequest,
) (*draapi.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	response := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for _, claim := range request.Claims {
		d.unprepared[claim.Uid]++
		response.Claims[claim.Uid] = &draapi.NodeUnprepareResourceResponse{Error: d.failure}
		if d.failure != "" {
			continue
		}
		if err := os.Remove(d.file(claim.Uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
			response.Claims[claim.Uid].Error = err.Error()
		}
	}
	return response, nil
}

func (d *draDriver) file(claim string) string {
	return filepath.Join(node.Layout().CDI(), d.name+"-"+claim+".json")
}

// removeFiles removes the descriptions of claims that were never unprepared.
func (d *draDriver) removeFiles() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for claim := range maps.Keys(d.prepared) {
		if err := os.Remove(d.file(claim)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
