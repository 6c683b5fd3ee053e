//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// inTreeConfig enables a plugin in the agent, with settings. Soft victims are evicted by the pod workers, so that
	// their status stays.
	inTreeConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
monitoringPeriod: %s
plugins:
  eviction:
    inTree: [%s]
    period: %s
    softKiller: PodWorker
    settings: {%s}
`
	// shortOnNode0 has NUMA node 0 short of memory for reclaimed pods after two rounds, whatever is free there. Pods that
	// use less than a share of its memory do not count.
	shortOnNode0 = "numa-memory-pressure-eviction-plugin: " +
		"{criticalGap: 0, lowGap: 1Ti, reclaimedRounds: 1, allRounds: 1000, podPermille: %d}"
	// stalledTasks has reclaimed pods evicted when tasks have been stalled for the default share of time for 5 s.
	stalledTasks = "system-memory-pressure-eviction-plugin: {reclaimedAfter: 5s, allAfter: 1h}"
	// reclaimedMilliCPU is the resource that the test publishes on the Node.
	reclaimedMilliCPU = "resource.katalyst.kubewharf.io/reclaimed_millicpu"
	// inTreePeriod is the time between two rounds of plugins, inTreeMonitoring that between two rounds of the eviction
	// manager.
	inTreePeriod, inTreeMonitoring = time.Second, 2 * time.Second
	// layersPeriod is how often the container runtime measures writable layers.
	layersPeriod = 10 * time.Second
	// eventDelay is how long it may take until the test sees the event of an eviction: it is sent to the API server, which
	// the test asks again and again.
	eventDelay = 2 * time.Second
	// inTreeTime is within which time a plugin has a pod evicted that exceeds its threshold: in two rounds. One that uses
	// what pods use of disks has that from the last round of the eviction manager, which has it from the container
	// runtime (inTreeDiskTime).
	inTreeTime     = 2*inTreePeriod + eventDelay
	inTreeDiskTime = inTreeTime + 2*inTreeMonitoring + layersPeriod
)

// inTreeCase is a plugin with pods, one of which exceeds its threshold.
type inTreeCase struct {
	plugin, settings string
	// play returns the pod to be evicted, and from when on the plugin may evict it.
	play   func(*space) (victim *v1.Pod, since time.Time)
	reason string
	// within is how long the eviction may take.
	within time.Duration
}

// TestEvictionPluginsInTheAgent has pods that exceed the threshold of one plugin each, beside pods that do not. Only
// the former are evicted, for the reason of that plugin. PLIMSOLL_PLUGIN_ROUNDS repeats it. In soak a pod also thrashes
// at its limit of memory, and plugins act beside the signals of the node.
func TestEvictionPluginsInTheAgent(t *testing.T) {
	rounds, _ := pluginRounds(t)
	s := spaceForRestart(t)
	cases := []inTreeCase{
		{"rss-overuse-eviction-plugin", "", (*space).overuseOfMemory, "resident set", inTreeTime},
		{"reclaimed-resource-pressure-eviction-plugin", "", (*space).shrinkingResources, reclaimedMilliCPU, inTreeTime},
		{"numa-memory-pressure-eviction-plugin", s.shortOnNode0(), (*space).largeAndSmall, `(scope "memory")`, inTreeTime},
	}
	if soak() {
		cases = append(cases, inTreeCase{"system-memory-pressure-eviction-plugin", stalledTasks, (*space).thrashing,
			`(scope "memory")`, inTreeTime})
	}
	s.noOtherPods()
	s.withPressureConfig(pressureHeader, nil)
	for round := range rounds {
		for _, tc := range cases {
			t.Run(fmt.Sprintf("%s %d", tc.plugin, round+1), func(t *testing.T) { s.in(t).evictedByPlugin(tc) })
		}
		for _, all := range []bool{false, true} {
			if name := fmt.Sprintf("%d-all-%t", round+1, all); soak() {
				t.Run("beside signals "+name, func(t *testing.T) { s.in(t).besideSignals(name, all) })
			}
		}
	}
}

// evictedByPlugin runs a case: its victim is evicted once, and no other pod is.
func (s *space) evictedByPlugin(tc inTreeCase) {
	s.t.Helper()
	if tc.plugin != "" {
		s.enable(tc.plugin, tc.settings)
	}
	victim, since := tc.play(s)
	s.eventually(pluginTimeout, func(context.Context) error { return s.hasOneEviction(victim, tc.reason) })
	s.took("eviction", time.Since(since), tc.within)
	ended := s.wait(victim, podTimeout, endedFor("Evicted"))
	for _, pod := range s.pods() {
		if pod.Name != victim.Name && (pod.Status.Phase != v1.PodRunning || pod.DeletionTimestamp != nil) {
			s.t.Errorf("%s: %s %s", pod.Name, pod.Status.Reason, pod.Status.Message)
		}
	}
	if ended.DeletionTimestamp != nil || ended.Status.Phase != v1.PodFailed {
		s.t.Errorf("%s: deleted at %v, %s", ended.Name, ended.DeletionTimestamp, kit.Describe(ended))
	}
	if tc.plugin != "" {
		s.enable("", "") // No plugin takes the pods of the next case before they are all there.
	}
	for _, pod := range s.pods() {
		s.remove(&pod)
	}
}

// hasOneEviction returns an error unless the pod has one event about its eviction, with a text. Pods of earlier rounds
// had the same name.
func (s *space) hasOneEviction(pod *v1.Pod, text string) error {
	times, err := s.countEvents(s.name, "Evicted", func(e *v1.Event) bool {
		return e.InvolvedObject.UID == pod.UID && strings.Contains(e.Message, text)
	})
	if err == nil && times != 1 {
		err = fmt.Errorf("%d events about the eviction of %s contain %q, want one", times, pod.Name, text)
	}
	return err
}

// enable enables a plugin in the agent, or none for "", and waits until that is in force.
func (s *space) enable(plugin, settings string) {
	s.t.Helper()
	text := fmt.Sprintf(inTreeConfig, inTreeMonitoring, plugin, inTreePeriod, settings)
	s.writePressureConfig(text)
	s.inForce(text)
}

// reclaimed makes a pod a reclaimed one.
func reclaimed(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores}
	return pod
}

// overuseOfMemory has a steady pod within its request, one above it whose annotation allows that, and one that grows
// beyond its request.
func (s *space) overuseOfMemory() (*v1.Pod, time.Time) {
	s.t.Helper()
	hog := func(name string, args ...string) *v1.Pod {
		pod := kit.HogPod(name, args...)
		pod.Spec.Containers[0].Resources.Requests = kit.Mebibytes(64)
		return pod
	}
	s.ready(hog("steady", "--start=40", "--limit=40"))
	allowed := hog("allowed", "--start=100", "--limit=100")
	allowed.Annotations = map[string]string{"katalyst.kubewharf.io/memory_enhancement": `{"rss_overuse_threshold":"3"}`}
	s.ready(allowed)
	grows := s.ready(hog("grows", "--start=20", "--rate=10", "--limit=200"))
	// It has grown by 47.2 MiB after less than 5 s.
	return grows, time.Now().Add(5 * time.Second)
}

// shrinkingResources has two reclaimed pods and a shared one, and patches down what is allocatable of reclaimed CPUs.
func (s *space) shrinkingResources() (*v1.Pod, time.Time) {
	s.t.Helper()
	s.publish(`"10000"`)
	s.t.Cleanup(func() { s.publish("null") })
	pod := func(name, amount string) *v1.Pod {
		p := reclaimed(kit.Bound(kit.IdlePod(name)))
		list := v1.ResourceList{reclaimedMilliCPU: resource.MustParse(amount)}
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		return p
	}
	s.ready(pod("less", "2000"))
	most := s.ready(pod("most", "3000"))
	s.ready(kit.Bound(kit.IdlePod("shared")))
	s.publish(`"999"`)
	return most, time.Now()
}

// publish sets what the Node has of reclaimed CPUs.
func (s *space) publish(amount string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{"capacity":{%[1]q:%[2]s},"allocatable":{%[1]q:%[2]s}}}`, reclaimedMilliCPU, amount)
	n, err := kit.Node(context.Background(), s.client)
	s.must(err)
	_, err = s.client.CoreV1().Nodes().Patch(context.Background(), n.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, "status")
	s.must(err)
}

