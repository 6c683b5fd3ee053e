package eviction

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// eventually repeats a scenario in which stock depends on the order of a map; it tells whether stock has ever shown the
// defect.
func eventually(t *testing.T, scenario func() bool) {
	t.Helper()
	for range 300 {
		if scenario() || t.Failed() {
			return
		}
	}
	t.Error("stock does not show the defect any more")
}

func TestD1BesideStock(t *testing.T) {
	eventually(t, func() bool {
		r := newRig(t, with(softAt("memory.available", "2Gi", "1m"), hardAt("memory.available", "1Gi"),
			func(p *play) { p.maxGrace = 600 }))
		r.add("hog", usage{memory: 20 * gi}, grace(600))
		r.low(snapshot.MemoryAvailable, 3*gi/2)
		r.step(0)
		r.low(snapshot.MemoryAvailable, 500*mi)
		stock, ours := r.step(2 * time.Minute)
		expect(t, "ours", ours.graces(), []string{"hog grace=1"})
		return slices.Equal(stock.graces(), []string{"hog grace=600"})
	})
}

func TestD2BesideStock(t *testing.T) {
	r := newRig(t, with(hardAt("nodefs.available", "10Gi"), softAt("memory.available", "2Gi", "1h")))
	r.add("pod", usage{memory: gi, disk: gi})
	r.low(snapshot.NodeFsAvailable, 5*gi)
	r.low(snapshot.MemoryAvailable, gi)
	r.reclaimed = map[snapshot.Signal]int64{snapshot.NodeFsAvailable: 20 * gi}
	stock, ours := r.step(0)
	r.want("reclaims", stock.reclaimed, ours.reclaimed, "[containers images]", "[containers images]")
	r.want("victims although the reclaim was enough", stock.names(), ours.names(), []string{"pod"}, []string{})
}

func TestD3BesideStock(t *testing.T) {
	_ = legacyregistry.Register(metrics.Evictions)
	r := newRig(t, hardAt("memory.available", "1Gi"))
	r.add("first", usage{memory: 9 * gi})
	r.add("second", usage{memory: 8 * gi})
	r.stuck["first"] = true
	r.low(snapshot.MemoryAvailable, 100*mi)
	var stock, ours []string
	var counted [2]float64
	for range 5 {
		sc := r.scene(10 * time.Second)
		begin := shown(t, "kubelet_evictions", "memory.available")
		stock = append(stock, r.stock.step(sc, r.now).names()...)
		middle := shown(t, "kubelet_evictions", "memory.available")
		ours = append(ours, r.ours.step(t.Context(), sc, r.now).names()...)
		counted[0], counted[1] = counted[0]+middle-begin, counted[1]+shown(t, "kubelet_evictions", "memory.available")-middle
	}
	r.want("the second hog's turn", slices.Contains(stock, "second"), slices.Contains(ours, "second"), false, true)
	stopped := 0.0
	for _, name := range ours {
		if name == "second" {
			stopped++
		}
	}
	r.want("evictions counted", counted[0], counted[1], 5.0, stopped)
}

func TestD5BesideStock(t *testing.T) {
	r := newRig(t, with(hardAt("memory.available", "1Gi"), func(p *play) { p.limits = true }))
	r.add("violator", usage{memory: mi, volume: volumeLimit + 1}, scratchVolume)
	r.add("hog", usage{memory: 50 * gi})
	r.stuck["violator"] = true
	r.low(snapshot.MemoryAvailable, 100*mi)
	var stock, ours []string
	for range 5 {
		s, o := r.step(10 * time.Second)
		stock, ours = append(stock, s.names()...), append(ours, o.names()...)
	}
	expect(t, "stock, which does not show the defect any more", fmt.Sprint(stock),
		"[violator violator violator violator violator]")
	if !slices.Contains(ours, "hog") || !slices.Contains(ours, "violator") {
		t.Errorf("ours: %v", ours)
	}
}

