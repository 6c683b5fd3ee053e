package plugins

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rssoveruse"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/sources"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// recordedNode is what a node has in a round of a situation. It has a shared and a reclaimed pod.
type recordedNode struct {
	*facts
	// files is the directory with the files of the node.
	files  string
	memory systemmemory.Node
	stalls map[types.UID]float64
	cpu    cpupressure.Node
	used   map[types.UID]time.Duration
	// free is how much of 100 GiB is free, layers what pods' writable layers use.
	free   int64
	layers map[types.UID]snapshot.Bytes
	ending []snapshot.InFlight
	pods   []*v1.Pod
}

func (n *recordedNode) Zones() ([]numamemory.Zone, error) {
	return sources.NewZoneinfo("sources/testdata/" + n.files + "/zoneinfo" + zoneinfoEnding[n.files]).Zones()
}

// zoneinfoEnding is the ending of the names of files that are not recorded but composed.
var zoneinfoEnding = map[string]string{"composed": "-5.15-2-nodes"}

func (n *recordedNode) ByNode(pods []*v1.Pod) (map[types.UID]map[int]int64, error) {
	list := map[types.UID]map[int]int64{}
	for _, pod := range pods {
		list[pod.UID] = map[int]int64{0: 1 << 30, 1: 1 << 30}
	}
	return list, nil
}

func (n *recordedNode) Usage(pods []*v1.Pod) (map[types.UID]int64, error) {
	list := map[types.UID]int64{}
	for _, pod := range pods {
		list[pod.UID] = 1 << 30
	}
	return list, nil
}

func (n *recordedNode) Stalls([]*v1.Pod) (map[types.UID]float64, error) { return n.stalls, nil }

func (n *recordedNode) Node() (systemmemory.Node, error) { return n.memory, nil }

// recordedCPU are the CPUs of the node.
type recordedCPU struct{ *recordedNode }

func (c recordedCPU) Node() (cpupressure.Node, error) { return c.cpu, nil }

func (c recordedCPU) Used([]*v1.Pod) (map[types.UID]time.Duration, error) {
	return maps.Clone(c.used), nil
}

// situation is what both are asked about.
type situation struct {
	plugin string
	// rounds are five seconds apart. play changes the node before each, from 1 on.
	rounds int
	play   func(n *recordedNode, round int)
	// katalyst and here are the answers in the last round: how, and the pods, the best first. Undocumented stands for an
	// answer that Katalyst's documentation does not give.
	katalyst, here string
	// meant is the row of docs/katalyst.md about the difference, if they differ.
	meant string
}

const undocumented = "undocumented"

