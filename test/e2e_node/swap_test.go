//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestStockAndBackWithPodsOfEveryKind starts pods of every kind under the stock kubelet, replaces it by ours, ours by
// stock, and stock by ours. No container is restarted, every pod is Ready all the time, pods keep their CPUs and
// devices, and a condition of another program on the Node is not changed.
func TestStockAndBackWithPodsOfEveryKind(t *testing.T) {
	s := spaceForRestart(t)
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	own, stock := node.Kubelet(), node.Layout().Program(build.StockKubelet().Name)
	s.withExclusiveCPUs()
	t.Cleanup(func() { node.SetKubelet(own) })
	plugin := s.startDevicePlugin("left", "right")
	s.swapFor(stock, plugin)
	s.setForeignCondition()

	s.startAllKinds()
	device, cpu := s.sh(s.get("device"), "echo $DEVICES"), s.cpusOf(s.get("exclusive-cpu"))
	before := s.fingerprint()
	if len(before) < 30 {
		t.Fatalf("only %d pods", len(before))
	}
	for _, kubelet := range []string{own, stock, own} {
		s.swapFor(kubelet, plugin)
		// After its start a kubelet, stock too, reports a pod with a startup probe as not ready until that has succeeded.
		s.eventually(podTimeout, func(context.Context) error { return s.sameAs(before) })
		s.stays(inSoak(15*time.Second, takeover), func() error { return s.sameAs(before) })
		s.hasDevice("device", device)
		s.expect("exclusive CPU", s.cpusOf(s.get("exclusive-cpu")), cpu)
		s.expect("CPU limit of the resized pod", s.sh(s.get("resized"), cpuLimit), "150m")
		s.must(s.foreignConditionStays(s.ctx))
	}
}

// swapFor replaces the kubelet by another one while pods run.
func (s *space) swapFor(kubelet string, plugin *devicePlugin) {
	s.t.Helper()
	s.must(node.StopKubelet(s.ctx))
	node.SetKubelet(kubelet)
	s.must(node.StartKubelet(s.ctx, exclusiveCPUs))
	s.must(plugin.register(s.ctx))
	s.allocatableDevices(2)
}

// foreign is a condition such as node-problem-detector sets on the Node.
var foreign = v1.NodeCondition{
	Type: "KernelDeadlock", Status: v1.ConditionFalse, Reason: "KernelHasNoDeadlock", Message: "kernel has no deadlock",
	LastHeartbeatTime: metav1.Unix(1_700_000_000, 0), LastTransitionTime: metav1.Unix(1_600_000_000, 0),
}

func (s *space) setForeignCondition() {
	s.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []v1.NodeCondition{foreign}}})
	s.must(err)
	_, err = s.client.CoreV1().Nodes().PatchStatus(s.ctx, cluster.NodeName, patch)
	s.must(err)
	s.t.Cleanup(func() {
		patch := []byte(`{"status":{"conditions":[{"type":"KernelDeadlock","$patch":"delete"}]}}`)
		_, err := s.client.CoreV1().Nodes().PatchStatus(context.Background(), cluster.NodeName, patch)
		if err != nil {
			s.t.Error(err)
		}
	})
}

func (s *space) foreignConditionStays(ctx context.Context) error {
	got, err := kit.Node(ctx, s.client)
	if err != nil {
		return err
	}
	now := kit.NodeCondition(got, foreign.Type)
	if now.Status != foreign.Status || now.Reason != foreign.Reason ||
		!now.LastTransitionTime.Equal(&foreign.LastTransitionTime) {
		return fmt.Errorf("the condition of another program is now %+v", now)
	}
	return nil
}

// startAllKinds creates the pods and waits until all are Ready.
func (s *space) startAllKinds() {
	s.t.Helper()
	s.configMap("settings", map[string]string{"one": "1", "two": "2"})
	s.secret("login", map[string]string{"password": "sesame"})
	s.writeManifest(kit.IdlePod("static"))
	static := podWithProbes("static-probed")
	s.writeManifest(static)
	var pods []*v1.Pod
	for _, pod := range s.allKinds() {
		pods = append(pods, s.create(pod))
	}
	for _, pod := range pods {
		s.wait(pod, slowTimeout, kit.Ready)
	}
	s.mirror("static", kit.Ready)
	s.mirror("static-probed", kit.Ready)
	s.resize()
}

// cpuLimit is a script that prints the CPU limit of the cgroup of its container, in millicores.
const cpuLimit = `cd /sys/fs/cgroup
if [ -e cpu.max ]; then read q p < cpu.max
else q=$(cat cpu/cpu.cfs_quota_us); p=$(cat cpu/cpu.cfs_period_us); fi; echo $((q*1000/p))m`

// resize increases the CPU of the pod called resized in place.
func (s *space) resize() {
	s.t.Helper()
	s.kubectl("patch", "pod", "resized", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"20m"},"limits":{"cpu":"150m"}}}]}}`)
	s.wait(s.get("resized"), podTimeout, func(pod *v1.Pod) error {
		resources := pod.Status.ContainerStatuses[0].Resources
		if resources == nil || resources.Limits.Cpu().String() != "150m" {
			return errors.New("not resized: " + kit.Describe(pod))
		}
		return kit.Ready(pod)
	})
}
