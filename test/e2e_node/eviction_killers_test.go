//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// budgetConfig has soft victims evicted through the eviction API, the default, with short rounds.
const budgetConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
plugins:
  eviction:
    remote: ["*"]
    period: 1s
`

const (
	// guardedLabel marks the pods that a disruption budget guards.
	guardedLabel = "guarded"
	// blockedRetry is more than the time after which the kubelet asks again for an eviction that a budget forbids, 5 s.
	blockedRetry = 6 * time.Second
)

// TestDisruptionBudgetsGuardVictimsOfPlugins has a plugin request pods without force. A disruption budget forbids their
// eviction until it is relaxed, blocked pods do not keep others from being evicted, and a withdrawn request has no
// effect any more.
func TestDisruptionBudgetsGuardVictimsOfPlugins(t *testing.T) {
	s := spaceForRestart(t)
	s.withPressureConfig(budgetConfig, nil)
	t.Run("blocked, relaxed, withdrawn", func(t *testing.T) { blockedRelaxedWithdrawn(newNamespace(t)) })
	t.Run("ten blocked", func(t *testing.T) { tenBlocked(newNamespace(t)) })
}

// blockedRelaxedWithdrawn requests three of three pods that must stay.
func blockedRelaxedWithdrawn(s *space) {
	names := []string{"guarded-1", "guarded-2", "guarded-3"}
	s.guarded(len(names), names...)
	p := s.startKatalyst("katalyst-" + s.name)
	p.registered(p.started)
	p.answer(`{"serve": true, "evict": [%s]}`, s.softRequests(names...))
	s.blocked(names...)
	s.stays(inSoak(time.Minute, blockedRetry), func() error { return s.notDeleted(names...) })

	s.budget(len(names) - 1)
	relaxed := time.Now()
	var left []string
	s.eventually(pluginTimeout, func(ctx context.Context) (err error) {
		left, err = s.alive(ctx, names...)
		if err == nil && len(left) == len(names) {
			err = errors.New("the budget allows one eviction, and none of the pods was evicted")
		}
		return err
	})
	s.took("eviction after the budget was relaxed", time.Since(relaxed), pluginTimeout)
	evicted := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(left, name) })
	if len(evicted) != 1 {
		s.t.Fatalf("evicted %v, the budget allows one", evicted)
	}
	s.eventually(podTimeout, func(ctx context.Context) error {
		return s.hasEvent(ctx, evicted[0], "Evicted", "not needed")
	})
	s.stays(blockedRetry, func() error { return s.notDeleted(left...) })

	since := p.answer(`{"serve": true}`)
	p.called(since, "GetEvictPods")
	s.nothingRequested()
	s.budget(0)
	s.stays(inSoak(2*time.Minute, blockedRetry), func() error { return s.notDeleted(left...) })
}

// tenBlocked requests ten pods that must stay, and then an eleventh that nothing guards.
func tenBlocked(s *space) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("guarded-%d", i))
	}
	s.guarded(len(names), names...)
	free := s.ready(kit.Bound(kit.IdlePod("free")))
	p := s.startKatalyst("katalyst-" + s.name)
	p.registered(p.started)
	p.answer(`{"serve": true, "evict": [%s]}`, s.softRequests(names...))
	s.blocked(names...)
	since := p.answer(`{"serve": true, "evict": [%s]}`, s.softRequests(append(names, free.Name)...))
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		left, err := s.alive(ctx, free.Name)
		if err == nil && len(left) > 0 {
			err = errors.New("the pod without a budget was not evicted")
		}
		return err
	})
	s.took("eviction of the eleventh pod", time.Since(since), 10*time.Second)
	s.must(s.notDeleted(names...))
}

// guarded creates the pods, waits until they are ready, and creates a budget that keeps so many of them.
func (s *space) guarded(keep int, names ...string) {
	s.t.Helper()
	var pods []*v1.Pod
	for _, name := range names {
		pod := kit.Bound(kit.IdlePod(name))
		pod.Labels = map[string]string{guardedLabel: s.name}
		pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
		pods = append(pods, s.create(pod))
	}
	for _, pod := range pods {
		s.wait(pod, podTimeout, kit.Ready)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: guardedLabel},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{guardedLabel: s.name}},
			MinAvailable: new(intstr.FromInt32(int32(keep))),
		},
	}
	_, err := s.client.PolicyV1().PodDisruptionBudgets(s.name).Create(s.ctx, budget, metav1.CreateOptions{})
	s.must(err)
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.client.PolicyV1().PodDisruptionBudgets(s.name).Get(ctx, guardedLabel, metav1.GetOptions{})
		if err == nil && (got.Status.CurrentHealthy != int32(len(names)) || got.Status.DisruptionsAllowed != 0) {
			err = fmt.Errorf("the budget has %d healthy pods and allows %d disruptions", got.Status.CurrentHealthy,
				got.Status.DisruptionsAllowed)
		}
		return err
	})
}

// budget changes how many pods the budget keeps.
func (s *space) budget(keep int) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		budget, err := s.client.PolicyV1().PodDisruptionBudgets(s.name).Get(ctx, guardedLabel, metav1.GetOptions{})
		if err != nil {
			return err
		}
		budget.Spec.MinAvailable = new(intstr.FromInt32(int32(keep)))
		_, err = s.client.PolicyV1().PodDisruptionBudgets(s.name).Update(ctx, budget, metav1.UpdateOptions{})
		return err
	})
}

// softRequests returns the requests of a plugin for the pods, without force.
func (s *space) softRequests(names ...string) string {
	var requests []string
	for _, name := range names {
		requests = append(requests, fmt.Sprintf(`{"pod": "%s/%s", "reason": "not needed"}`, s.name, name))
	}
	return strings.Join(requests, ", ")
}

// blocked waits until each pod has the event that its eviction is forbidden.
func (s *space) blocked(names ...string) {
	s.t.Helper()
	s.eventually(2*pluginTimeout, func(ctx context.Context) error {
		for _, name := range names {
			if err := s.hasEvent(ctx, name, "EvictionBlocked", "disruption budget"); err != nil {
				return err
			}
		}
		return nil
	})
	s.must(s.notDeleted(names...))
}

// notDeleted returns an error if one of the pods is being deleted.
func (s *space) notDeleted(names ...string) error {
	left, err := s.alive(s.ctx, names...)
	if err == nil && len(left) != len(names) {
		err = fmt.Errorf("of %v only %v are not deleted", names, left)
	}
	return err
}

// alive returns the pods that are not being deleted.
func (s *space) alive(ctx context.Context, names ...string) (left []string, err error) {
	for _, name := range names {
		switch pod, err := s.client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case pod.DeletionTimestamp == nil:
			left = append(left, name)
		}
	}
	return left, nil
}

// nothingRequested waits until the page shows no request of a plugin.
func (s *space) nothingRequested() {
	s.t.Helper()
	s.eventually(pluginTimeout, func(context.Context) error {
		if n := len(s.pluginPage().Requests); n > 0 {
			return fmt.Errorf("%d pods are requested", n)
		}
		return nil
	})
}