func situations() map[string]situation {
	const gi = 1 << 30
	allocatable := func(milliCPU string) func(*recordedNode, int) {
		return func(n *recordedNode, _ int) {
			n.node.Status.Allocatable = v1.ResourceList{reclaimedresource.MilliCPU: resource.MustParse(milliCPU)}
		}
	}
	resident := func(mebibytes int64, annotation string) func(*recordedNode, int) {
		return func(n *recordedNode, _ int) {
			n.resident = map[types.UID]int64{"shared": mebibytes << 20, "reclaimed": 0}
			if annotation != "" {
				n.pods[0].Annotations[rssoveruse.EnhancementKey] = `{"rss_overuse_threshold":"` + annotation + `"}`
			}
		}
	}
	recorded := func(n *recordedNode, _ int) { n.files = "host-6.18" }
	full := func(n *recordedNode, _ int) { n.files = "composed" }
	low := func(rounds int) func(*recordedNode, int) {
		return func(n *recordedNode, round int) {
			n.files = "host-6.18" // 7.43 GiB are free, more than the threshold of 4 GiB
			n.settings.NUMAMemoryPressure.MinInactiveFile = new(resource.MustParse("8Gi"))
			if round > rounds {
				n.settings.NUMAMemoryPressure.MinInactiveFile = new(resource.MustParse("4Gi"))
			}
		}
	}
	free := func(bytes int64) func(*recordedNode, int) {
		return func(n *recordedNode, _ int) { n.memory.Free = new(bytes) }
	}
	stalled := func(pods map[types.UID]float64) func(*recordedNode, int) {
		return func(n *recordedNode, _ int) { n.memory.Stall, n.stalls = new(15.0), pods }
	}
	threePods := map[types.UID]float64{"shared": 4, "reclaimed": 4, "other": 4}
	disk := func(bytes int64, ending ...snapshot.InFlight) func(*recordedNode, int) {
		return func(n *recordedNode, _ int) { n.free, n.ending = bytes, ending }
	}
	return map[string]situation{
		"requests at 5 times what is allocatable": {reclaimedresource.Name, 1, allocatable("1000"), "", "", ""},
		"requests above 5 times what is allocatable": {reclaimedresource.Name, 1, allocatable("999"),
			"hard reclaimed 60s", "hard reclaimed 60s", ""},
		"nothing is allocatable": {reclaimedresource.Name, 1, allocatable("0"),
			"hard reclaimed 60s", "hard reclaimed 60s", ""},
		"what is allocatable is unknown": {reclaimedresource.Name, 1, func(*recordedNode, int) {},
			"", "", ""},
		"requests above, of a pod that is being stopped": {reclaimedresource.Name, 1, func(n *recordedNode, round int) {
			allocatable("999")(n, round)
			n.ending = []snapshot.InFlight{{UID: "reclaimed"}}
		}, "hard reclaimed 60s", "", "the pods that request too much are being stopped already"},

		"resident set at 1.05 times the request": {rssoveruse.Name, 1, resident(105, ""), "", "", ""},
		"resident set above 1.05 times the request": {rssoveruse.Name, 1, resident(106,
			""), "soft shared", "soft shared", ""},
		"annotation allows more": {rssoveruse.Name, 1, resident(149, "1.5"), "", "", ""},
		"more than the annotation allows": {rssoveruse.Name, 1, resident(151, "1.5"),
			"soft shared", "soft shared", ""},
		"annotation is broken": {rssoveruse.Name, 1, resident(999, "many"),
			undocumented, "", "annotation that cannot be parsed"},
		"container without request": {rssoveruse.Name, 1, func(n *recordedNode, round int) {
			resident(999, "")(n, round)
			n.pods[0].Spec.Containers = append(n.pods[0].Spec.Containers, v1.Container{Name: "other"})
		}, "", "", ""},

		"NUMA node of the recorded host": {numamemory.Name, 20, recorded, "", "", ""},
		"NUMA node is full": {numamemory.Name, 1, full, "hard reclaimed shared", "hard reclaimed",
			"NUMA node with free memory below min + 1 GiB"},
		"NUMA node is full, next round": {numamemory.Name, 2, full,
			"hard reclaimed shared", "hard reclaimed shared", ""},
		"NUMA node is low for 6 rounds": {numamemory.Name, 6, low(99), "", "", ""},
		"NUMA node is low for 7 rounds": {numamemory.Name, 7, low(99), "hard reclaimed", "hard reclaimed", ""},
		"NUMA node is low for 12 rounds": {numamemory.Name, 12, low(99),
			"hard reclaimed shared", "hard reclaimed shared", ""},
		"NUMA node was low for 12 rounds": {numamemory.Name, 13, low(12),
			"hard reclaimed", "", "NUMA node with free memory below low + 256 MiB"},

		"memory of the recorded host": {systemmemory.Name, 20, func(*recordedNode, int) {}, "", "", ""},
		"free memory at a thousandth": {systemmemory.Name, 1, free(24 << 20), "", "", ""},
		"free memory below a thousandth": {systemmemory.Name, 1, free(24<<20 - 1),
			"hard reclaimed", "hard reclaimed", ""},
		"stalls with cgroup v2 for 10 s": {systemmemory.Name, 3, stalled(threePods), "", "", ""},
		"stalls with cgroup v2 for 15 s": {systemmemory.Name, 4, stalled(threePods),
			"hard reclaimed", "hard reclaimed", ""},
		"stalls with cgroup v2 for 45 s": {systemmemory.Name, 10, stalled(threePods),
			"hard reclaimed shared", "hard reclaimed shared", ""},
		"stalls with cgroup v2, of a single pod": {systemmemory.Name, 10, stalled(map[types.UID]float64{"shared": 90}),
			"", "", ""},
		"stalls with cgroup v1 for 15 s": {systemmemory.Name, 4, stalled(nil),
			"", "hard reclaimed", "PSI some avg10 ≥ 15 and the mean of pods ≥ 4 for 15 s, for 45 s"},
		"kswapd reclaims 2000 pages/s for 2 min": {systemmemory.Name, 26, kswapd(2000),
			"", "hard reclaimed", "kswapd reclaims 2,000 pages per second for 2 min"},
		"kswapd reclaims 1999 pages/s for 10 min": {systemmemory.Name, 120, kswapd(1999), "", "", ""},

		"disk at the threshold": {v1alpha1.RootfsPressurePlugin, 1, disk(10 * gi), "", "", ""},
		"disk below the threshold": {v1alpha1.RootfsPressurePlugin, 1, disk(9 * gi),
			"soft reclaimed", "soft reclaimed", ""},
		"disk below the threshold, a pod is being stopped": {v1alpha1.RootfsPressurePlugin, 1,
			disk(9*gi, snapshot.InFlight{UID: "reclaimed"}), "soft shared", "",
			"free space or inodes of the image file system below a threshold"},
		"layers at the threshold": {v1alpha1.RootfsOverusePlugin, 1, disk(50 * gi), "", "", ""},
		"layers above the threshold": {v1alpha1.RootfsOverusePlugin, 1, func(n *recordedNode, _ int) {
			n.layers["shared"]++
		}, "soft shared", "soft shared", ""},

		"CPUs are short for 1 min": {cpupressure.Name, 14, func(n *recordedNode, round int) {
			n.cpu = cpupressure.Node{Stall: new(90.0), Idle: new(int64(0)), Total: new(int64(round)), CPUs: 2}
			n.used = map[types.UID]time.Duration{"shared": time.Duration(round) * time.Second,
				"reclaimed": time.Duration(round) * time.Second}
		}, "", "soft reclaimed", "CPUs are short"},
	}
}

