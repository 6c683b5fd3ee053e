//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// smallPods use some MiB more than they request, each.
	smallPods    = 30
	smallRequest = 1
	smallUse     = 6
	// leakHeadroom is how much memory, in MiB, is left above the threshold when the leak begins to grow. A leak of 1 MiB
	// per second uses it up in a minute: its growth is measured over up to 40 s, and in less it would count as slower.
	leakHeadroom = 60
	// leakDelay is the time before a fast leak begins to grow, so that the kubelet has statistics of it as of all other
	// pods. A slow one grows for long enough.
	leakDelay = 20 * time.Second
	slowLeak  = 1 // MiB per second
)

// TestOneLeakOneEviction runs a pod of higher priority that leaks memory beside thirty of lower priority that use a
// little more than they request. Only the leaking pod is evicted. Stock evicts the others first, one after the other,
// and the kernel kills the leaking one meanwhile. With PLIMSOLL_SOAK there is a slow leak too. PLIMSOLL_LEAK_ROUNDS
// repeats each rate, PLIMSOLL_LEAK_RATES has other rates: with stock nothing but the leaking pod is left after the
// first one.
func TestOneLeakOneEviction(t *testing.T) {
	rounds := numbersOf(t, "PLIMSOLL_LEAK_ROUNDS", 1)[0]
	usual := []int{20, 200}
	if soak() {
		usual = append(usual, slowLeak)
	}
	rates := numbersOf(t, "PLIMSOLL_LEAK_RATES", usual...)
	s := spaceForRestart(t)
	s.restartKubelet(shortTransition)
	s.noOtherPods()
	s.priorityClass("leaks", 1)
	var small []*v1.Pod
	for i := range smallPods {
		pod := kit.HogPod(fmt.Sprintf("small-%02d", i), "--limit="+strconv.Itoa(smallUse), "--start="+strconv.Itoa(smallUse))
		pod.Spec.Containers[0].Resources.Requests = kit.Mebibytes(smallRequest)
		small = append(small, s.create(pod))
	}
	for _, pod := range small {
		s.wait(pod, slowTimeout, kit.Ready)
	}
	before := s.fingerprint()
	for round := range rounds {
		for _, rate := range rates {
			t.Run(fmt.Sprintf("%d MiB per second, round %d", rate, round+1), func(t *testing.T) {
				in := *s
				in.t, in.ctx = t, t.Context()
				in.oneLeak(rate, before)
			})
		}
	}
}

// numbersOf returns the numbers, with commas between them, of an environment variable; those given if it is not set.
func numbersOf(t *testing.T, variable string, otherwise ...int) (numbers []int) {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q, want numbers from 1 on, with commas between them", variable, text)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// noOtherPods waits until the pods of earlier tests are gone. The leak is measured by what the pods use, and the
// scheduler would preempt the small pods for it while the node has no room.
func (s *space) noOtherPods() {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		namespaces, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range namespaces.Items {
			if namespaces.Items[i].Status.Phase == v1.NamespaceTerminating {
				return fmt.Errorf("namespace %s is still terminating", namespaces.Items[i].Name)
			}
		}
		return nil
	})
}

// oneLeak runs a leaking pod until it is evicted, and checks that no other pod is.
func (s *space) oneLeak(rate int, before map[string]string) {
	s.t.Helper()
	used, err := node.PodMemoryUsed()
	s.must(err)
	// The threshold is a quarter of the pods' memory.
	start := (node.PodMemory()*3/4-used)/mebibyte - leakHeadroom
	delay := leakDelay
	if rate == slowLeak {
		delay = 0
	}
	leak := kit.HogPod("leak", fmt.Sprintf("--start=%d", start), "--delay="+delay.String(),
		fmt.Sprintf("--rate=%d", rate), fmt.Sprintf("--limit=%d", 2*node.PodMemory()/mebibyte))
	leak.Spec.PriorityClassName = "leaks"
	leak.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
	log, err := kit.OpenKernelLog()
	s.must(err)
	defer func() { s.must(log.Close()) }()
	leak = s.create(leak)
	evicted := s.wait(leak, slowTimeout, endedFor("Evicted"))
	s.checkEvicted(evicted)
	s.expectKilledInside(evicted, log)
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, evicted.Name, metav1.DeleteOptions{}))
	s.must(kit.WaitGone(s.ctx, s.client, evicted, podTimeout))
	s.noPressure()
	s.must(s.sameAs(before))
}

// expectKilledInside fails the test if the kernel killed a process of the pod because a cgroup above it, or the node,
// was out of memory. The limit of the pod's own cgroup is its fence: the pod has none, so that a kill inside it comes
// after its eviction.
func (s *space) expectKilledInside(pod *v1.Pod, log *kit.KernelLog) {
	s.t.Helper()
	records, err := log.Records()
	s.must(err)
	uid := string(pod.UID)
	inPod := func(cgroup string) bool {
		// In the name of a slice of systemd the hyphens of the UID are underscores.
		return strings.Contains(strings.ReplaceAll(cgroup, "_", "-"), uid)
	}
	for _, record := range records {
		if kill, ok := kit.ParseOOMKill(record); ok && inPod(kill.Task) && !inPod(kill.Limited) {
			s.t.Errorf("the kernel killed the pod before it was evicted, for the limit of %q: %s", kill.Limited,
				kit.Describe(pod))
		}
	}
}
