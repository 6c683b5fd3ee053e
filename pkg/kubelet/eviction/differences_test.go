package eviction

import (
	_ "embed"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// observer watches a sequence for inputs on which stock and we are meant to differ. Every rule is an entry of
// DIFFERENCES.md and uses inputs only: stats, pods, configuration, time, and what stock chose for them.
type observer struct {
	play       *play
	thresholds []policy.Threshold
	v          verdict
	// past is what was seen of each threshold, by index.
	past []followed
	// memory is what pods used in earlier steps.
	memory map[types.UID]int64
	grown  bool
	// free is how much memory was available, step by step.
	free []sampled
	// met are the thresholds that are met in this step.
	met []int
}

// followed is what was seen of one threshold.
type followed struct {
	met, ever, acted bool
	// held: it was met and its minimum reclaim is not reached.
	held                  bool
	firstClear, lastClear time.Time
}

type sampled struct {
	at     time.Time
	amount int64
}

//go:embed DIFFERENCES.md
var differences string

// rule notes that inputs fall under an entry of the list. A rule that is not in the list is a mistake of the test.
func (o *observer) rule(name string) {
	if !strings.Contains(differences, "## "+name+"\n") {
		panic("not in DIFFERENCES.md: " + name)
	}
	o.v.rules[name] = true
}

// before checks the inputs of a step.
func (o *observer) before(sc *scene) {
	if o.past == nil {
		o.past, o.memory = make([]followed, len(o.thresholds)), map[types.UID]int64{}
	}
	if sc.err != nil {
		o.rule("D10 a failed summary does not end the round")
		return
	}
	signals := collect.FromSummary(sc.summary)
	o.met = nil
	for i := range o.thresholds {
		o.follow(i, signals[o.thresholds[i].Signal])
	}
	o.together(sc)
	if ob := signals[snapshot.MemoryAvailable]; ob.Known() {
		o.free = append(o.free, sampled{o.play.now, ob.Available})
	}
	for uid, us := range o.play.usage {
		o.grown = o.grown || (o.memory[uid] > 0 && us.memory > o.memory[uid])
		o.memory[uid] = us.memory
	}
	if len(o.met) > 0 {
		o.pods(sc)
	}
	o.limits(sc)
}

// limits checks pods that break limits of their own.
func (o *observer) limits(sc *scene) {
	if !o.play.limits {
		return
	}
	for _, pod := range sc.pods {
		u := o.play.usage[pod.UID]
		_, limited := pod.Spec.Containers[0].Resources.Limits[v1.ResourceEphemeralStorage]
		volume, layer := len(pod.Spec.Volumes) > 0 && u.volume > volumeLimit, limited && u.disk+u.logs > storageLimit
		switch {
		case u.missing || (!volume && !layer):
			continue
		case *pod.Spec.Priority >= 2_000_000_000:
			// Nobody may evict it, and stock goes on.
			continue
		case len(o.met) > 0:
			o.rule("D5 limits of pods and needs of the node do not wait for each other")
		case sc.unkillable[pod.Name]:
			o.rule("D3 a failed kill brings the next victim")
		}
		if layer && !volume && o.play.dedicated {
			o.rule("D30 writable layers count against limits wherever they lie")
		}
	}
}

func (o *observer) follow(i int, ob snapshot.Observation) {
	t, h := &o.thresholds[i], &o.past[i]
	if !ob.Known() {
		if h.ever {
			o.rule("D10 a blind signal keeps its condition")
		}
		return
	}
	met := ob.Available < t.Quantity(ob.Capacity).Value()
	switch {
	case !met:
		if h.met || h.firstClear.IsZero() {
			h.firstClear = o.play.now
		}
		h.lastClear = o.play.now
	case t.Soft && h.ever && !h.met && !h.acted && h.lastClear.Sub(h.firstClear) < max(30*time.Second, t.GracePeriod/4):
		o.rule("D16 the grace clock pauses while a signal is clear")
	}
	h.held = met || (h.held && ob.Available < target(t, ob))
	if h.held {
		o.met = append(o.met, i)
	}
	if met {
		h.acted = h.acted && h.met
	}
	h.met, h.ever = met, h.ever || met
}

func target(t *policy.Threshold, ob snapshot.Observation) int64 {
	sum := t.Quantity(ob.Capacity).Value()
	if t.MinReclaim != nil {
		sum += t.MinReclaim.Quantity.Value()
	}
	return sum
}

// together checks thresholds that are met at the same time.
func (o *observer) together(sc *scene) {
	kinds, resources := map[bool]bool{}, map[string]bool{}
	for _, i := range o.met {
		kinds[o.thresholds[i].Soft] = true
		resources[string(o.thresholds[i].Signal.Resource())] = true
	}
	if len(o.met) > len(resources) {
		o.rule("D24 the figures shown are those of the threshold that acts")
	}
	if len(kinds) > 1 {
		o.rule("D1 hard wins over soft")
	}
	if len(resources) > 1 || (len(o.met) > 0 && len(sc.summary.Pods) == 0) {
		o.rule("D1 needs are served in a fixed order")
	}
	if p := sc.probe; p != nil && kinds[false] && (p.Name == "burstable" || p.Name == "tolerating") {
		o.rule("D17 only critical pods enter while a hard threshold is met")
	}
}

func (o *observer) pods(sc *scene) {
	if len(sc.unkillable) > 0 {
		o.rule("D3 a failed kill brings the next victim")
	}
	for _, i := range o.met {
		sig := o.thresholds[i].Signal
		if o.play.split && strings.HasPrefix(sig.String(), "imagefs") {
			o.rule("D14 pods are measured by their images on the image device of a split file system")
		}
		if sig.Resource() == v1.ResourceMemory && o.grown {
			o.rule("D23 the need is a forecast")
		}
	}
	for _, pod := range sc.pods {
		if o.play.usage[pod.UID].missing {
			o.rule("D8 unknown usage is not the worst")
		}
		if _, asks := pod.Spec.Containers[0].Resources.Requests[v1.ResourceEphemeralStorage]; asks && o.inodes() {
			o.rule("D7 inodes are compared with inodes")
		}
	}
}

func (o *observer) inodes() bool {
	for _, i := range o.met {
		if o.thresholds[i].Signal.Resource() == snapshot.ResourceInodes {
			return true
		}
	}
	return false
}

// after checks what stock did: its victim alone may not be enough, or a later one may do without it.
func (o *observer) after(sc *scene, stock acts) {
	if p := sc.probe; p != nil && p.Name == "tolerating" && strings.Contains(stock.conditions, "disk=true") {
		o.rule("D17 tolerations count while a condition lingers")
	}
	cleared := collect.FromSummary(sc.after)
	for _, i := range o.met {
		t, h := &o.thresholds[i], &o.past[i]
		ob := cleared[t.Signal]
		if stock.reclaimed != "[]" && ob.Known() && ob.Available >= t.Quantity(ob.Capacity).Value() {
			h.met, h.firstClear, h.lastClear = false, o.play.now, o.play.now
		}
		h.acted = h.acted || len(stock.victims) > 0
		if before := collect.FromSummary(sc.summary)[t.Signal]; stock.reclaimed != "[]" && before.Available != ob.Available {
			o.rule("D24 the figures shown are those after the reclaim")
		}
		for _, victim := range stock.victims {
			name, _, _ := strings.Cut(victim, " ")
			switch used, need := o.uses(types.UID(name), t.Signal), o.need(t, sc, stock); {
			case used < need:
				o.rule("D23 the fewest pods that cover the need")
			case t.Signal.Resource() == v1.ResourceMemory && used < need+o.shrinks(3*time.Second):
				o.rule("D23 the need is a forecast")
			}
		}
	}
}

func (o *observer) need(t *policy.Threshold, sc *scene, stock acts) int64 {
	summary := sc.summary
	if stock.reclaimed != "[]" {
		summary = sc.after
	}
	ob := collect.FromSummary(summary)[t.Signal]
	return target(t, ob) - ob.Available
}

// shrinks is how much less memory may be available after a while, at the worst rate of late.
func (o *observer) shrinks(d time.Duration) int64 {
	var worst float64
	for _, then := range o.free[:max(0, len(o.free)-1)] {
		last := o.free[len(o.free)-1]
		worst = max(worst, float64(then.amount-last.amount)/last.at.Sub(then.at).Seconds())
	}
	return int64(worst * d.Seconds())
}

func (o *observer) uses(uid types.UID, sig snapshot.Signal) int64 {
	us := o.play.usage[uid]
	switch sig.Resource() {
	case v1.ResourceMemory:
		return us.memory
	case snapshot.ResourcePIDs:
		return us.pids
	}
	disk, logs := us.disk, us.logs
	if sig.Resource() == snapshot.ResourceInodes {
		disk, logs = us.inodes, us.inodes/2
	}
	l := snapshot.Layout{Known: true, DedicatedImageFs: o.play.dedicated, SplitContainerFs: o.play.split}
	m := l.MeasureOf(l.DeviceOf(sig))
	var sum int64
	if m.WritableLayers {
		sum += disk
	}
	if m.Logs {
		sum += logs
	}
	if m.Volumes && sig.Resource() != snapshot.ResourceInodes {
		sum += us.volume
	}
	return sum
}
