package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// The tests in the files defects_* are named after the rows of docs/defects.md. Each plays its scenario to the stock
// manager and to ours. It fails when ours does not do what it should, and also when stock does not show the defect any
// more: then the row goes.

// rig is a stock manager and one of ours that see the same scenes.
type rig struct {
	*play
	t     *testing.T
	stock *stockManager
	ours  *ourManager
	// reclaimed are the levels after a reclaim of the node; alter changes every summary.
	reclaimed map[snapshot.Signal]int64
	alter     func(*statsapi.Summary)
	stuck     map[string]bool
	probe     *v1.Pod
}

// newRig starts both managers with the settings that configure makes. Levels are plenty, there are no pods.
func newRig(t *testing.T, configure func(p *play), prepare ...func(*stage)) *rig {
	t.Helper()
	p := &play{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), usage: map[types.UID]*usage{},
		levels: map[snapshot.Signal]*level{}, transition: 5 * time.Minute}
	p.settings = settings.ThresholdConfig{Hard: map[string]string{}, Soft: map[string]string{},
		SoftGracePeriods: map[string]string{}, MinimumReclaim: map[string]string{}}
	configure(p)
	for _, sig := range snapshot.AllSignals() {
		p.levels[sig] = &level{capacity: 100 * gi, available: 80 * gi}
	}
	r := &rig{play: p, t: t, stuck: map[string]bool{}}
	theirs, err := stock.ParseThresholdConfig(nil, p.settings.Hard, p.settings.Soft, p.settings.SoftGracePeriods,
		p.settings.MinimumReclaim)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := settings.ParseThresholds(p.settings)
	if err != nil {
		t.Fatal(err)
	}
	r.stock = newStock(stock.Config{Thresholds: theirs, PressureTransitionPeriod: p.transition,
		MaxPodGracePeriodSeconds: p.maxGrace}, p.dedicated, p.split, p.limits, p.now, prepare...)
	t.Cleanup(r.stock.stop)
	r.ours, err = newOurs(Config{Kubelet: p.kubelet(parsed), Features: stockFeatures()}, p.dedicated, p.split, p.now)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		f(&r.ours.stage)
	}
	return r
}

func (r *rig) low(sig snapshot.Signal, available int64) { r.levels[sig].available = available }

func (r *rig) add(name string, u usage, change ...func(*v1.Pod)) {
	pod := plainPod(name)
	for _, f := range change {
		f(pod)
	}
	r.pods, r.usage[pod.UID] = append(r.pods, pod), &u
}

// drop takes a pod off the node.
func (r *rig) drop(name string) {
	r.pods = slices.DeleteFunc(r.pods, func(p *v1.Pod) bool { return p.Name == name })
}

// scene moves on by d.
func (r *rig) scene(d time.Duration) *scene {
	r.now = r.now.Add(d)
	sc := &scene{pods: slices.Clone(r.pods), unkillable: r.stuck, summary: r.summary(r.now, 0), probe: r.probe}
	before := map[snapshot.Signal]int64{}
	for sig, amount := range r.reclaimed {
		before[sig] = r.levels[sig].available
		r.low(sig, amount)
	}
	sc.after = r.summary(r.now.Add(time.Millisecond), 0)
	for sig, amount := range before {
		r.low(sig, amount)
	}
	if r.alter != nil {
		r.alter(sc.summary)
		r.alter(sc.after)
	}
	return sc
}

// step plays one scene to both.
func (r *rig) step(d time.Duration) (stock, ours acts) {
	sc := r.scene(d)
	return r.stock.step(sc, r.now), r.ours.step(r.t.Context(), sc, r.now)
}

// want compares what both did, and says whose fault a difference is.
func (r *rig) want(what string, stock, ours, wantStock, wantOurs any) {
	r.t.Helper()
	expect(r.t, "stock, which does not show the defect any more: "+what, stock, wantStock)
	expect(r.t, "ours: "+what, ours, wantOurs)
}

// names are those of the victims.
func (a acts) names() []string {
	list := []string{}
	for _, v := range a.victims {
		name, _, _ := strings.Cut(v, " ")
		list = append(list, name)
	}
	return list
}

// graces are names and grace periods of the victims.
func (a acts) graces() []string {
	list := []string{}
	for _, v := range a.victims {
		list = append(list, strings.Join(strings.Fields(v)[:2], " "))
	}
	return list
}

func hardAt(sig, amount string) func(*play) { return func(p *play) { p.settings.Hard[sig] = amount } }

func softAt(sig, amount, grace string) func(*play) {
	return func(p *play) { p.settings.Soft[sig], p.settings.SoftGracePeriods[sig] = amount, grace }
}

// with joins settings.
func with(all ...func(*play)) func(*play) {
	return func(p *play) {
		for _, f := range all {
			f(p)
		}
	}
}

func storageRequest(amount int64) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(amount,
			resource.BinarySI)}
	}
}

func storageLimited(amount int64) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: *resource.NewQuantity(amount,
			resource.BinarySI)}
	}
}

// scratchVolume gives a pod an emptyDir with a limit of volumeLimit.
func scratchVolume(pod *v1.Pod) {
	size := &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(volumeLimit, resource.BinarySI)}
	pod.Spec.Volumes = []v1.Volume{{Name: scratch, VolumeSource: v1.VolumeSource{EmptyDir: size}}}
}

func guaranteed(pod *v1.Pod) {
	list := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1m")}
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
}
