package nodeshutdown

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// podPollPeriod is the interval at which an agent that was started during a shutdown, or shortly before, checks for
// further pods, and at which it checks whether an overdue pod has stopped.
const podPollPeriod = time.Second

// podStop stops the pods for one shutdown.
type podStop struct {
	*Manager
	periods []plan.Period
	cancel  context.CancelFunc
	// groupsDone is closed when each group has stopped or its period is over. The lock is then not needed any more.
	groupsDone chan struct{}
	// kills are the kills in flight, also those of groups whose period is over.
	kills sync.WaitGroup
	// requested are the pods whose kill was requested, restarting those of them that start again with the node. Only the
	// goroutine of begin uses them until groupsDone is closed.
	requested  sets.Set[types.UID]
	restarting []*v1.Pod
}

// begin stops the pods in a goroutine, until agent ends. Until all sources have reported, it also stops the pods that
// are reported meanwhile, at most for the total of the periods. If the agent was started during the shutdown
// (startedDuring), it first waits for all sources, and stops pods that are reported later without a limit of time.
func (s *podStop) begin(agent context.Context, startedDuring bool) {
	m := s.Manager
	s.groupsDone, s.requested = make(chan struct{}), sets.New[types.UID]()
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(agent)
	m.work.Go(func() {
		defer s.kills.Wait()
		defer close(s.groupsDone)
		start := m.cfg.Clock.Now()
		m.storeTimes(ctx, times{StartTime: start}) // No kill waits for a disk.
		if startedDuring {
			s.awaitSources(ctx)
		}
		end := start.Add(plan.Total(s.periods))
		for {
			complete := !startedDuring && (m.cfg.Pods.SourcesReady() || !m.cfg.Clock.Now().Before(end))
			s.stopActive(ctx)
			if complete || !s.sleep(ctx) {
				break
			}
		}
		if agent.Err() == nil {
			m.await(m.storeTimes(ctx, times{StartTime: start, EndTime: m.cfg.Clock.Now()}), storePatience)
		}
	})
}

// isDone returns true if groupsDone is closed.
func (s *podStop) isDone() bool {
	select {
	case <-s.groupsDone:
		return true
	default:
		return false
	}
}

// end cancels the stop and returns the pods to be restarted. Pods that are terminating are not affected.
func (s *podStop) end() []*v1.Pod {
	s.cancel()
	<-s.groupsDone
	s.kills.Wait()
	return s.restarting
}

// awaitSources returns when all sources have reported their pods, or when ctx ends.
func (s *podStop) awaitSources(ctx context.Context) {
	for !s.cfg.Pods.SourcesReady() && s.sleep(ctx) {
	}
}

// sleep waits for podPollPeriod. It returns false if ctx ends first.
func (s *podStop) sleep(ctx context.Context) bool {
	timer := s.cfg.Clock.NewTimer(podPollPeriod)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// stopActive stops the active pods whose kill was not requested yet, one group after the other.
func (s *podStop) stopActive(ctx context.Context) {
	var pods []*v1.Pod
	for _, pod := range s.cfg.Pods.Active() {
		if !s.requested.Has(pod.UID) {
			pods = append(pods, pod)
		}
	}
	for _, group := range plan.Groups(s.periods, pods) {
		if ctx.Err() != nil {
			return
		}
		s.stopGroup(ctx, group)
	}
}

// stopGroup returns when the pods of the group have stopped, overdue ones included, and their volumes are unmounted (a
// CSI driver may be in the next group), or when the period of the group is over.
func (s *podStop) stopGroup(ctx context.Context, group plan.Group) {
	logger := klog.FromContext(ctx)
	period, cancel := context.WithCancel(ctx)
	defer cancel()
	var own sync.WaitGroup
	for _, pod := range group.Pods {
		s.requested.Insert(pod.UID)
		var disruption *podkill.Disruption
		switch {
		case s.markRestarting(pod):
			same := func(other *v1.Pod) bool { return other.UID == pod.UID }
			if !slices.ContainsFunc(s.restarting, same) {
				s.restarting = append(s.restarting, pod)
			}
		case !kubetypes.IsStaticPod(pod):
			disruption = failedDisruption(pod)
		default:
			// A static pod that is terminating already. Its file may exist again, and the next instance must not begin as
			// Failed.
		}
		grace := group.Grace(pod)
		own.Add(1)
		s.kills.Go(func() {
			defer own.Done()
			overdue := s.kill(ctx, podkill.Request{Pod: pod, GracePeriodSeconds: &grace, Disruption: disruption})
			for overdue && s.isActive(pod) && s.sleep(period) {
			}
		})
	}
	done := make(chan struct{})
	s.work.Go(func() {
		defer close(done)
		own.Wait()
		if ctx.Err() != nil || period.Err() != nil { // The end of ctx ends period a moment later.
			return
		}
		if err := s.cfg.Pods.WaitForUnmount(period, group.Pods); err != nil && ctx.Err() == nil {
			logger.Error(err, "Failed to wait for the unmount of volumes of stopped pods", "pods", klog.KObjSlice(group.Pods))
		}
	})
	timer := s.cfg.Clock.NewTimer(time.Duration(group.Seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-done:
		logger.V(1).Info("Done waiting for all pods in group to terminate", "gracePeriod", group.Seconds, "priority",
			group.Priority)
	case <-timer.C():
		logger.V(1).Info("Shutdown manager pod killing time out", "gracePeriod", group.Seconds, "priority", group.Priority)
	case <-ctx.Done():
	}
}

// isActive returns whether the pod may have running containers.
func (s *podStop) isActive(pod *v1.Pod) bool {
	return slices.ContainsFunc(s.cfg.Pods.Active(), func(other *v1.Pod) bool { return other.UID == pod.UID })
}

// kill returns whether the pod has not stopped in time. Its termination continues then.
func (s *podStop) kill(ctx context.Context, r podkill.Request) (overdue bool) {
	logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(r.Pod))
	logger.V(1).Info("Shutdown manager killing pod with gracePeriod",
		"gracePeriod", *r.GracePeriodSeconds, "fails", r.Disruption != nil)
	_, ended := s.cfg.Pods.Kill(ctx, r)
	if ending := <-ended; ending.Outcome != podkill.Stopped {
		logger.V(1).Info("Shutdown manager failed killing pod", "outcome", ending.Outcome, "err", ending.Err)
		return ending.Outcome == podkill.Overdue
	}
	logger.V(1).Info("Shutdown manager finished killing pod")
	return false
}
