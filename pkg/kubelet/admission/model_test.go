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

// TestPreemptionModel applies random histories to the real parts of a node on virtual time: critical pods that arrive
// and are deleted, victims that end at once, late, in an escalation step, never, or while the admit handlers run,
// shutdowns that are cancelled, more waiting pods than the limit, and the stop of the agent, in which the pod workers
// may stop first. The messages of model.fail are the invariants.
func TestPreemptionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		history := rapid.SliceOfN(rapid.Custom(drawStep), 1, 30).Draw(rt, "history")
		workersFirst := rapid.Bool().Draw(rt, "workersFirst")
		var failures []string
		synctest.Test(t, func(t *testing.T) { failures = newModel(t).play(history, workersFirst) })
		if len(failures) > 0 {
			rt.Fatalf("%s", failures[0])
		}
	})
}

// capacity of the node in thousandths of a CPU.
const capacity = 10_000

// Kinds of steps.
const (
	ordinaryArrives = iota
	criticalArrives
	staticArrives
	manyArrive
	deleted
	removed
	ends
	endsAfterList
	endsDuringHandlers
	shutdownToggles
	timeAdvances
	kinds
)

// step is one step of a history.
type step struct {
	Kind int
	// MilliCPU is the request of a pod that arrives, Priority its priority among pods of its kind, StopTime how long it
	// takes to stop.
	MilliCPU int64
	Priority int32
	StopTime time.Duration
	// Pod is the number of the pod that the step applies to.
	Pod     int
	Seconds int
}

func drawStep(t *rapid.T) step {
	kind := rapid.IntRange(0, kinds+6).Draw(t, "kind")
	switch {
	case kind >= kinds+3:
		kind = ordinaryArrives
	case kind >= kinds:
		kind = criticalArrives
	case kind == manyArrive && rapid.IntRange(0, 9).Draw(t, "many") > 0:
		kind = timeAdvances
	}
	stopTimes := []time.Duration{0, 3 * time.Second, grace, 16 * time.Second, 28 * time.Second, 42 * time.Second, never}
	return step{
		Kind:     kind,
		MilliCPU: 500 * rapid.Int64Range(1, 12).Draw(t, "size"),
		Priority: rapid.Int32Range(0, 2).Draw(t, "priority"),
		StopTime: rapid.SampledFrom(stopTimes).Draw(t, "stopTime"),
		Pod:      rapid.IntRange(0, 30).Draw(t, "pod"),
		Seconds:  rapid.IntRange(1, 50).Draw(t, "seconds"),
	}
}

// model is a world with a second implementation of the decisions, and checks on what the first one does.
type model struct {
	*world
	pods []*v1.Pod
	// gone are the pods that were deleted, or removed from their source.
	gone, removed map[types.UID]bool
	failures      []string
	// preemptor is the pod whose attempt begins at this moment, victimPriorities the priorities of the pods that are
	// stopped for it.
	preemptor        types.UID
	victimPriorities []int32
	// begun are the pods whose termination was begun for a preemptor, and whose event has not come yet.
	begun   map[types.UID]bool
	stopped bool
	// idle counts the seconds for which a pod waits although it would fit, stalled those in which nothing is stopping.
	idle, stalled map[types.UID]int
}

func newModel(t *testing.T) *model {
	m := &model{
		world: newWorld(t), gone: map[types.UID]bool{}, removed: map[types.UID]bool{},
		idle: map[types.UID]int{}, stalled: map[types.UID]int{}, begun: map[types.UID]bool{},
	}
	m.onBegin, m.onKill, m.onReject, m.onEvent = m.checkBegin, m.checkKill, m.checkReject, m.checkEvent
	return m
}

func (m *model) fail(format string, args ...any) {
	m.failures = append(m.failures, fmt.Sprintf(format, args...))
}

// play applies a history, waits until attempts have ended, and stops the agent.
func (m *model) play(history []step, workersFirst bool) []string {
	for _, s := range history {
		m.apply(s)
	}
	m.shutdown = false
	m.elapse(70)
	m.apply(step{Kind: criticalArrives, MilliCPU: 3000, Priority: 2})
	m.stopped = true
	failed := m.withFailedVictims()
	stops := []func(){func() { m.stop(); <-m.ended }, m.stopWorkers}
	if workersFirst {
		slices.Reverse(stops)
	}
	// No time passes, so that no victim outlives the last escalation step meanwhile.
	stops[0]()
	synctest.Wait()
	m.RetryWaiting(m.ctx)
	m.arrive(critical("too-late", 2000), 0)
	m.RetryWaiting(m.ctx)
	synctest.Wait()
	for _, uid := range m.withFailedVictims() {
		if !slices.Contains(failed, uid) {
			m.fail("victims of %s count as failed since the agent stops", uid)
		}
	}
	stops[1]()
	m.RetryWaiting(m.ctx)
	for uid := range m.begun {
		m.fail("the preemption of %s has no event", uid)
	}
	return m.failures
}