// kswapd reclaims that many pages per second.
func kswapd(rate int64) func(*recordedNode, int) {
	return func(n *recordedNode, round int) { n.memory.Stolen = new(5 * rate * int64(round)) }
}

func newRecordedNode() *recordedNode {
	n := &recordedNode{facts: newFacts(), files: "host-6.18", stalls: map[types.UID]float64{}, free: 50 << 30,
		layers: map[types.UID]snapshot.Bytes{"shared": 10 << 30, "reclaimed": 10 << 30},
		memory: systemmemory.Node{Free: new(int64(13 << 30)), Total: new(int64(24_000 << 20)), ScaleFactor: new(int64(10)),
			Stolen: new(int64(0)), Stall: new(0.0)}}
	n.settings.MonitoringPeriod = 10 * time.Second
	n.settings.RootfsPressure.Free, n.settings.RootfsOveruse.SharedUsed = "10Gi", "10Gi"
	for _, name := range []string{"shared", "reclaimed"} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{
			arbiter.QoSLevelKey: name + "_cores"}}}
		pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}}}}
		n.pods = append(n.pods, pod)
	}
	n.pods[1].Spec.Containers[0].Resources.Requests[reclaimedresource.MilliCPU] = resource.MustParse("5000")
	return n
}

// view is what plugins are shown in a round.
func (n *recordedNode) view(at time.Time) *plugin.View {
	s := &snapshot.Snapshot{Taken: at, Signals: snapshot.Unobserved(), Layout: snapshot.Layout{Known: true},
		InFlight: n.ending}
	s.Signals[snapshot.NodeFsAvailable] = snapshot.Observation{Available: n.free, Capacity: 100 << 30}
	for _, pod := range n.pods {
		layer := snapshot.FsUsage{Bytes: n.layers[pod.UID], Inodes: snapshot.Unknown}
		s.Pods = append(s.Pods, snapshot.Pod{Facts: snapshot.NewFacts(pod, true),
			Usage: &snapshot.Usage{Containers: []snapshot.ContainerUsage{{Name: "c", WritableLayer: layer}}}})
	}
	return &plugin.View{Taken: at, Pods: n.pods, Node: &eviction.Round{Snapshot: s, AllPods: true}}
}

