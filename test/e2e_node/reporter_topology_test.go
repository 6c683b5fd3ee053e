//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestReporterTopology gives pods a CPU of their own and a device. Both are in the zones of the CustomNodeResource when
// the pod has started, and no longer when it has ended or was deleted.
func TestReporterTopology(t *testing.T) {
	s := newSpace(t)
	s.noOtherPods()
	s.withPressureConfig(reporterSettings(anyTime, t), nil)
	t.Cleanup(func() {
		err := s.reporterUser("").Delete(context.Background(), cluster.NodeName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	s.withExclusiveCPUs()
	s.startDevicePlugin("left", "right")
	s.allocatableDevices(2)

	ends := s.boundPod("ends", "while [ ! -e /tmp/end ]; do sleep 0.1; done")
	since := time.Now()
	s.sh(ends, "touch /tmp/end")
	s.took("what the pod had is gone after it has ended", s.allocated(ends, nil).Sub(since), 3*time.Second)
	s.wait(ends, podTimeout, ended(v1.PodSucceeded))
	s.remove(ends)

	deleted := s.boundPod("deleted", kit.Forever)
	s.remove(deleted)
	since = time.Now()
	s.took("what the pod had is gone after it was deleted", s.allocated(deleted, nil).Sub(since), 3*time.Second)
}

// boundPod starts a pod that has one CPU of its own and one device, and runs the script. It waits until the zones of
// the object have both.
func (s *space) boundPod(name, script string) *v1.Pod {
	s.t.Helper()
	pod := kit.Pod(name, script)
	all := kit.Resources("1", "32Mi")
	all[deviceResource] = resource.MustParse("1")
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	pod = s.create(pod)
	// A device whose plugin names no NUMA node is of the only one.
	device := v1.ResourceList{deviceResource: resource.MustParse("1")}
	both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), deviceResource: resource.MustParse("1")}
	published := s.allocated(pod, []allocation{
		{string(nodev1alpha1.TopologyTypeNuma), both}, {string(deviceResource), device},
	})
	pod = s.wait(pod, podTimeout, kit.Ready)
	// In whole seconds, so that it may be up to one too early.
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	s.took("CPU and device in the zones after the pod has started", published.Sub(started.Time), 3*time.Second)
	object, err := s.reported(s.ctx)
	s.must(err)
	got := s.sh(pod, "echo $DEVICES")
	var names []string
	for _, zone := range innermost(object.Status.TopologyZone) {
		if len(zone.Allocations) > 0 {
			names = append(names, zone.Name)
		}
	}
	if !slices.Equal(names, []string{got}) {
		s.t.Errorf("the pod has the device %s, the zones say %q", got, names)
	}
	return pod
}

// innermost returns the zones that have no others in them, which are those of devices.
func innermost(zones []nodev1alpha1.TopologyZone) (list []nodev1alpha1.TopologyZone) {
	for _, zone := range zones {
		if len(zone.Children) == 0 {
			list = append(list, zone)
		}
		list = append(list, innermost(zone.Children)...)
	}
	return list
}

// allocation is what a pod has of a zone of a type.
type allocation struct {
	Zone     string
	Requests v1.ResourceList
}

// allocated waits until the zones have exactly that for the pod. It returns when that was seen.
func (s *space) allocated(pod *v1.Pod, want []allocation) time.Time {
	s.t.Helper()
	consumer := fmt.Sprintf("%s/%s/%s", pod.Namespace, pod.Name, pod.UID)
	ctx, cancel := context.WithTimeout(s.ctx, reporterTimeout)
	defer cancel()
	for {
		object, err := s.reported(ctx)
		if err == nil {
			got := allocations(object.Status.TopologyZone, consumer)
			if equality.Semantic.DeepEqual(got, want) {
				return time.Now()
			}
			err = fmt.Errorf("%s has %v, want %v", consumer, got, want)
		}
		select {
		case <-time.After(objectInterval):
		case <-ctx.Done():
			s.t.Fatalf("after %v: %v", reporterTimeout, err)
		}
	}
}

// allocations returns what a consumer has of the zones and of those in them.
func allocations(zones []nodev1alpha1.TopologyZone, consumer string) (list []allocation) {
	for _, zone := range zones {
		for _, a := range zone.Allocations {
			if a.Consumer == consumer && a.Requests != nil {
				list = append(list, allocation{string(zone.Type), *a.Requests})
			}
		}
		list = append(list, allocations(zone.Children, consumer)...)
	}
	return list
}
