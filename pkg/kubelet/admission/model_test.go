package admission_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// TestPreemptionModel plays random histories to the real parts of a node on virtual time: critical pods that come and
// are deleted, victims that end at once, late, on a rung of the ladder or never, and while a pod is being judged,
// shutdowns that are cancelled, more pods that wait than there are places, and the stop of the agent. What must
// hold is in the complaints of the model.
func TestPreemptionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(drawStep), 1, 30).Draw(rt, "history")
		var complaints []string
		synctest.Test(t, func(t *testing.T) { complaints = newModel(t).live(history) })
		if len(complaints) > 0 {
			rt.Fatalf("%s", complaints[0])
		}
	})
}

// capacity of the node in thousandths of a CPU.
const capacity = 10_000

// kinds of what may happen.
const (
	ordinaryComes = iota
	criticalComes
	staticComes
	manyCome
	isDeleted
	isRemoved
	endsByItself
	endsWhileListed
	endsWhileJudged
	goesDown
	timePasses
	kinds
)

// step is one thing that happens.
type step struct {
	Kind int
	// Milli is the size of a pod that comes, Priority how much it matters among its like, Takes how long it stops.
	Milli    int64
	Priority int32
	Takes    time.Duration
	// Pod is the number of the pod that something happens to.
	Pod     int
	Seconds int
}

func drawStep(t *rapid.T) step {
	kind := rapid.IntRange(0, kinds+6).Draw(t, "kind")
	switch {
	case kind >= kinds+3:
		kind = ordinaryComes
	case kind >= kinds:
		kind = criticalComes
	case kind == manyCome && rapid.IntRange(0, 9).Draw(t, "many") > 0:
		kind = timePasses
	}
	takes := []time.Duration{0, 3 * time.Second, grace, 16 * time.Second, 28 * time.Second, 42 * time.Second, never}
	return step{
		Kind:     kind,
		Milli:    500 * rapid.Int64Range(1, 12).Draw(t, "size"),
		Priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
		Takes:    rapid.SampledFrom(takes).Draw(t, "takes"),
		Pod:      rapid.IntRange(0, 30).Draw(t, "pod"),
		Seconds:  rapid.IntRange(1, 50).Draw(t, "seconds"),
	}
}

// model is a world with a second opinion about what has to be done in it.
type model struct {
	*world
	pods []*v1.Pod
	// gone are the pods that were deleted or removed from their source.
	gone, removed map[types.UID]bool
	complaints    []string
	// making is the pod for which an attempt begins at this moment, and taken the priorities of the pods that are
	// stopped for it.
	making  types.UID
	taken   []int32
	stopped bool
	// idle counts for how many seconds a pod waits although its room is there, stalled although nothing is being stopped.
	idle, stalled map[types.UID]int
}

func newModel(t *testing.T) *model {
	m := &model{
		world: newWorld(t), gone: map[types.UID]bool{}, removed: map[types.UID]bool{},
		idle: map[types.UID]int{}, stalled: map[types.UID]int{},
	}
	m.begun, m.asked, m.rejected = m.begins, m.stops, m.rejects
	return m
}

func (m *model) complain(format string, args ...any) {
	m.complaints = append(m.complaints, fmt.Sprintf(format, args...))
}

// live plays a history, gives what is under way time to end, and stops the agent.
func (m *model) live(history []step) []string {
	for _, s := range history {
		m.happen(s)
	}
	m.shutdown = false
	m.elapse(70)
	m.happen(step{Kind: criticalComes, Milli: 3000, Priority: 2})
	m.stopped = true
	m.stop()
	<-m.ended
	m.AskAgain(m.ctx)
	m.comes(critical("too-late", 2000), 0)
	if err := m.workers.Stop(context.Background()); err != nil {
		m.complain("%v", err)
	}
	m.AskAgain(m.ctx)
	return m.complaints
}