// answerOf returns the answer of a plugin in one round, as the fields of a situation have it.
func answerOf(t *testing.T, p plugin.Plugin, v *plugin.View) string {
	t.Helper()
	ctx := context.Background()
	demand, err := p.EvictPods(ctx, v)
	if err != nil {
		t.Fatal(err)
	}
	threshold, err := p.ThresholdMet(ctx, v)
	if err != nil {
		t.Fatal(err)
	}
	words := []string{}
	if threshold.Kind == arbiter.Hard {
		reply, err := p.TopEvictionPods(ctx, v, arbiter.Question{Scope: threshold.Scope, Kind: arbiter.Hard})
		if err != nil {
			t.Fatal(err)
		}
		words = append(words, "hard")
		for _, uid := range reply.Pods {
			words = append(words, string(uid))
		}
		if reply.GraceSeconds != nil {
			words = append(words, fmt.Sprintf("%ds", *reply.GraceSeconds))
		}
	}
	for _, d := range demand.Pods {
		words = append(words, "soft", string(d.UID))
	}
	return strings.Join(words, " ")
}

// TestBesideKatalyst has situations, the answers that Katalyst's documentation gives, and ours. Where they differ,
// docs/katalyst.md says so; and each difference there that is meant has a situation.
func TestBesideKatalyst(t *testing.T) {
	rows := documentedRows(t)
	played := map[string]bool{}
	for name, tc := range situations() {
		t.Run(name, func(t *testing.T) {
			n := newRecordedNode()
			config := n.config()
			config.Zones, config.NUMAMemory, config.NodeMemory, config.PodMemory, config.CPU = n, n, n, n, recordedCPU{n}
			set, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			start, got := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), ""
			for round := 1; round <= tc.rounds; round++ {
				tc.play(n, round)
				p := set.plugins[tc.plugin].(*rulePlugin)
				p.proposed = nil // No pod is evicted, so no cool-down begins.
				got = answerOf(t, p, n.view(start.Add(time.Duration(round)*n.settings.Period)))
			}
			if got != tc.here {
				t.Errorf("%q, want %q", got, tc.here)
			}
			if (tc.katalyst == tc.here) != (tc.meant == "") {
				t.Errorf("Katalyst %q, here %q: %q", tc.katalyst, tc.here, tc.meant)
			}
			if meant, ok := rows[tc.meant]; tc.meant != "" && (!ok || !meant && tc.katalyst != undocumented) {
				t.Errorf("docs/katalyst.md has no row %q with a meant difference", tc.meant)
			}
			played[tc.meant] = true
		})
	}
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		if rows[row] && !played[row] {
			t.Errorf("the difference %q of docs/katalyst.md has no situation", row)
		}
	}
}

// documentedRows returns the situations in docs/katalyst.md, with whether the row says that the difference is meant.
func documentedRows(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("../../../../docs/katalyst.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## Plugins in the tree\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) > 4 {
			rows[strings.TrimSpace(cells[1])] = strings.Contains(line, "**meant difference**")
		}
	}
	if len(rows) < 10 {
		t.Fatalf("rows %v", rows)
	}
	return rows
}
