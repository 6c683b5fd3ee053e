//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// modestPods use less memory than they request.
	modestPods = 8
	modestUse  = 24 // MiB
	// hostRoom is how much memory, in MiB, is available above the threshold when the process outside of the pods begins to
	// grow. It stops hostExcess below the threshold, far more than all pods use.
	hostRoom, hostExcess = 512, 3584
	// hostGrowth is the time, in seconds, in which the process would use up all memory of the node. It is less than the
	// killTime of slowKills.
	hostGrowth = 20
	// stockVictims is how many pods stock evicts before the process ends.
	stockVictims = 2
	// reportDelay is how late an eviction may be reported on a busy machine. Stock observes the node every 10 s, counted
	// from its start, so that its first eviction may be due at the same time as our second.
	reportDelay = 3 * time.Second
)

// TestGrowthOfTheHostEvictsNoFasterThanStock has a process outside of all pods use memory while all pods use less than
// they request. No eviction frees that memory. Stock evicts one pod after the other; in the same scenario, and for the
// same time, our kubelet is never more than one pod ahead of it.
func TestGrowthOfTheHostEvictsNoFasterThanStock(t *testing.T) {
	s := newSpace(t)
	s.noPressure()
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	own, stock := node.Kubelet(), node.Layout().Program(build.StockKubelet().Name)
	var pods []*v1.Pod
	for i := range modestPods {
		pods = append(pods, s.create(requestingMore(holding(fmt.Sprintf("modest-%d", i), modestUse))))
	}
	for _, pod := range pods {
		s.wait(pod, podTimeout, kit.Ready)
	}
	node.SetKubelet(stock)
	s.withPressureConfig(slowKills, s.thresholdBelowAvailable())
	t.Cleanup(func() { node.SetKubelet(own) })
	ofStock := s.growOnHost(func(_ time.Duration, victims int) bool { return victims >= stockVictims })
	threshold := s.thresholdBelowAvailable()
	s.must(node.StopKubelet(s.ctx))
	node.SetKubelet(own)
	s.must(node.StartKubelet(s.ctx, threshold))
	ours := s.growOnHost(func(passed time.Duration, _ int) bool { return passed > ofStock[stockVictims-1] })
	t.Logf("evictions after the process began to grow: by stock %v, by ours %v", ofStock, ours)
	for i, at := range ours {
		if byStock := upTo(ofStock, at+reportDelay); i > byStock {
			t.Errorf("after %v ours had evicted %d pods, stock %d: more than one ahead", at, i+1, byStock)
		}
	}
	if len(ours) == 0 {
		t.Errorf("ours evicted no pod in %v", ofStock[stockVictims-1])
	}
}

// upTo counts the times up to limit.
func upTo(times []time.Duration, limit time.Duration) int {
	count := 0
	for _, at := range times {
		if at <= limit {
			count++
		}
	}
	return count
}

// growOnHost starts the process outside of the pods, and ends it when done returns true. It returns the times of the
// evictions since the start of the process.
func (s *space) growOnHost(done func(passed time.Duration, victims int) bool) []time.Duration {
	s.t.Helper()
	node, err := kit.Node(s.ctx, s.client)
	s.must(err)
	rate := node.Status.Capacity.Memory().Value() / mebibyte / hostGrowth
	began := time.Now()
	evicted := s.watchEvictions(began)
	stop := s.startHog("--start=0", fmt.Sprintf("--rate=%d", rate), fmt.Sprintf("--limit=%d", hostRoom+hostExcess))
	s.eventually(podTimeout, func(context.Context) error {
		if passed, victims := time.Since(began), len(evicted()); !done(passed, victims) {
			return fmt.Errorf("%d pods were evicted in %v", victims, passed)
		}
		return nil
	})
	stop()
	return evicted()
}

// startHog starts the program that fills memory, outside of all pods. Function stop ends it.
func (s *space) startHog(args ...string) (stop func()) {
	s.t.Helper()
	hog := exec.Command(node.Layout().Program("hog"), args...)
	hog.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.must(hog.Start())
	stop = sync.OnceFunc(func() {
		_ = hog.Process.Kill()
		_ = hog.Wait()
	})
	s.t.Cleanup(stop)
	// If the machine has too little memory, the kernel kills this process first.
	s.must(os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", hog.Process.Pid), []byte(strconv.Itoa(1000)), 0o644))
	return stop
}

// watchEvictions watches which pods of the namespace are evicted from now on. Function evicted returns for each how
// long after since its status said so.
func (s *space) watchEvictions(since time.Time) (evicted func() []time.Duration) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	s.t.Cleanup(cancel)
	list, err := s.client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
	s.must(err)
	watcher, err := s.client.CoreV1().Pods(s.name).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	s.must(err)
	var (
		mu    sync.Mutex
		seen  = map[types.UID]bool{}
		times []time.Duration
	)
	for i := range list.Items {
		seen[list.Items[i].UID] = list.Items[i].Status.Reason == "Evicted"
	}
	go func() {
		for event := range watcher.ResultChan() {
			pod, ok := event.Object.(*v1.Pod)
			if !ok || pod.Status.Reason != "Evicted" {
				continue
			}
			mu.Lock()
			if !seen[pod.UID] {
				seen[pod.UID], times = true, append(times, time.Since(since))
			}
			mu.Unlock()
		}
	}()
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return append([]time.Duration(nil), times...)
	}
}

// thresholdBelowAvailable returns a function that sets the hard threshold of memory to what is available on the node
// now, less hostRoom. Nothing is reserved for the system, since the threshold alone leaves little memory to pods.
func (s *space) thresholdBelowAvailable() func(*kubeletv1beta1.KubeletConfiguration) {
	s.t.Helper()
	threshold := s.memoryAvailable() - hostRoom
	return func(config *kubeletv1beta1.KubeletConfiguration) {
		shortTransition(config)
		config.SystemReserved = nil
		config.EvictionHard["memory.available"] = fmt.Sprintf("%dMi", threshold)
	}
}

// memoryAvailable returns how much memory is available on the node, in MiB, counted as the kubelet does: what is
// neither anonymous memory nor page cache, and inactive page cache. It does not ask the kubelet, whose statistics may
// be some seconds old.
func (s *space) memoryAvailable() int64 {
	s.t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	s.must(err)
	kibibytes := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			kibibytes[strings.TrimSuffix(fields[0], ":")], err = strconv.ParseInt(fields[1], 10, 64)
			s.must(err)
		}
	}
	used := kibibytes["AnonPages"] + kibibytes["Cached"] + kibibytes["Buffers"] + kibibytes["SwapCached"]
	return (kibibytes["MemTotal"] - used + kibibytes["Inactive(file)"]) / 1024
}