// shortOnNode0 returns these settings with a share between the use of an idle pod and that of the large one.
func (s *space) shortOnNode0() string {
	s.t.Helper()
	object, err := s.client.CoreV1().Nodes().Get(s.ctx, cluster.NodeName, metav1.GetOptions{})
	s.must(err)
	return fmt.Sprintf(shortOnNode0, 1+40*mebibyte*1000/object.Status.Capacity.Memory().Value())
}

// largeAndSmall has a reclaimed pod that has less memory than counts, a shared one that has much, and a reclaimed one
// that has enough to be evicted.
func (s *space) largeAndSmall() (*v1.Pod, time.Time) {
	s.t.Helper()
	s.ready(reclaimed(kit.Bound(kit.IdlePod("small"))))
	s.ready(kit.Bound(holding("shared", 160)))
	return s.ready(reclaimed(kit.Bound(holding("large", 80)))), time.Now()
}

// thrashing has idle pods, and a reclaimed one that reads a file which is larger than its limit of memory, again and
// again.
func (s *space) thrashing() (*v1.Pod, time.Time) {
	s.t.Helper()
	s.ready(reclaimed(kit.Bound(kit.IdlePod("calm"))))
	s.ready(kit.Bound(holding("shared", 160)))
	pod := reclaimed(kit.Bound(kit.IdlePodThat("thrashes", "dd if=/dev/zero of=/file bs=1M count=256\n"+
		"for i in 1 2 3 4; do (while true; do cat /file > /dev/null; done) & done\n")))
	pod.Spec.Containers[0].Resources.Limits = kit.Mebibytes(32)
	pod = s.ready(pod)
	// The average over ten seconds rises slowly.
	return pod, time.Now().Add(30 * time.Second)
}