// withFailedVictims returns the pods for which victims of an attempt did not stop.
func (m *model) withFailedVictims() (uids []types.UID) {
	for _, pod := range m.pods {
		if m.victims.Failed(pod.UID) {
			uids = append(uids, pod.UID)
		}
	}
	return uids
}

func (m *model) stopWorkers() {
	if err := m.workers.Stop(context.Background()); err != nil {
		m.fail("%v", err)
	}
}

func (m *model) apply(s step) {
	name := fmt.Sprintf("pod-%02d", len(m.pods))
	var pod *v1.Pod
	if len(m.pods) > 0 {
		pod = m.pods[s.Pod%len(m.pods)]
	}
	switch {
	case s.Kind == ordinaryArrives || s.Kind == staticArrives:
		p := newPod(name, s.MilliCPU)
		*p.Spec.Priority = s.Priority
		if s.Kind == staticArrives {
			p.Annotations[kubetypes.ConfigSourceAnnotationKey] = kubetypes.FileSource
		}
		m.arrive(p, s.StopTime)
	case s.Kind == criticalArrives:
		m.arrive(important(name, s), s.StopTime)
	case s.Kind == manyArrive:
		for i := range 60 + s.Pod%10 {
			m.arrive(critical(fmt.Sprintf("%s-%02d", name, i), 10), s.StopTime)
		}
	case s.Kind == shutdownToggles:
		m.shutdown = !m.shutdown
	case s.Kind == timeAdvances:
		m.elapse(s.Seconds)
	case pod == nil || m.gone[pod.UID]:
	case s.Kind == deleted:
		m.gone[pod.UID] = true
		m.delete(pod)
		m.checkRemoved(pod)
	case s.Kind == removed:
		m.gone[pod.UID], m.removed[pod.UID] = true, true
		m.Remove(m.ctx, []*v1.Pod{pod})
		synctest.Wait()
		m.checkRemoved(pod)
	case s.Kind == ends:
		if m.runs(pod) {
			m.kill(pod)
		}
	case s.Kind == endsAfterList:
		m.onList = m.once(&m.onList, pod)
	case s.Kind == endsDuringHandlers:
		m.onHandlers = m.once(&m.onHandlers, pod)
	}
}

func important(name string, s step) *v1.Pod {
	p := critical(name, s.MilliCPU)
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
				m.finishStopping(p.UID)
				return
			}
		}
	}
}

func (m *model) arrive(pod *v1.Pod, takes time.Duration) {
	m.mu.Lock()
	m.stopTime[pod.UID] = takes
	m.mu.Unlock()
	m.pods = append(m.pods, pod)
	m.add(pod)
}

// checkRemoved checks that nothing is done any more for a pod that was deleted or removed.
func (m *model) checkRemoved(pod *v1.Pod) {
	if m.victims.InProgress(pod.UID) || slices.Contains(m.waiting.UIDs(), pod.UID) {
		m.fail("an attempt for %s is in progress, which was deleted", pod.UID)
	}
}

func (m *model) phase(uid types.UID) podlifecycle.Phase {
	state, _ := m.store.State(uid)
	return state.Phase
}

// elapse advances the time and checks that each waiting pod has a reason to wait.
func (m *model) elapse(seconds int) {
	for range seconds {
		m.advance(1)
		if m.shutdown {
			continue
		}
		for _, uid := range m.waiting.UIDs() {
			m.checkWaiting(m.podOf(uid))
		}
	}
}

// The longest time in seconds for which a pod may wait although it would fit, or although nothing is stopping. The
// second is as long as a stop request waits for the pod's end, because an awaited pod may be past the last escalation
// step at its beginning.
const longestIdle, longestStall = 2, 18

func (m *model) checkWaiting(pod *v1.Pod) {
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
		m.fail("%s waits although it would fit", pod.UID)
	}
	if count(m.stalled, missing > 0 && !slices.ContainsFunc(m.pods, m.willRelease)) > longestStall {
		m.fail("%s waits, and nothing is stopping", pod.UID)
	}
}

func (m *model) podOf(uid types.UID) *v1.Pod {
	return m.pods[slices.IndexFunc(m.pods, func(p *v1.Pod) bool { return p.UID == uid })]
}

