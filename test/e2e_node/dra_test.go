//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"fmt"
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

// TestClaimedDeviceSurvivesRestarts gives a pod a claimed device. The kubelet crashes, the driver too, and the upstream kubelet takes the
// node over and gives it back: the pod runs on, and a container of it that is started anew has the same device, though nobody prepares it
// again.
func TestClaimedDeviceSurvivesRestarts(t *testing.T) {
	s := newSpace(t)
	driver := s.newDRADriver("left", "right")
	claim := s.claimDevice(driver, "claim")
	owner := s.ready(podWithClaim("owner", "claim"))
	device := s.sh(owner, "echo $CLAIMED")
	if other(device) == "" {
		t.Fatalf("the pod was given %q", device)
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
	s.expect("device of the second pod", s.sh(second, "echo $CLAIMED"), other(device))
	s.remove(second)
	s.remove(owner)
	s.unprepared(driver, claim, 1)
	s.claimsOnDisk(nil)
}

// TestClaimIsGivenBackWhenTheDriverIsBack deletes a pod whose driver does not take the claim back, and then goes. The containers end; the
// pod stays, and its claim is not forgotten, until the driver is back and takes it.
func TestClaimIsGivenBackWhenTheDriverIsBack(t *testing.T) {
	s := parallelSpace(t)
	driver := s.newDRADriver("only")
	claim := s.claimDevice(driver, "claim")
	pod := s.ready(podWithClaim("owner", "claim"))
	pid, err := node.ContainerPID(s.ctx, pod.Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	driver.refuse("not now")
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, pod.Name, metav1.DeleteOptions{}))
	s.unprepared(driver, claim, 1)
	s.must(gone(pid))
	driver.stop()
	s.claimsOnDisk(map[types.UID][]string{claim: {string(pod.UID)}})
	s.get(pod.Name)
	driver.refuse("")
	s.startDRADriver(driver)
	s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
	s.unprepared(driver, claim, 2)
	s.claimsOnDisk(nil)
}

// unprepared waits until the driver was told that often to take the claim back.
func (s *space) unprepared(driver *draDriver, claim types.UID, times int) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := driver.count(func() int { return driver.unprepared[string(claim)] }); got < times {
			return fmt.Errorf("the driver was told %d times to take the claim back, want %d", got, times)
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

// hasClaimed waits until the PodResources API says that the pod has that device by its claim.
func (s *space) hasClaimed(driver *draDriver, pod, device string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		for _, entry := range got.DynamicResources {
			resources := entry.ClaimResources
			if entry.ClaimNamespace == s.name && entry.ClaimName == "claim" && len(resources) == 1 && resources[0].DriverName == driver.name &&
				resources[0].DeviceName == device && len(resources[0].CdiDevices) == 1 {
				return nil
			}
		}
		return fmt.Errorf("%s has claimed %v, want %s", pod, got.DynamicResources, device)
	})
}

// claimsOnDisk waits until the kubelet's checkpoint has those claims, by their UIDs, for pods of those UIDs, and no others.
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
			pods := want[claim.ClaimUID]
			if len(pods) != len(claim.PodUIDs) || slices.ContainsFunc(pods, func(pod string) bool { _, has := claim.PodUIDs[pod]; return !has }) {
				return fmt.Errorf("the checkpoint has claim %s for the pods %v, want %v", claim.ClaimUID, claim.PodUIDs, pods)
			}
		}
		return nil
	})
}
