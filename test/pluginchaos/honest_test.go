package pluginchaos

import (
	"context"
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

const plugins = 5 // of each kind

// honest names its pods one after the other: in each round the pods that it has named before and that are still there,
// or else one more.
type honest struct {
	v1alpha1.UnimplementedEvictionPluginServer
	name string
	// hard: the plugin has a hard threshold. Otherwise it demands pods, by force or not.
	hard, force bool
	out         *output

	mu    sync.Mutex
	named map[string]bool
}

func honestName(i int) string { return fmt.Sprintf("honest-%d", i) }

// honestPlugins: three demand pods by force, one demands them without force, one has a hard threshold.
func honestPlugins(directory string, out *output) func() {
	var list []*instance
	for i := range plugins {
		p := &honest{name: honestName(i), hard: i == 3, force: i != 4, out: out, named: map[string]bool{}}
		list = append(list, serve(socketOf(directory, p.name), &registrar{name: p.name}, p, nil))
	}
	return func() {
		for _, i := range list {
			i.stop()
		}
	}
}

// choose returns the pods to name.
func (p *honest) choose(encoded [][]byte) (chosen [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var fresh []byte
	var freshName string
	for _, bytes := range encoded {
		var pod v1.Pod
		if err := pod.Unmarshal(bytes); err != nil {
			panic(err)
		}
		switch {
		case !strings.HasPrefix(pod.Name, p.name+"-"):
		case p.named[pod.Name]:
			chosen = append(chosen, bytes)
		case fresh == nil:
			fresh, freshName = bytes, pod.Name
		}
	}
	if len(chosen) == 0 && fresh != nil {
		p.named[freshName] = true
		p.out.write("named %s %s %d", p.name, freshName, monotonic())
		return [][]byte{fresh}
	}
	return chosen
}

func (p *honest) GetEvictPods(
	_ context.Context, r *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	answer := &v1alpha1.GetEvictPodsResponse{}
	if p.hard {
		return answer, nil
	}
	for _, pod := range p.choose(r.ActivePods) {
		answer.EvictPods = append(answer.EvictPods,
			&v1alpha1.EvictPod{Pod: pod, Reason: "of " + p.name, ForceEvict: p.force})
	}
	return answer, nil
}

func (p *honest) ThresholdMet(
	_ context.Context, _ *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	if !p.hard {
		return &v1alpha1.ThresholdMetResponse{}, nil
	}
	return &v1alpha1.ThresholdMetResponse{MetType: v1alpha1.ThresholdMetType_HARD_MET, EvictionScope: "memory",
		ThresholdOperator: v1alpha1.ThresholdOperator_GREATER_THAN, ThresholdValue: 1, ObservedValue: 2}, nil
}

func (p *honest) GetTopEvictionPods(
	_ context.Context, r *v1alpha1.GetTopEvictionPodsRequest,
) (*v1alpha1.GetTopEvictionPodsResponse, error) {
	return &v1alpha1.GetTopEvictionPodsResponse{TargetPods: p.choose(r.ActivePods)}, nil
}

// idlePlugins are 20 plugins that never name a pod.
func idlePlugins(directory string, _ *output) func() {
	var list []*instance
	for i := range 20 {
		p := &honest{name: fmt.Sprintf("idle-%d", i), named: map[string]bool{}}
		list = append(list, serve(socketOf(directory, p.name), &registrar{name: p.name}, p, nil))
	}
	return func() {
		for _, i := range list {
			i.stop()
		}
	}
}
