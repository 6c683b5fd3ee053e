package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology/zones"
)

// Name is the name of the plugin, which is that of Katalyst's.
const Name = "kubelet-reporter-plugin"

const (
	// period is the time between two readings of the managers. What a pod is given when it starts is published within 3 s.
	period = time.Second
	// minGap is the shortest time between two readings because of Changed: pods often change in groups.
	minGap = 100 * time.Millisecond
)

// Plugin implements reporter.Plugin.
type Plugin struct {
	config  Config
	changed chan struct{}

	// mu guards last.
	mu   sync.Mutex
	last *answer
}

// answer is what was reported, and what it was computed from. It is immutable.
type answer struct {
	facts    *zones.Facts
	options  zones.Options
	contents []merge.Content
}

var _ reporter.Plugin = (*Plugin)(nil)

// New returns the plugin.
func New(config Config) *Plugin { return &Plugin{config: config, changed: make(chan struct{}, 1)} }

// Changed has the stream read the managers soon: a pod was admitted, has started or has ended. It never blocks, and may
// be called at any time.
func (p *Plugin) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// GetReportContent returns topologyZone and topologyPolicy.
func (p *Plugin) GetReportContent(context.Context) ([]merge.Content, error) {
	if !p.config.Ready() {
		return nil, fmt.Errorf("%w: the managers have not been started", reporter.ErrNotCalled)
	}
	answer, err := p.read()
	if err != nil {
		return nil, err
	}
	return answer.contents, nil
}

// ListAndWatch sends topologyZone and topologyPolicy once they are known, and after each change.
func (p *Plugin) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	ticker := p.config.Clock.NewTicker(period)
	defer ticker.Stop()
	var sent *answer
	for {
		if p.config.Ready() {
			current, err := p.read()
			if err != nil {
				return err
			}
			if current != sent {
				send(current.contents)
				sent = current
			}
		}
		if err := p.wait(ctx, ticker.C()); err != nil {
			return err
		}
	}
}

// wait waits until the managers are to be read again.
func (p *Plugin) wait(ctx context.Context, tick <-chan time.Time) error {
	gap := p.config.Clock.NewTimer(minGap)
	defer gap.Stop()
	select {
	case <-gap.C():
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-tick:
	case <-p.changed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// read reads the managers. The answer is the last one, the same pointer, if nothing has changed.
func (p *Plugin) read() (*answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	facts, err := readFacts(&p.config)
	if err != nil {
		return nil, err
	}
	options := zones.Options{OnlyNUMABound: p.config.OnlyNUMABound()}
	if p.last != nil && p.last.options == options && reflect.DeepEqual(p.last.facts, facts) {
		return p.last, nil
	}
	contents, err := contentsOf(facts, options, policyOf(p.config.Policy, p.config.Scope))
	if err != nil {
		return nil, err
	}
	p.last = &answer{facts, options, contents}
	return p.last, nil
}

// contentsOf returns both fields. When the zones are larger than a value may be, those of devices are left out.
func contentsOf(f *zones.Facts, options zones.Options, policy node.TopologyPolicy) ([]merge.Content, error) {
	tree, err := json.Marshal(zones.New(f, options))
	if err == nil && len(tree) > merge.MaxValueBytes {
		options.NoDeviceZones = true
		tree, err = json.Marshal(zones.New(f, options))
	}
	if err != nil {
		return nil, err
	}
	fields := []merge.ReportField{{Part: merge.Status, Name: "TopologyZone", Value: tree}}
	if policy != "" {
		value, err := json.Marshal(policy)
		if err != nil {
			return nil, err
		}
		fields = append(fields, merge.ReportField{Part: merge.Status, Name: "TopologyPolicy", Value: value})
	}
	return []merge.Content{{Kind: node.GroupVersionKind, Fields: fields}}, nil
}

// policyOf returns Katalyst's name of a policy and a scope of the topology manager; it is empty if there is none.
func policyOf(policy, scope string) node.TopologyPolicy {
	pod := scope == kubeletconfig.PodTopologyManagerScope
	if !pod && scope != kubeletconfig.ContainerTopologyManagerScope && policy != kubeletconfig.NoneTopologyManagerPolicy {
		return ""
	}
	switch policy {
	case kubeletconfig.NoneTopologyManagerPolicy:
		return node.TopologyPolicyNone
	case kubeletconfig.BestEffortTopologyManagerPolicy:
		return level(pod, node.TopologyPolicyBestEffortPodLevel, node.TopologyPolicyBestEffortContainerLevel)
	case kubeletconfig.RestrictedTopologyManagerPolicy:
		return level(pod, node.TopologyPolicyRestrictedPodLevel, node.TopologyPolicyRestrictedContainerLevel)
	case kubeletconfig.SingleNumaNodeTopologyManagerPolicy:
		return level(pod, node.TopologyPolicySingleNUMANodePodLevel, node.TopologyPolicySingleNUMANodeContainerLevel)
	default:
		return ""
	}
}

func level(pod bool, ofPod, ofContainer node.TopologyPolicy) node.TopologyPolicy {
	if pod {
		return ofPod
	}
	return ofContainer
}