func (m *model) happen(s step) {
	name := fmt.Sprintf("pod-%02d", len(m.pods))
	var pod *v1.Pod
	if len(m.pods) > 0 {
		pod = m.pods[s.Pod%len(m.pods)]
	}
	switch {
	case s.Kind == ordinaryComes || s.Kind == staticComes:
		p := sized(name, s.Milli)
		*p.Spec.Priority = s.Priority
		if s.Kind == staticComes {
			p.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		}
		m.comes(p, s.Takes)
	case s.Kind == criticalComes:
		m.comes(important(name, s), s.Takes)
	case s.Kind == manyCome:
		for i := range 60 + s.Pod%10 {
			m.comes(critical(fmt.Sprintf("%s-%02d", name, i), 10), s.Takes)
		}
	case s.Kind == goesDown:
		m.shutdown = !m.shutdown
	case s.Kind == timePasses:
		m.elapse(s.Seconds)
	case pod == nil || m.gone[pod.UID]:
	case s.Kind == isDeleted:
		m.gone[pod.UID] = true
		m.delete(pod)
		m.leaves(pod)
	case s.Kind == isRemoved:
		m.gone[pod.UID], m.removed[pod.UID] = true, true
		m.Remove(m.ctx, []*v1.Pod{pod})
		synctest.Wait()
		m.leaves(pod)
	case s.Kind == endsByItself:
		if m.runs(pod) {
			m.kill(pod)
		}
	case s.Kind == endsWhileListed:
		m.listed = m.once(&m.listed, pod)
	case s.Kind == endsWhileJudged:
		m.judging = m.once(&m.judging, pod)
	}
}

func important(name string, s step) *v1.Pod {
	p := critical(name, s.Milli)
	*p.Spec.Priority = scheduling.SystemCriticalPriority + s.Priority/2
	return p
}

// once returns a function that ends the stopping of the pod, if it is being stopped, or else of the first that is, and
// then is no more.
func (m *model) once(hook *func(), pod *v1.Pod) func() {
	return func() {
		*hook = func() {}
		for _, p := range append([]*v1.Pod{pod}, m.pods...) {
			if m.phase(p.UID) == podlifecycle.Terminating {
				m.end(p.UID)
				return
			}
		}
	}
}

func (m *model) comes(pod *v1.Pod, takes time.Duration) {
	m.mu.Lock()
	m.takes[pod.UID] = takes
	m.mu.Unlock()
	m.pods = append(m.pods, pod)
	m.add(pod)
}

// leaves holds that nothing is done any more for a pod that is deleted or removed.
func (m *model) leaves(pod *v1.Pod) {
	if m.victims.Making(pod.UID) || slices.Contains(m.room.Waiting(), pod.UID) {
		m.complain("room is being made for %s, which was deleted", pod.UID)
	}
}

func (m *model) phase(uid types.UID) podlifecycle.Phase {
	state, _ := m.store.State(uid)
	return state.Phase
}

// elapse lets time pass and holds that each pod that waits has a reason to.
func (m *model) elapse(seconds int) {
	for range seconds {
		m.pass(1)
		if m.shutdown {
			continue
		}
		for _, uid := range m.room.Waiting() {
			m.waits(m.podOf(uid))
		}
	}
}

// The longest time in seconds that a pod may wait although its room is there, or although nothing is being stopped.
// The second is as long as a request to stop a pod waits for its end, since a pod that is awaited may outlive
// everything at the beginning of that.
const longestIdle, longestStall = 2, 18

func (m *model) waits(pod *v1.Pod) {
	missing := m.missing(pod)
	count := func(counter map[types.UID]int, waits bool) int {
		if !waits {
			counter[pod.UID] = 0
			return 0
		}
		counter[pod.UID]++
		return counter[pod.UID]
	}
	if count(m.idle, missing <= 0) > longestIdle {
		m.complain("%s waits although its room is there", pod.UID)
	}
	if count(m.stalled, missing > 0 && !slices.ContainsFunc(m.pods, m.coming)) > longestStall {
		m.complain("%s waits, and nothing is being stopped", pod.UID)
	}
}

func (m *model) podOf(uid types.UID) *v1.Pod {
	return m.pods[slices.IndexFunc(m.pods, func(p *v1.Pod) bool { return p.UID == uid })]
}

