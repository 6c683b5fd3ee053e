package main

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubewharf/katalyst-api/pkg/plugins/skeleton"
	"github.com/kubewharf/katalyst-api/pkg/protocol/evictionplugin/v1alpha1"
)

// plugin is an eviction plugin that answers what its control file says.
type plugin struct {
	skeleton.DummyEvictionPlugin
	calls   *callFile
	name    string
	control string
}

func (p *plugin) Name() string { return p.name }

// GetToken is not among the recorded calls.
func (p *plugin) GetToken(ctx context.Context, r *v1alpha1.Empty) (*v1alpha1.GetTokenResponse, error) {
	a, err := readAnswers(p.control)
	if err != nil {
		return nil, err
	}
	if a.Token == "" {
		return p.DummyEvictionPlugin.GetToken(ctx, r)
	}
	return &v1alpha1.GetTokenResponse{Token: a.Token}, nil
}

func (p *plugin) GetEvictPods(
	_ context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	a, err := p.answer(call{Call: "GetEvictPods"}, r.ActivePods)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.GetEvictPodsResponse{Condition: a.Condition.message()}
	for _, e := range a.Evict {
		answer.EvictPods = append(answer.EvictPods, &v1alpha1.EvictPod{
			Pod: podOf(e.Pod, r.ActivePods), Reason: e.Reason, DeletionOptions: options(e.GraceSeconds),
			ForceEvict: e.Force, EvictionPluginName: p.name,
		})
	}
	return answer, nil
}

func (p *plugin) ThresholdMet(
	_ context.Context, r *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	a, err := p.answer(call{Call: "ThresholdMet"}, r.ActivePods)
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.ThresholdMetResponse{Condition: a.Condition.message()}
	t := a.Threshold
	if t == nil {
		return answer, nil
	}
	met, ok := v1alpha1.ThresholdMetType_value[t.Met]
	if !ok {
		return nil, fmt.Errorf("unknown type of threshold %q", t.Met)
	}
	answer.MetType, answer.EvictionScope = v1alpha1.ThresholdMetType(met), t.Scope
	answer.ThresholdValue, answer.ObservedValue = t.Target, t.Observed
	if !t.LessThan {
		answer.ThresholdOperator = v1alpha1.ThresholdOperator_GREATER_THAN
	}
	answer.GracePeriodSeconds, answer.CandidatePods = t.GraceSeconds, podsOf(t.Candidates, r.ActivePods)
	return answer, nil
}

func (p *plugin) GetTopEvictionPods(
	_ context.Context, r *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	a, err := p.answer(call{Call: "GetTopEvictionPods", TopN: r.TopN, Scope: r.EvictionScope}, r.ActivePods)
	if err != nil {
		return nil, err
	}
	if a.Top == nil {
		return &v1alpha1.GetTopEvictionPodsResponse{}, nil
	}
	return &v1alpha1.GetTopEvictionPodsResponse{
		TargetPods: podsOf(a.Top.Pods, r.ActivePods), DeletionOptions: options(a.Top.GraceSeconds),
	}, nil
}

// answer records the call and reads what to answer.
func (p *plugin) answer(c call, active []*v1.Pod) (*answers, error) {
	c.Time, c.Pods = time.Now(), []string{}
	for _, pod := range active {
		c.Pods = append(c.Pods, pod.Namespace+"/"+pod.Name)
	}
	if err := p.calls.add(c); err != nil {
		return nil, err
	}
	return readAnswers(p.control)
}
