package simulate

import (
	"math"
	"slices"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// world is what the plan and reality have done to the pods.
type world struct {
	growSpared bool
	// recorded are the evictions of reality, planned those of the plan.
	recorded map[podKey]*recordedEviction
	planned  map[podKey]*plannedEviction
	// last are the pods as they were last seen, for snapshots without all of them.
	last []snapshot.Pod
	// reclaims are the node-level reclaims that the plan has begun, at most one per device and unit.
	reclaims []snapshot.Reclaim
	// exhausted is when pods that were spared had used up the memory; zero if they have not.
	exhausted time.Time
}

type recordedEviction struct {
	decision uint64
	// pod is as it was when it was evicted, at a time of the snapshot; growth is in bytes per second.
	pod    snapshot.Pod
	at     time.Time
	growth float64
}

type plannedEviction struct {
	decision     uint64
	victim       policy.Victim
	at, deadline time.Time
	gone         time.Time
}

func newWorld(growSpared bool) world {
	return world{growSpared: growSpared, recorded: map[podKey]*recordedEviction{}, planned: map[podKey]*plannedEviction{}}
}

// record records the evictions of a recorded decision.
func (w *world) record(d *debugv1alpha1.PressureDecision, s *snapshot.Snapshot) {
	for i := range d.Victims {
		v := &d.Victims[i]
		if v.DryRun || v.Hastened || w.recorded[v.UID] != nil {
			continue
		}
		e := &recordedEviction{decision: d.Number, at: s.Taken}
		if j := slices.IndexFunc(s.Pods, func(p snapshot.Pod) bool { return p.UID == v.UID }); j >= 0 {
			e.pod = s.Pods[j]
		} else {
			continue
		}
		for j := range d.Rankings {
			for k := range d.Rankings[j].Candidates {
				if c := &d.Rankings[j].Candidates[k]; c.UID == v.UID {
					e.growth = max(e.growth, c.GrowthPerSecond)
				}
			}
		}
		w.recorded[v.UID] = e
	}
}

// plan records the evictions of a decision of the plan.
func (w *world) plan(d *policy.Decision, s *snapshot.Snapshot, rules *policy.Rules) {
	for i := range d.Reclaims {
		w.reclaim(&d.Reclaims[i], s)
	}
	for i := range d.Victims {
		v := &d.Victims[i]
		if v.Hasten || w.planned[v.Pod.UID] != nil {
			continue
		}
		w.planned[v.Pod.UID] = &plannedEviction{
			decision: d.Number, victim: *v, at: s.Taken, gone: s.Taken.Add(goneAfter(v, rules)),
			deadline: s.Taken.Add(time.Duration(min(v.GraceSeconds, maxGraceSeconds)) * time.Second),
		}
	}
}

// reclaim records a node-level reclaim of the plan, which has freed nothing and has ended by the next snapshot.
func (w *world) reclaim(q *policy.ReclaimRequest, s *snapshot.Snapshot) {
	w.reclaims = slices.DeleteFunc(w.reclaims, func(r snapshot.Reclaim) bool {
		return r.Device == q.Device && r.Inodes == q.Inodes()
	})
	w.reclaims = append(w.reclaims, snapshot.Reclaim{
		Device: q.Device, Inodes: q.Inodes(), Started: s.Taken, Finished: s.Taken,
		Got: snapshot.Reclaimed{Missing: max(1, q.Amount)},
	})
}

// common reports whether plan and reality have evicted the pod in the same decision. What became of it is recorded
// then. Numbers of decisions begin again with each start of the agent.
func (w *world) common(uid podKey) bool {
	p, r := w.planned[uid], w.recorded[uid]
	return p != nil && r != nil && p.decision == r.decision && p.at.Equal(r.at)
}

// adjust returns what the plan sees of a recorded snapshot.
func (w *world) adjust(in *trace.Input) *snapshot.Snapshot {
	s := *in.Snapshot
	s.Pods = slices.Clone(s.Pods)
	if in.PartialPods {
		s.Pods = w.complete(s.Pods)
	} else {
		w.last = in.Snapshot.Pods
	}
	s.InFlight, s.LastRelease = w.inFlight(in.Snapshot), time.Time{}
	if slices.ContainsFunc(in.Snapshot.InFlight, func(f snapshot.InFlight) bool { return w.common(f.UID) }) ||
		w.anyCommon() {
		s.LastRelease = in.Snapshot.LastRelease
	}
	s.Reclaims = slices.Clone(w.reclaims)
	w.removeEvicted(&s)
	w.addSpared(&s)
	for i := range s.Signals {
		if o := &s.Signals[i]; o.Known() && o.Capacity > 0 {
			o.Available = min(o.Available, o.Capacity)
		}
	}
	return &s
}

func (w *world) anyCommon() bool {
	for uid := range w.planned {
		if w.common(uid) {
			return true
		}
	}
	return false
}

// complete adds the pods that a partial snapshot leaves out, as they were last seen.
func (w *world) complete(pods []snapshot.Pod) []snapshot.Pod {
	have := map[podKey]bool{}
	for i := range pods {
		have[pods[i].UID] = true
	}
	for i := range w.last {
		if !have[w.last[i].UID] {
			pods = append(pods, w.last[i])
		}
	}
	return pods
}

// inFlight returns the evictions that are in flight for the plan.
func (w *world) inFlight(s *snapshot.Snapshot) (list []snapshot.InFlight) {
	for i := range s.InFlight {
		uid := s.InFlight[i].UID
		if w.common(uid) || (w.recorded[uid] == nil && w.planned[uid] == nil) {
			list = append(list, s.InFlight[i])
		}
	}
	for _, uid := range sortedKeys(w.planned) {
		p := w.planned[uid]
		if w.common(uid) || !s.Taken.Before(p.gone) {
			continue
		}
		list = append(list, snapshot.InFlight{
			UID: uid, Signal: p.victim.Cause.Signal, Requested: p.victim.Cause.Kind == policy.PluginRequest,
			Hard: p.victim.Cause.Hard(), State: snapshot.Stopping, Started: p.at, Changed: p.at, Deadline: p.deadline,
			Expected: p.victim.Expected,
		})
	}
	return list
}

// removeEvicted removes the pods that the plan has evicted, and gives back what they use.
func (w *world) removeEvicted(s *snapshot.Snapshot) {
	kept := s.Pods[:0]
	for i := range s.Pods {
		p := s.Pods[i]
		e := w.planned[p.UID]
		if e == nil || w.common(p.UID) || s.Taken.Before(e.gone) {
			kept = append(kept, p)
			continue
		}
		give(s, p.Release(s.Layout), 1)
	}
	s.Pods = kept
	for uid, e := range w.planned {
		if !w.common(uid) && !s.Taken.Before(e.gone) && e.gone.After(s.LastRelease) {
			s.LastRelease = e.gone
		}
	}
}

// addSpared adds the pods that were evicted in reality and that the plan has not evicted, or whose eviction by the plan
// is in flight.
func (w *world) addSpared(s *snapshot.Snapshot) {
	for _, uid := range sortedKeys(w.recorded) {
		e := w.recorded[uid]
		p := w.planned[uid]
		if !s.Taken.After(e.at) || w.common(uid) || (p != nil && !s.Taken.Before(p.gone)) {
			continue
		}
		present := slices.IndexFunc(s.Pods, func(p snapshot.Pod) bool { return p.UID == uid })
		if present >= 0 {
			give(s, s.Pods[present].Release(s.Layout), 1)
			s.Pods = slices.Delete(s.Pods, present, present+1)
		}
		pod := e.pod
		pod.Terminating = nil
		if w.growSpared {
			grow(&pod, e.growth*s.Taken.Sub(e.at).Seconds())
		}
		give(s, pod.Release(s.Layout), -1)
		s.Pods = append(s.Pods, pod)
		if o := &s.Signals[snapshot.MemoryAvailable]; o.Known() && o.Available <= 0 && w.exhausted.IsZero() {
			w.exhausted = s.WallTime
		}
	}
}

// grow adds bytes to the memory of a pod.
func grow(p *snapshot.Pod, bytes float64) {
	more := snapshot.Bytes(math.Min(bytes, 1<<50))
	if p.Cgroup != nil && p.Cgroup.WorkingSet.Known {
		c := *p.Cgroup
		c.WorkingSet.Amount += more
		if c.Anonymous.Known {
			c.Anonymous.Amount += more
		}
		p.Cgroup = &c
	}
	if p.Usage != nil && p.Usage.Memory >= 0 {
		u := *p.Usage
		u.Memory += more
		if u.AnonymousMemory >= 0 {
			u.AnonymousMemory += more
		}
		p.Usage = &u
	}
}

// give adds a release to what is available, or takes it away.
func give(s *snapshot.Snapshot, r snapshot.Release, sign int64) {
	add := func(sig snapshot.Signal, amount int64) {
		if o := &s.Signals[sig]; o.Known() {
			o.Available = max(0, o.Available+sign*max(0, amount))
		}
	}
	add(snapshot.MemoryAvailable, int64(r.Memory))
	add(snapshot.AllocatableMemoryAvailable, int64(r.Memory))
	add(snapshot.PIDAvailable, int64(r.PIDs))
	if !s.Layout.Known {
		return
	}
	for _, sig := range snapshot.AllSignals() {
		if sig.Condition() != snapshot.NodeFsAvailable.Condition() {
			continue
		}
		on := r.Devices[s.Layout.DeviceOf(sig)]
		if sig.Resource() == snapshot.ResourceInodes {
			add(sig, int64(on.Inodes))
		} else {
			add(sig, int64(on.Bytes))
		}
	}
}

func sortedKeys[T any](m map[podKey]T) []podKey {
	keys := make([]podKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
