//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestClaimedDeviceSurvivesRestarts allocates a claimed device to a pod. The kubelet crashes, the driver stops, and the
// stock kubelet replaces ours and is replaced. The pod goes on running, and after a restart its container has the same
// device, although the claim is not prepared again.
func TestClaimedDeviceSurvivesRestarts(t *testing.T) {
	s := newSpace(t)
	driver := s.newDRADriver("left", "right")
	claim := s.claimDevice(driver, "claim")
	owner := s.ready(podWithClaim("owner", "claim"))
	device := s.sh(owner, "echo $CLAIMED")
	if otherDevice(device) == "" {
		t.Fatalf("the pod has the device %q", device)
	}
	s.hasClaimed(driver, "owner", device)
	s.claimsOnDisk(map[types.UID][]string{claim: {string(owner.UID)}})
	driver.stop()
	s.swapKubelets(nil, func() {
		s.hasClaimed(driver, "owner", device)
		s.claimsOnDisk(map[types.UID][]string{claim: {string(owner.UID)}})
	})
	owner = s.crash(owner)
	s.expect("device of the container after a restart", s.sh(owner, "echo $CLAIMED"), device)
	s.startDRADriver(driver)
	if got := driver.count(func() int { return driver.prepared[string(claim)] }); got != 1 {
		t.Errorf("the claim was prepared %d times, want once", got)
	}

	s.claimDevice(driver, "second-claim")
	second := s.ready(podWithClaim("second", "second-claim"))
	s.expect("device of the second pod", s.sh(second, "echo $CLAIMED"), otherDevice(device))
	s.remove(second)
	s.remove(owner)
	s.unprepared(driver, claim, 1)
	s.claimsOnDisk(nil)
}

// TestClaimIsUnpreparedWhenTheDriverReturns deletes a pod whose driver fails to unprepare the claim and then stops. The
// containers end; the pod and the checkpoint of its claim stay until the driver has unprepared the claim.
func TestClaimIsUnpreparedWhenTheDriverReturns(t *testing.T) {
	s := parallelSpace(t)
	driver := s.newDRADriver("only")
	claim := s.claimDevice(driver, "claim")
	pod := s.ready(podWithClaim("owner", "claim"))
	pid, err := node.ContainerPID(s.ctx, pod.Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	driver.failUnprepare("not now")
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, pod.Name, metav1.DeleteOptions{}))
	s.unprepared(driver, claim, 1)
	s.must(gone(pid))
	driver.stop()
	s.claimsOnDisk(map[types.UID][]string{claim: {string(pod.UID)}})
	s.get(pod.Name)
	driver.failUnprepare("")
	s.startDRADriver(driver)
	s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
	s.unprepared(driver, claim, 2)
	s.claimsOnDisk(nil)
}

// unprepared waits until the driver was called that often to unprepare the claim.
func (s *space) unprepared(driver *draDriver, claim types.UID, times int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := driver.count(func() int { return driver.unprepared[string(claim)] }); got < times {
			return fmt.Errorf("the driver was called %d times to unprepare the claim, want %d", got, times)
		}
		return nil
	})
}

// claimDevice claims one of the driver's devices.
func (s *space) claimDevice(driver *draDriver, name string) types.UID {
	s.t.Helper()
	claim, err := s.client.ResourceV1().ResourceClaims(s.name).Create(s.ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "device", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: driver.name},
		}}}},
	}, metav1.CreateOptions{})
	s.must(err)
	return claim.UID
}

func podWithClaim(name, claim string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "claimed", ResourceClaimName: &claim}}
	pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "claimed"}}
	return pod
}

// hasClaimed waits until the PodResources API reports that device by the pod's claim.
func (s *space) hasClaimed(driver *draDriver, pod, device string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		for _, entry := range got.DynamicResources {
			if entry.ClaimNamespace != s.name || entry.ClaimName != "claim" || len(entry.ClaimResources) != 1 {
				continue
			}
			got := entry.ClaimResources[0]
			if got.DriverName == driver.name && got.DeviceName == device && len(got.CdiDevices) == 1 {
				return nil
			}
		}
		return fmt.Errorf("%s has claimed %v, want %s", pod, got.DynamicResources, device)
	})
}

// claimsOnDisk waits until the kubelet's checkpoint has exactly those claims, by their UIDs, for pods of those UIDs.
func (s *space) claimsOnDisk(want map[types.UID][]string) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		data, err := os.ReadFile(filepath.Join(node.Layout().KubeletRoot(), "dra_manager_state"))
		if err != nil {
			return err
		}
		var file struct{ Data string }
		var content struct {
			ClaimInfoStateList []struct {
				ClaimUID types.UID
				PodUIDs  map[string]struct{}
			}
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(file.Data), &content); err != nil {
			return err
		}
		if len(content.ClaimInfoStateList) != len(want) {
			return fmt.Errorf("the checkpoint has %d claims, want %d: %s", len(content.ClaimInfoStateList), len(want), data)
		}
		for _, claim := range content.ClaimInfoStateList {
			pods := slices.Sorted(slices.Values(want[claim.ClaimUID]))
			if got := slices.Sorted(maps.Keys(claim.PodUIDs)); !slices.Equal(got, pods) {
				return fmt.Errorf("the checkpoint has claim %s for the pods %v, want %v", claim.ClaimUID, got, pods)
			}
		}
		return nil
	})
}