func TestD6BesideStock(t *testing.T) {
	r := newRig(t, with(softAt("memory.available", "2Gi", "10s"), func(p *play) { p.maxGrace = -1 }))
	r.add("hog", usage{memory: 20 * gi}, grace(60))
	r.low(snapshot.MemoryAvailable, gi)
	r.step(0)
	stock, ours := r.step(time.Minute)
	r.want("grace", stock.graces(), ours.graces(), []string{"hog grace=-1"}, []string{"hog grace=60"})
}

func TestD7BesideStock(t *testing.T) {
	r := newRig(t, hardAt("nodefs.inodesFree", "1000"))
	r.add("many", usage{inodes: 1_000_000}, storageRequest(gi))
	r.add("few", usage{inodes: 10})
	r.low(snapshot.NodeFsInodesFree, 100)
	stock, ours := r.step(0)
	r.want("victims", stock.names(), ours.names(), []string{"few"}, []string{"many"})
}

func TestD8BesideStock(t *testing.T) {
	r := newRig(t, hardAt("memory.available", "1Gi"))
	r.add("new", usage{missing: true}, priority(1e9), guaranteed)
	r.add("hog", usage{memory: 20 * gi}, priority(-100))
	r.low(snapshot.MemoryAvailable, 100*mi)
	stock, ours := r.step(0)
	r.want("victims", stock.names(), ours.names(), []string{"new"}, []string{"hog"})
}

func TestD9BesideStock(t *testing.T) {
	r := newRig(t, hardAt("pid.available", "1000"))
	r.levels[snapshot.PIDAvailable] = &level{capacity: 32768, available: 999}
	r.add("bomb", usage{pids: 30_000}, priority(10))
	r.add("small", usage{pids: 2})
	r.add("smaller", usage{pids: 1})
	stock, ours := r.step(0)
	r.want("victims", stock.names(), ours.names(), []string{"small"}, []string{"bomb"})
}

// TestD11BesideStock: the panic of stock ends its process, which is a child of this one.
func TestD11BesideStock(t *testing.T) {
	const child = "PLIMSOLL_STOCK_PANICS"
	r := newRig(t, func(p *play) { p.limits = true })
	r.add("pod", usage{memory: mi}, scratchVolume)
	r.alter = func(s *statsapi.Summary) { s.Pods[0].VolumeStats[0].UsedBytes = nil }
	sc := r.scene(0)
	if os.Getenv(child) != "" {
		r.stock.step(sc, r.now)
		return
	}
	expect(t, "ours", r.ours.step(t.Context(), sc, r.now).names(), []string{})
	cmd := exec.Command(os.Args[0], "-test.run=^TestD11BesideStock$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nil pointer dereference") ||
		!strings.Contains(string(out), "emptyDirLimitEviction") {
		t.Errorf("stock does not show the defect any more: %v\n%s", err, out)
	}
}

func splitDisks(p *play) { p.dedicated, p.split = true, true }

func TestD12BesideStock(t *testing.T) {
	r := newRig(t, with(hardAt("nodefs.available", "10Gi"), splitDisks),
		func(s *stage) { s.splitErr = errors.New("the runtime starts") })
	r.add("pod", usage{disk: gi})
	r.step(0)
	r.stock.splitErr, r.ours.splitErr = nil, nil
	r.low(snapshot.ContainerFsAvailable, gi)
	var stock, ours acts
	for range 20 {
		stock, ours = r.step(10 * time.Second)
	}
	r.want("conditions", stock.conditions, ours.conditions, "memory=false disk=false pid=false",
		"memory=false disk=true pid=false")
	r.want("asked again", r.stock.splitAsked > 1, r.ours.splitAsked > 1, false, true)
}

func TestD13BesideStock(t *testing.T) {
	r := newRig(t, with(hardAt("nodefs.available", "10Gi"), splitDisks))
	r.add("pod", usage{disk: gi})
	r.low(snapshot.ContainerFsAvailable, gi)
	stock, ours := r.step(0)
	r.want("disk pressure after the first round", stock.conditions, ours.conditions, "memory=false disk=false pid=false",
		"memory=false disk=true pid=false")
	stock, _ = r.step(10 * time.Second)
	expect(t, "stock's second round", stock.conditions, "memory=false disk=true pid=false")
}

