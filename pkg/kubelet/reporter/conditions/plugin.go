package conditions

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Name is the name of the plugin.
const Name = v1alpha1.ConditionsReporterPlugin

// Condition is a condition of the CustomNodeResource that is True.
type Condition struct {
	// Name has no prefix.
	Name string
	// Effects have the form <QoS level>/<effect>; others are left out.
	Effects []string
}

// Plugin is a reporter plugin in the agent. It is safe for concurrent use.
type Plugin struct {
	conditions func() []Condition

	mu sync.Mutex
	// changed is closed by the next call of Changed.
	changed chan struct{}
}

// New returns the plugin. conditions returns the conditions that are True now, and may be called at any time.
func New(conditions func() []Condition) *Plugin {
	return &Plugin{conditions: conditions, changed: make(chan struct{})}
}

// Changed must be called after the conditions may have changed. It returns at once.
func (p *Plugin) Changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// GetReportContent returns the taints.
func (p *Plugin) GetReportContent(context.Context) ([]merge.Content, error) {
	return Contents(p.conditions())
}

// ListAndWatch sends the taints at once and after each change, until ctx ends.
func (p *Plugin) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		contents, err := Contents(p.conditions())
		if err != nil {
			return err
		}
		send(contents)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Contents returns the taints of conditions as the content of a report, which is empty if there are none.
func Contents(list []Condition) ([]merge.Content, error) {
	var taints []node.Taint
	for _, c := range list {
		for _, effect := range c.Effects {
			if level, effect, found := strings.Cut(effect, "/"); found {
				taints = append(taints, node.Taint{
					Taint:    v1.Taint{Key: arbiter.ConditionPrefix + c.Name, Effect: v1.TaintEffect(effect)},
					QoSLevel: node.QoSLevel(level),
				})
			}
		}
	}
	if len(taints) == 0 {
		return nil, nil
	}
	value, err := json.Marshal(taints)
	if err != nil {
		return nil, err
	}
	return []merge.Content{{
		Kind: node.GroupVersionKind, Fields: []merge.ReportField{{Part: merge.Spec, Name: taintsField, Value: value}},
	}}, nil
}

// Parse returns the conditions whose taints are in the content of a report, which may be that of an earlier run of the
// agent. What is no taint of a condition is left out.
func Parse(contents []merge.Content) (list []Condition) {
	for i := range contents {
		for _, field := range contents[i].Fields {
			var taints []node.Taint
			if field.Name != taintsField || json.Unmarshal(field.Value, &taints) != nil {
				continue
			}
			for _, t := range taints {
				if name, ours := strings.CutPrefix(t.Key, arbiter.ConditionPrefix); ours {
					list = add(list, name, string(t.QoSLevel)+"/"+string(t.Effect))
				}
			}
		}
	}
	return list
}

// taintsField is the name of the Go field of taints.
const taintsField = "Taints"

func add(list []Condition, name, effect string) []Condition {
	i := slices.IndexFunc(list, func(c Condition) bool { return c.Name == name })
	if i < 0 {
		list, i = append(list, Condition{Name: name}), len(list)
	}
	list[i].Effects = append(list[i].Effects, effect)
	return list
}