func milliCPU(pod *v1.Pod) int64 { return pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

// others are the pods that compete with a pod: those that use the node, and those that wait, arrived before it and
// cannot be preempted by it.
func (m *model) others(pod *v1.Pod) (using, waiting []*v1.Pod) {
	queue := m.waiting.UIDs()
	own := slices.Index(queue, pod.UID)
	for _, p := range m.pods {
		at := slices.Index(queue, p.UID)
		switch phase := m.phase(p.UID); {
		case p.UID == pod.UID || m.removed[p.UID]: // as with stock, a pod that its source has removed does not count
		case phase >= podlifecycle.Known && phase <= podlifecycle.Terminating:
			using = append(using, p)
		case at >= 0 && (own < 0 || at < own) && !kubetypes.Preemptable(pod, p):
			waiting = append(waiting, p)
		}
	}
	return using, waiting
}

// willRelease is true for a pod that will free its resources without further action.
func (m *model) willRelease(pod *v1.Pod) bool {
	return m.phase(pod.UID) == podlifecycle.Terminating && m.overdue()[pod.UID].Step != escalation.Report
}

// missing is how much CPU the pod lacks at this moment, in thousandths.
func (m *model) missing(pod *v1.Pod) int64 {
	using, waiting := m.others(pod)
	missing := milliCPU(pod) - capacity
	for _, p := range slices.Concat(using, waiting) {
		missing += milliCPU(p)
	}
	return missing
}

// optimum returns the priorities of the best victims for the pod at this moment; false when no set of victims suffices.
func (m *model) optimum(pod *v1.Pod) ([]int32, bool) {
	missing := m.missing(pod)
	using, _ := m.others(pod)
	priorities := map[types.UID]int32{}
	var candidates []plan.Candidate
	for _, p := range using {
		terminating := m.willRelease(p)
		preemptable := !kubetypes.IsStaticPod(p) && kubetypes.Preemptable(pod, p)
		if !terminating && (m.phase(p.UID) == podlifecycle.Terminating || !preemptable) {
			continue
		}
		priorities[p.UID] = *p.Spec.Priority
		candidates = append(candidates, plan.Candidate{
			UID: p.UID, Priority: *p.Spec.Priority, QOS: v1.PodQOSBurstable, Terminating: terminating,
			Requests: map[v1.ResourceName]int64{v1.ResourceCPU: milliCPU(p)},
		})
	}
	victims, ok := plan.Choose(plan.Need{v1.ResourceCPU: missing}, candidates)
	var cost []int32
	for _, uid := range victims.Stop {
		cost = append(cost, priorities[uid])
	}
	return cost, ok
}

// costsMore orders sets of victims as package plan does: fewer of the highest priority first.
func costsMore(a, b []int32) bool {
	descending := func(s []int32) []int32 {
		return slices.SortedFunc(slices.Values(s), func(x, y int32) int { return cmp.Compare(y, x) })
	}
	return slices.Compare(descending(a), descending(b)) > 0
}

// checkBegin checks the beginning of an attempt for the given pod.
func (m *model) checkBegin(uid types.UID, begin func()) {
	best, possible := m.optimum(m.podOf(uid))
	waiting := m.waiting.IsWaitingForVictims(uid)
	m.preemptor, m.victimPriorities = uid, nil
	begin()
	m.preemptor = ""
	switch {
	case len(m.victimPriorities) == 0: // it only awaits terminating pods
	case m.gone[uid]:
		m.fail("pods are stopped for %s, which was deleted", uid)
	case !waiting:
		m.fail("pods are stopped for %s, which does not wait", uid)
	case m.shutdown:
		m.fail("pods are stopped for %s while the machine shuts down", uid)
	case !possible:
		m.fail("pods are stopped for %s, for which no set of victims suffices", uid)
	case costsMore(m.victimPriorities, best):
		m.fail("pods of the priorities %v are stopped for %s, %v are enough", m.victimPriorities, uid, best)
	}
}

// checkKill checks the request to stop a pod.
func (m *model) checkKill(r podkill.Request) {
	switch {
	case m.stopped:
		m.fail("%s is stopped when the agent stops", r.Pod.UID)
	case m.preemptor == "":
		m.fail("%s is stoppedoutside the beginning of an attempt", r.Pod.UID)
	default:
		m.victimPriorities = append(m.victimPriorities, *r.Pod.Spec.Priority)
		m.begun[r.Pod.UID] = true
	}
}

// checkEvent checks that an event comes once, after the pod workers have accepted the request.
func (m *model) checkEvent(pod *v1.Pod) {
	if !m.begun[pod.UID] {
		m.fail("%s has an event, and its termination was not begun for a preemptor", pod.UID)
	}
	delete(m.begun, pod.UID)
}

// checkReject checks that a rejection could not be avoided.
func (m *model) checkReject(pod *v1.Pod, status v1.PodStatus) {
	if m.shutdown || m.stopped || !kubetypes.IsCriticalPod(pod) {
		return
	}
	if m.missing(pod) <= 0 {
		m.fail("%s is rejected although it would fit: %s", pod.UID, status.Message)
	}
	if _, possible := m.optimum(pod); possible && len(m.waiting.UIDs()) < 64 {
		m.fail("%s is rejected although there are victims: %s", pod.UID, status.Message)
	}
}
