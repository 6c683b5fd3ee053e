package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const mebibyte = 1 << 20

// neighbour is a pod that must survive, with its process before the pressure.
type neighbour struct {
	pod *v1.Pod
	pid int
}

func (d *Demo) describeNode(ctx context.Context) error {
	node, err := kit.Node(ctx, d.client)
	if err != nil {
		return err
	}
	d.title("The node")
	d.say("%s runs kubelet %s on %s", node.Name, node.Status.NodeInfo.KubeletVersion,
		node.Status.NodeInfo.ContainerRuntimeVersion)
	d.say("all pods together may use %d MiB; the kubelet evicts when less than a quarter of that is left",
		d.cluster.PodMemory()/mebibyte)
	if err := kit.MemoryPressure(ctx, d.client, false); err != nil {
		return fmt.Errorf("the demonstration begins without pressure: %w", err)
	}
	d.say("MemoryPressure is False")
	return nil
}

// startNeighbours starts a pod of each quality of service.
func (d *Demo) startNeighbours(ctx context.Context) ([]neighbour, error) {
	d.title("Three neighbours, one of each quality of service")
	guaranteed, burstable, bestEffort := kit.IdlePod("guaranteed"), kit.IdlePod("burstable"), kit.IdlePod("besteffort")
	guaranteed.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: kit.Resources("50m", "64Mi"), Limits: kit.Resources("50m", "64Mi"),
	}
	burstable.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: kit.Memory("64Mi")}
	var neighbours []neighbour
	for _, pod := range []*v1.Pod{guaranteed, burstable, bestEffort} {
		created, err := d.create(ctx, pod)
		if err != nil {
			return nil, err
		}
		running, err := kit.WaitPod(ctx, d.client, created, podTimeout, kit.Ready)
		if err != nil {
			return nil, err
		}
		pid, err := d.cluster.ContainerPID(ctx, running.Status.ContainerStatuses[0].ContainerID)
		if err != nil {
			return nil, err
		}
		d.say("%-10s is Ready (%s), process %d", running.Name, running.Status.QOSClass, pid)
		neighbours = append(neighbours, neighbour{pod: running, pid: pid})
	}
	return neighbours, nil
}

// growHog starts a pod that leaks memory and waits until it is evicted.
func (d *Demo) growHog(ctx context.Context) error {
	limit := d.cluster.PodMemory() / mebibyte
	d.title("A hog that leaks 25 MiB per second and would never stop by itself")
	hog := kit.HogPod("hog", "--start=200", "--rate=25", "--limit="+strconv.FormatInt(2*limit, 10))
	hog.Spec.Containers[0].Resources.Requests = kit.Memory("32Mi")
	created, err := d.create(ctx, hog)
	if err != nil {
		return err
	}
	if _, err := kit.WaitPod(ctx, d.client, created, podTimeout, kit.InPhase(v1.PodRunning)); err != nil {
		return err
	}
	d.say("hog runs")
	stop := d.reportMemory(ctx)
	ended, err := kit.WaitPod(ctx, d.client, created, pressureTimeout, func(pod *v1.Pod) error {
		if pod.Status.Phase == v1.PodFailed {
			return nil
		}
		return kit.IfEnded(pod, errors.New("the hog is still there: "+kit.Describe(pod)))
	})
	stop()
	if err != nil {
		return err
	}
	if ended.Status.Reason != "Evicted" {
		return fmt.Errorf("the hog ended for another reason than eviction: %s", kit.Describe(ended))
	}
	d.say("hog is %s, reason %s", ended.Status.Phase, ended.Status.Reason)
	d.say("  %s", ended.Status.Message)
	return nil
}

// checkNeighbours checks that no neighbour was restarted.
func (d *Demo) checkNeighbours(ctx context.Context, neighbours []neighbour) error {
	d.title("The neighbours")
	for _, before := range neighbours {
		pod, err := d.client.CoreV1().Pods(namespace).Get(ctx, before.pod.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("look at neighbour: %w", err)
		}
		if err := kit.Ready(pod); err != nil {
			return fmt.Errorf("neighbour %s: %w", pod.Name, err)
		}
		status := pod.Status.ContainerStatuses[0]
		pid, err := d.cluster.ContainerPID(ctx, status.ContainerID)
		if err != nil {
			return err
		}
		if pid != before.pid || status.RestartCount != 0 {
			return fmt.Errorf("neighbour %s was restarted: process %d before, %d now: %s", pod.Name, before.pid, pid,
				kit.Describe(pod))
		}
		d.say("%-10s is Ready, still process %d, %d restarts", pod.Name, pid, status.RestartCount)
	}
	return nil
}

func (d *Demo) checkPressure(ctx context.Context) error {
	d.title("The node says so")
	err := kit.Poll(ctx, time.Minute, func(ctx context.Context) error { return kit.MemoryPressure(ctx, d.client, true) })
	if err != nil {
		return err
	}
	d.say("condition MemoryPressure is True")
	d.say("taint %s keeps the scheduler away", v1.TaintNodeMemoryPressure)
	return nil
}

// checkRejection creates a pod that is bound to the node, since the scheduler would respect the taint.
func (d *Demo) checkRejection(ctx context.Context) error {
	d.title("A BestEffort pod that is bound to the node directly")
	late, err := d.create(ctx, kit.Bound(kit.IdlePod("late")))
	if err != nil {
		return err
	}
	rejected, err := kit.WaitPod(ctx, d.client, late, podTimeout, kit.InPhase(v1.PodFailed))
	if err != nil {
		return err
	}
	if rejected.Status.Reason != "Evicted" ||
		len(rejected.Status.ContainerStatuses) > 0 && rejected.Status.ContainerStatuses[0].ContainerID != "" {
		return fmt.Errorf("the pod was to be rejected before it started: %s", kit.Describe(rejected))
	}
	d.say("late is %s, reason %s, and never started", rejected.Status.Phase, rejected.Status.Reason)
	d.say("  %s", rejected.Status.Message)
	return nil
}

// checkClearing waits for the end of the pressure.
func (d *Demo) checkClearing(ctx context.Context) error {
	d.title("After the transition period (30 s without pressure)")
	err := kit.Poll(ctx, clearTimeout, func(ctx context.Context) error { return kit.MemoryPressure(ctx, d.client, false) })
	if err != nil {
		return err
	}
	d.say("MemoryPressure is False, the taint is gone")
	welcome, err := d.create(ctx, kit.Bound(kit.IdlePod("welcome")))
	if err != nil {
		return err
	}
	if _, err := kit.WaitPod(ctx, d.client, welcome, podTimeout, kit.Ready); err != nil {
		return err
	}
	d.say("a BestEffort pod is admitted again, and Ready")
	return nil
}

// reportMemory prints every few seconds how much memory is available, until it is stopped.
func (d *Demo) reportMemory(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(reportInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if used, err := d.cluster.PodMemoryUsed(); err == nil {
					d.say("pods use %4d of %d MiB", used/mebibyte, d.cluster.PodMemory()/mebibyte)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