// besideSignals has a pod that crosses the node's threshold and also exceeds what rss-overuse allows, one that only
// does the latter, and others, with all plugins or with none. The first pod is evicted either way, the second for its
// plugin only; each is evicted once, and no other pod is.
func (s *space) besideSignals(round string, all bool) {
	s.t.Helper()
	hog, over := "hog-"+round, "over-"+round
	plugins, want := "", []string{hog}
	if all {
		plugins, want = `"*"`, []string{hog, over}
	}
	s.enable(plugins, "")
	for _, name := range []string{"small-1", "small-2"} {
		s.ready(kit.Bound(requestingMore(holding(name, 40))))
	}
	s.create(kit.Bound(holding(over, 80)))
	used, err := node.PodMemoryUsed()
	s.must(err)
	s.create(kit.Bound(holding(hog, (node.PodMemory()*3/4-used)/mebibyte+100)))
	ended := func() error {
		if got := s.endedPods(); !slices.Equal(got, want) {
			return fmt.Errorf("ended: %q, want %q", got, want)
		}
		return nil
	}
	s.eventually(podTimeout, func(context.Context) error { return ended() })
	s.stays(10*time.Second, ended)
	for _, name := range want {
		// One that its plugin has evicted may be stopped sooner for the threshold: that is no other eviction.
		times, err := s.countEvents(s.name, "Evicted", func(e *v1.Event) bool { return e.InvolvedObject.Name == name })
		s.must(err)
		if pod := s.get(name); times != 1 || pod.Status.Reason != "Evicted" {
			s.t.Errorf("%d events; %s", times, kit.Describe(pod))
		}
	}
	s.enable("", "")
	for _, pod := range s.pods() {
		s.remove(&pod)
	}
	s.eventually(podTimeout, func(ctx context.Context) error { return kit.MemoryPressure(ctx, s.client, false) })
}

// endedPods are the names of the pods that have failed or are deleted, sorted.
func (s *space) endedPods() (names []string) {
	s.t.Helper()
	for _, pod := range s.pods() {
		if pod.Status.Phase == v1.PodFailed || pod.DeletionTimestamp != nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}
