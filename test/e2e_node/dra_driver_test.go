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

// draDriver offers devices that are nothing but names to whoever claims them: a container finds those of its claim in its variable
// CLAIMED, which the runtime reads from a file that the driver writes when it prepares the claim.
type draDriver struct {
	draapi.UnimplementedDRAPluginServer
	registrationapi.UnimplementedRegistrationServer
	client kubernetes.Interface
	// name is that of the driver, of the class of its devices, and of the list of them.
	name    string
	devices []string
	stop    func()

	mu sync.Mutex
	// refuses is what the driver says instead of taking claims back.
	refuses string
	// registered counts how often the kubelet has taken the driver on, prepared and unprepared how often it has done so by claim.
	registered           int
	prepared, unprepared map[string]int
}

// newDRADriver makes the class and the devices known to the API server, and the driver to the kubelet. All goes with the test.
func (s *space) newDRADriver(devices ...string) *draDriver {
	s.t.Helper()
	driver := &draDriver{
		client: s.client, name: s.name + ".example", devices: devices, stop: func() {},
		prepared: map[string]int{}, unprepared: map[string]int{},
	}
	resources := s.client.ResourceV1()
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver.name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver.name)}}},
	}}
	_, err := resources.DeviceClasses().Create(s.ctx, class, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		driver.stop()
		err := errors.Join(
			resources.DeviceClasses().Delete(context.Background(), driver.name, metav1.DeleteOptions{}),
			driver.removeFiles(), ignoreMissing(resources.ResourceSlices().Delete(context.Background(), driver.name, metav1.DeleteOptions{})),
		)
		if err != nil {
			s.t.Error(err)
		}
	})
	s.startDRADriver(driver)
	return driver
}

// startDRADriver starts the driver, again after it was stopped, and waits until the kubelet has taken it on.
func (s *space) startDRADriver(driver *draDriver) {
	s.t.Helper()
	before := driver.count(func() int { return driver.registered })
	s.must(driver.serve(s.ctx))
	s.takenOn(driver, before+1)
}

// takenOn waits until the kubelets have taken the driver on that often.
func (s *space) takenOn(driver *draDriver, times int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := driver.count(func() int { return driver.registered }); got < times {
			return fmt.Errorf("the driver was taken on %d times, want %d", got, times)
		}
		return nil
	})
}

// refuse has the driver take no claims back, for that reason; with "" it does again.
func (d *draDriver) refuse(reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuses = reason
}

func (d *draDriver) count(what func() int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return what()
}

func (d *draDriver) socket() string {
	return filepath.Join(node.Layout().KubeletRoot(), "plugins", d.name, "dra.sock")
}

// kind is what the driver's devices are called by the runtime.
func (d *draDriver) kind() string { return d.name + "/claimed" }

// serve listens where the kubelet looks for plugins, and keeps the devices published: a kubelet that starts withdraws them.
func (d *draDriver) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	server := grpc.NewServer()
	var done sync.WaitGroup
	d.stop = func() { cancel(); server.Stop(); done.Wait() }
	draapi.RegisterDRAPluginServer(server, d)
	registrationapi.RegisterRegistrationServer(server, d)
	// The second is what the kubelet waits for.
	for _, socket := range []string{d.socket(), filepath.Join(node.Layout().KubeletRoot(), "plugins_registry", d.name+".sock")} {
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
	// It exists most of the time; another error is tried again.
	_, _ = d.client.ResourceV1().ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: d.name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: d.name, NodeName: new(cluster.NodeName), Devices: devices,
			Pool: resourceapi.ResourcePool{Name: cluster.NodeName, ResourceSliceCount: 1},
		},
	}, metav1.CreateOptions{})
}

// GetInfo tells the kubelet whom it has found.
func (d *draDriver) GetInfo(context.Context, *registrationapi.InfoRequest) (*registrationapi.PluginInfo, error) {
	return &registrationapi.PluginInfo{
		Type: registrationapi.DRAPlugin, Name: d.name, Endpoint: d.socket(), SupportedVersions: []string{draapi.DRAPluginService},
	}, nil
}

// NotifyRegistrationStatus counts.
func (d *draDriver) NotifyRegistrationStatus(_ context.Context, status *registrationapi.RegistrationStatus) (*registrationapi.RegistrationStatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if status.PluginRegistered {
		d.registered++
	}
	return &registrationapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources describes the devices of each claim to the runtime.
func (d *draDriver) NodePrepareResources(ctx context.Context, request *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for _, claim := range request.Claims {
		d.prepared[claim.Uid]++
		devices, err := d.prepare(ctx, claim)
		if err != nil {
			answer.Claims[claim.Uid] = &draapi.NodePrepareResourceResponse{Error: err.Error()}
			continue
		}
		answer.Claims[claim.Uid] = &draapi.NodePrepareResourceResponse{Devices: devices}
	}
	return answer, nil
}

func (d *draDriver) prepare(ctx context.Context, claim *draapi.Claim) ([]*draapi.Device, error) {
	got, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if string(got.UID) != claim.Uid || got.Status.Allocation == nil || len(got.Status.Allocation.Devices.Results) != 1 {
		return nil, fmt.Errorf("claim %s has not one device", claim.Name)
	}
	given := got.Status.Allocation.Devices.Results[0]
	type object = map[string]any
	data, err := json.Marshal(object{"cdiVersion": "0.6.0", "kind": d.kind(), "devices": []object{{
		"name": claim.Uid, "containerEdits": object{"env": []string{"CLAIMED=" + given.Device}},
	}}})
	if err != nil {
		return nil, err
	}
	return []*draapi.Device{{
		RequestNames: []string{given.Request}, PoolName: given.Pool, DeviceName: given.Device, CdiDeviceIds: []string{d.kind() + "=" + claim.Uid},
	}}, os.WriteFile(d.file(claim.Uid), data, 0o644)
}

// NodeUnprepareResources takes the description back.
func (d *draDriver) NodeUnprepareResources(_ context.Context, request *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for _, claim := range request.Claims {
		d.unprepared[claim.Uid]++
		answer.Claims[claim.Uid] = &draapi.NodeUnprepareResourceResponse{Error: d.refuses}
		if d.refuses != "" {
			continue
		}
		if err := os.Remove(d.file(claim.Uid)); err != nil && !errors.Is(err, os.ErrNotExist) {
			answer.Claims[claim.Uid].Error = err.Error()
		}
	}
	return answer, nil
}

func (d *draDriver) file(claim string) string {
	return filepath.Join(node.Layout().CDI(), d.name+"-"+claim+".json")
}

// removeFiles removes what is left of claims that were never given back.
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