// TestD14BesideStock: what is known of images is in the tests of the policy; here nothing is, and the order of the
// input decides nothing.
func TestD14BesideStock(t *testing.T) {
	victims := func(turned bool) (stock, ours []string) {
		r := newRig(t, with(hardAt("imagefs.available", "10Gi"), splitDisks))
		r.add("a", usage{disk: gi}, priority(0))
		r.add("b", usage{disk: 30 * gi}, priority(0))
		if turned {
			slices.Reverse(r.pods)
		}
		r.low(snapshot.ImageFsAvailable, gi)
		s, o := r.step(0)
		return s.names(), o.names()
	}
	s1, o1 := victims(false)
	s2, o2 := victims(true)
	expect(t, "stock, which does not show the defect any more", fmt.Sprint(s1, s2), "[a] [b]")
	expect(t, "ours, when the input is turned round", o2, o1)
}

func TestD16BesideStock(t *testing.T) {
	r := newRig(t, softAt("memory.available", "2Gi", "2m"))
	r.add("hog", usage{memory: 20 * gi})
	var stock, ours []string
	low := 0
	for i := range 360 {
		r.low(snapshot.MemoryAvailable, gi)
		if i%11 == 10 {
			r.low(snapshot.MemoryAvailable, 2*gi+100*mi)
		} else {
			low++
		}
		s, o := r.step(10 * time.Second)
		stock, ours = append(stock, s.names()...), append(ours, o.names()...)
	}
	expect(t, "low samples", low, 328)
	r.want("evicted within an hour", len(stock) > 0, len(ours) > 0, false, true)
}

func TestD17BesideStock(t *testing.T) {
	r := newRig(t, hardAt("nodefs.available", "10Gi"))
	r.low(snapshot.NodeFsAvailable, 5*gi)
	r.step(0)
	r.low(snapshot.NodeFsAvailable, 50*gi)
	stock, ours := r.step(10 * time.Second)
	r.want("the condition lingers", stock.conditions, ours.conditions, "memory=false disk=true pid=false",
		"memory=false disk=true pid=false")
	tolerating := probes()[3]
	r.want("a pod that tolerates it", answer(r.stock.admit, tolerating), answer(r.ours.manager, tolerating),
		"tolerating: admit=false Evicted", "tolerating: admit=true ")
}

// TestD23BesideStock: every pod that goes frees what it used. Stock needs 31 rounds.
func TestD23BesideStock(t *testing.T) {
	play := func(round func(r *rig) acts) (victims []string) {
		r := newRig(t, hardAt("memory.available", "1Gi"))
		for i := range 30 {
			r.add(fmt.Sprintf("small-%02d", i), usage{memory: 10 * mi}, memoryRequest(9*mi))
		}
		r.add("leak", usage{memory: 20 * gi}, priority(1))
		free := 100 * mi
		for range 40 {
			r.low(snapshot.MemoryAvailable, free)
			for _, name := range round(r).names() {
				victims = append(victims, name)
				for _, pod := range r.pods {
					if pod.Name == name {
						free += r.usage[pod.UID].memory
					}
				}
				r.drop(name)
			}
		}
		return victims
	}
	stock := play(func(r *rig) acts { return r.stock.step(r.scene(10*time.Second), r.now) })
	ours := play(func(r *rig) acts { return r.ours.step(t.Context(), r.scene(10*time.Second), r.now) })
	expect(t, "stock, which does not show the defect any more", len(stock), 31)
	expect(t, "ours", ours, []string{"leak"})
}