func milliOf(pod *v1.Pod) int64 { return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

// others are the pods beside which a pod is judged: those that use the node, and those that wait, came before it and
// need not go for it.
func (m *model) others(pod *v1.Pod) (using, waiting []*v1.Pod) {
	line := m.room.Waiting()
	place := slices.Index(line, pod.UID)
	for _, p := range m.pods {
		at := slices.Index(line, p.UID)
		switch phase := m.phase(p.UID); {
		case p.UID == pod.UID || m.removed[p.UID]: // what its source has removed does not count, as with stock
		case phase >= podlifecycle.Known && phase <= podlifecycle.Terminating:
			using = append(using, p)
		case at >= 0 && (place < 0 || at < place) && !kubetypes.Preemptable(pod, p):
			waiting = append(waiting, p)
		}
	}
	return using, waiting
}

// coming is true for a pod whose room will be free without a further victim.
func (m *model) coming(pod *v1.Pod) bool {
	return m.phase(pod.UID) == podlifecycle.Terminating && m.overdue()[pod.UID].Rung != escalation.Report
}

// missing is what the pod lacks at this moment.
func (m *model) missing(pod *v1.Pod) int64 {
	using, waiting := m.others(pod)
	missing := milliOf(pod) - capacity
	for _, p := range slices.Concat(using, waiting) {
		missing += milliOf(p)
	}
	return missing
}

// optimum returns the priorities of the pods that must go for the pod at this moment; false when nothing helps.
func (m *model) optimum(pod *v1.Pod) ([]int32, bool) {
	missing := m.missing(pod)
	using, _ := m.others(pod)
	priorities := map[types.UID]int32{}
	var candidates []plan.Candidate
	for _, p := range using {
		coming := m.coming(p)
		mayGo := !kubetypes.IsStaticPod(p) && kubetypes.Preemptable(pod, p)
		if !coming && (m.phase(p.UID) == podlifecycle.Terminating || !mayGo) {
			continue
		}
		priorities[p.UID] = *p.Spec.Priority
		candidates = append(candidates, plan.Candidate{
			UID: p.UID, Priority: *p.Spec.Priority, QOS: v1.PodQOSBurstable, Releasing: coming,
			Requests: map[v1.ResourceName]int64{v1.ResourceCPU: milliOf(p)},
		})
	}
	victims, ok := plan.Choose(plan.Need{v1.ResourceCPU: missing}, candidates)
	var cost []int32
	for _, uid := range victims.Stop {
		cost = append(cost, priorities[uid])
	}
	return cost, ok
}

// dearer orders sets of victims as package plan does: fewer of the highest priority first.
func dearer(a, b []int32) bool {
	descending := func(s []int32) []int32 {
		return slices.SortedFunc(slices.Values(s), func(x, y int32) int { return cmp.Compare(y, x) })
	}
	return slices.Compare(descending(a), descending(b)) > 0
}

// begins holds what must be so when pods are stopped for the given one.
func (m *model) begins(uid types.UID, begin func()) {
	best, possible := m.optimum(m.podOf(uid))
	placed := m.room.HoldsForVictims(uid)
	m.making, m.taken = uid, nil
	begin()
	m.making = ""
	switch {
	case len(m.taken) == 0: // it only awaits pods, or goes on awaiting them
	case m.gone[uid]:
		m.complain("pods are stopped for %s, which was deleted", uid)
	case !placed:
		m.complain("pods are stopped for %s, which has no place", uid)
	case m.shutdown:
		m.complain("pods are stopped for %s while the machine goes down", uid)
	case !possible:
		m.complain("pods are stopped for %s, for which there can be no room", uid)
	case dearer(m.taken, best):
		m.complain("pods of the priorities %v are stopped for %s, %v are enough", m.taken, uid, best)
	}
}

// stops holds what must be so when a pod is stopped.
func (m *model) stops(r podkill.Request) {
	switch {
	case m.stopped:
		m.complain("%s is stopped when the agent stops", r.Pod.UID)
	case m.making == "":
		m.complain("%s is stopped, and no attempt to make room begins", r.Pod.UID)
	default:
		m.taken = append(m.taken, *r.Pod.Spec.Priority)
	}
}

// rejects holds that nothing else would have been possible.
func (m *model) rejects(pod *v1.Pod, status v1.PodStatus) {
	if m.shutdown || m.stopped || !kubetypes.IsCriticalPod(pod) {
		return
	}
	if m.missing(pod) <= 0 {
		m.complain("%s is rejected although its room is there: %s", pod.UID, status.Message)
	}
	if _, possible := m.optimum(pod); possible && len(m.room.Waiting()) < 64 {
		m.complain("%s is rejected although room can be made: %s", pod.UID, status.Message)
	}
}
