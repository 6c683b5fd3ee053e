package nodeshutdown

import (
	"context"
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

// lookAgain is how often an agent that was started while the machine goes down looks for pods that have come since.
const lookAgain = time.Second

// stopping is one stopping of the pods.
type stopping struct {
	*Manager
	periods []plan.Period
	cancel  context.CancelFunc
	// groups is closed when every group was stopped or has had its time; by then the lock is of no more use.
	groups chan struct{}
	// kills are those under way, also of groups that have had their time.
	kills sync.WaitGroup
	// asked are the pods that were told to stop, returning those of them that start again. For the goroutine that stops
	// until groups is closed.
	asked     sets.Set[types.UID]
	returning []*v1.Pod
}

// begin stops the pods beside the caller, until the agent ends.
func (s *stopping) begin(agent context.Context, late bool) {
	m := s.Manager
	s.groups, s.asked = make(chan struct{}), sets.New[types.UID]()
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(agent)
	m.work.Go(func() {
		defer s.kills.Wait()
		defer close(s.groups)
		start := m.cfg.Clock.Now()
		m.keep(ctx, times{StartTime: start})
		if late {
			s.await(ctx)
		}
		s.stop(ctx)
		for late && s.sleep(ctx) {
			s.stop(ctx)
		}
		if agent.Err() == nil {
			m.keep(ctx, times{StartTime: start, EndTime: m.cfg.Clock.Now()})
		}
	})
}

func (s *stopping) over() bool {
	select {
	case <-s.groups:
		return true
	default:
		return false
	}
}

// end breaks the stopping off and returns the pods that are to be started again. Pods that are being stopped go on
// stopping.
func (s *stopping) end() []*v1.Pod {
	s.cancel()
	<-s.groups
	s.kills.Wait()
	return s.returning
}

// await returns when every source has told its pods, or when ctx ends.
func (s *stopping) await(ctx context.Context) {
	for !s.cfg.Pods.Ready() && s.sleep(ctx) {
	}
}

// sleep is false when ctx has ended.
func (s *stopping) sleep(ctx context.Context) bool {
	timer := s.cfg.Clock.NewTimer(lookAgain)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// stop stops the active pods, group after group, except those that were told to stop before.
func (s *stopping) stop(ctx context.Context) {
	var pods []*v1.Pod
	for _, pod := range s.cfg.Pods.Active() {
		if !s.asked.Has(pod.UID) {
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

// stopGroup returns when the pods of the group are stopped and their volumes unmounted (a CSI driver may be in the next
// group), or when their time is over.
func (s *stopping) stopGroup(ctx context.Context, group plan.Group) {
	logger := klog.FromContext(ctx)
	inTime, cancel := context.WithCancel(ctx)
	defer cancel()
	var own sync.WaitGroup
	for _, pod := range group.Pods {
		s.asked.Insert(pod.UID)
		var disruption *podkill.Disruption
		switch {
		case s.returns(pod):
			s.returning = append(s.returning, pod)
		case !kubetypes.IsStaticPod(pod):
			disruption = failed(pod)
		default:
			// It is being stopped already. Its file may be there again, and then the next life must not begin as a
			// failed one.
		}
		grace := group.Grace(pod)
		own.Add(1)
		s.kills.Go(func() {
			defer own.Done()
			s.kill(ctx, podkill.Request{Pod: pod, GracePeriodSeconds: &grace, Disruption: disruption})
		})
	}
	done := make(chan struct{})
	s.work.Go(func() {
		defer close(done)
		own.Wait()
		if inTime.Err() != nil {
			return
		}
		if err := s.cfg.Pods.Unmounted(inTime, group.Pods); err != nil && ctx.Err() == nil {
			logger.Error(err, "Volumes of pods that were stopped for the shutdown are not unmounted", "pods",
				klog.KObjSlice(group.Pods))
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

func (s *stopping) kill(ctx context.Context, r podkill.Request) {
	logger := klog.FromContext(ctx).WithValues("pod", klog.KObj(r.Pod))
	logger.V(1).Info("Shutdown manager killing pod with gracePeriod",
		"gracePeriod", *r.GracePeriodSeconds, "fails", r.Disruption != nil)
	_, ended := s.cfg.Pods.Kill(ctx, r)
	if ending := <-ended; ending.Outcome != podkill.Stopped {
		logger.V(1).Info("Shutdown manager failed killing pod", "outcome", ending.Outcome, "err", ending.Err)
		return
	}
	logger.V(1).Info("Shutdown manager finished killing pod")
}