// TestD24BesideStock: whose stats stock shows depends on the order of a map, and they are those from before the
// reclaim.
func TestD24BesideStock(t *testing.T) {
	low := func() *rig {
		r := newRig(t, with(hardAt("imagefs.available", "15Gi"), hardAt("nodefs.available", "10Gi")))
		r.add("pod", usage{disk: gi, logs: gi})
		r.low(snapshot.ImageFsAvailable, 5*gi)
		r.low(snapshot.NodeFsAvailable, 5*gi)
		return r
	}
	shownStats := func(a acts) string {
		if len(a.victims) != 1 {
			t.Fatalf("%v", a)
		}
		_, rest, _ := strings.Cut(a.victims[0], "Threshold quantity: ")
		text, _, _ := strings.Cut(rest, ". ")
		return text
	}
	t.Run("whose", func(t *testing.T) {
		seen := map[string]bool{}
		eventually(t, func() bool {
			stock, ours := low().step(0)
			seen[shownStats(stock)] = true
			expect(t, "ours", shownStats(ours), "10Gi, available: 5Gi")
			return len(seen) > 1
		})
	})
	t.Run("when", func(t *testing.T) {
		r := low()
		r.reclaimed = map[snapshot.Signal]int64{snapshot.ImageFsAvailable: 8 * gi, snapshot.NodeFsAvailable: 8 * gi}
		stock, ours := r.step(0)
		_, theirs, _ := strings.Cut(shownStats(stock), ", ")
		r.want("stats", theirs, shownStats(ours), "available: 5Gi", "10Gi, available: 8Gi")
	})
}

func TestD29BesideStock(t *testing.T) {
	r := newRig(t, func(p *play) { p.limits = true })
	r.add("violator", usage{volume: volumeLimit + 1}, scratchVolume)
	stock, ours := r.step(0)
	r.want("victims", stock.names(), ours.names(), []string{"violator"}, []string{"violator"})
	conditions := func(s *stage) []v1.PodConditionType {
		list := []v1.PodConditionType{}
		for _, c := range s.statuses["violator"].Conditions {
			list = append(list, c.Type)
		}
		return list
	}
	r.want("conditions of the victim", conditions(&r.stock.stage), conditions(&r.ours.stage), []v1.PodConditionType{},
		[]v1.PodConditionType{v1.DisruptionTarget})
}

func TestD30BesideStock(t *testing.T) {
	limits := func(p *play) { p.limits = true }
	t.Run("writable layer on the image disk", func(t *testing.T) {
		r := newRig(t, with(limits, func(p *play) { p.dedicated = true }))
		r.add("writer", usage{disk: storageLimit + 1}, storageLimited(storageLimit))
		stock, ours := r.step(0)
		r.want("victims", stock.names(), ours.names(), []string{}, []string{"writer"})
	})
	t.Run("sidecar", func(t *testing.T) {
		always := v1.ContainerRestartPolicyAlways
		r := newRig(t, limits)
		r.add("pod", usage{}, func(pod *v1.Pod) {
			sidecar := pod.Spec.Containers[0].DeepCopy()
			sidecar.Name, sidecar.RestartPolicy = "sidecar", &always
			pod.Spec.InitContainers = []v1.Container{*sidecar}
			limited := &v1.Pod{Spec: v1.PodSpec{Containers: pod.Spec.InitContainers}}
			storageLimited(storageLimit)(limited)
		})
		r.alter = func(s *statsapi.Summary) {
			logs := &statsapi.FsStats{Time: metav1.NewTime(r.now), UsedBytes: u(storageLimit + 1)}
			s.Pods[0].Containers = append(s.Pods[0].Containers, statsapi.ContainerStats{Name: "sidecar", Logs: logs})
		}
		stock, ours := r.step(0)
		r.want("victims", stock.names(), ours.names(), []string{}, []string{"pod"})
	})
}

func TestD31BesideStock(t *testing.T) {
	r := newRig(t, with(softAt("memory.available", "2Gi", "0s"), func(p *play) { p.maxGrace = 90 }))
	r.add("hog", usage{memory: 20 * gi}, grace(40))
	r.low(snapshot.MemoryAvailable, gi)
	stock, ours := r.step(0)
	r.want("grace", stock.graces(), ours.graces(), []string{"hog grace=1"}, []string{"hog grace=40"})
}
