package remote

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// Limits of answers.
const (
	// maxPods is how many pods of one answer are decoded.
	maxPods = 500
	// maxScalars is the greatest size of the scalar fields of an answer, in bytes; maxPart that of one condition or of
	// deletion options.
	maxScalars, maxPart = 4 << 10, 4 << 10
	// maxScope and maxReason are the greatest lengths of a scope and of a reason, in bytes. The arbiter shortens reasons
	// further.
	maxScope, maxReason = 128, 2 << 10
	// maxThresholdGrace is the longest time for which a threshold must be met.
	maxThresholdGrace = time.Hour
)

// part is a part of an answer. Its values are labels of metrics.
type part string

const (
	invalidPod       part = "pod"
	invalidCondition part = "condition"
	invalidOptions   part = "deletion_options"
	// excessPod is a pod beyond maxPods.
	excessPod part = "excess_pod"
)

// leftOut counts the parts of an answer that were left out.
type leftOut map[part]int

// parts are the fields of an answer, still encoded.
type parts struct {
	pods [][]byte
	// condition and options are the last of their fields, nil if there is none.
	condition, options []byte
	// scalars are the scalar fields, and strings.
	scalars []byte
	left    leftOut
}

var errTooLarge = errors.New("the scalar fields have more than 4 KiB")

// layout has the numbers of the fields of an answer, 0 for a field that the answer does not have. The scalar fields are
// those up to scalars.
type layout struct {
	pods, condition, options, scalars protowire.Number
}

var (
	evictPodsAnswer = layout{pods: 1, condition: 2}
	thresholdAnswer = layout{pods: 8, condition: 7, scalars: 6}
	topPodsAnswer   = layout{pods: 1, options: 2}
)

// split separates the fields of an answer. Only the first maxPods pods are kept. Unknown fields are ignored.
func (l *layout) split(answer []byte) (*parts, error) {
	p := &parts{left: leftOut{}}
	// An answer may have two million fields, so that they are not counted in the map.
	var excess, conditions, options int
	err := fields(answer, func(number protowire.Number, typ protowire.Type, value, whole []byte) error {
		if number == l.pods || number == l.condition || number == l.options {
			if typ != protowire.BytesType {
				return errWireType
			}
		}
		switch number {
		case l.pods:
			if len(p.pods) == maxPods {
				excess++
				return nil
			}
			p.pods = append(p.pods, value)
		case l.condition:
			conditions += replace(&p.condition, value)
		case l.options:
			options += replace(&p.options, value)
		default:
			if number <= l.scalars {
				p.scalars = append(p.scalars, whole...)
			}
			if len(p.scalars) > maxScalars {
				return errTooLarge
			}
		}
		return nil
	})
	p.left.add(excessPod, excess)
	p.left.add(invalidCondition, conditions)
	p.left.add(invalidOptions, options)
	return p, err
}

// add counts parts. A part that is not left out has no entry.
func (l leftOut) add(p part, n int) {
	if n > 0 {
		l[p] += n
	}
}

// replace keeps the last of several fields that a message should have once, and returns how many it replaces.
func replace(have *[]byte, value []byte) (replaced int) {
	if *have != nil {
		replaced = 1
	}
	*have = value
	return replaced
}

// demandOf decodes a GetEvictPodsResponse.
func demandOf(answer []byte) (*arbiter.Demand, leftOut, error) {
	p, err := evictPodsAnswer.split(answer)
	if err != nil {
		return nil, p.left, fmt.Errorf("invalid answer of GetEvictPods: %w", err)
	}
	demand := &arbiter.Demand{Condition: p.decodeCondition()}
	for _, encoded := range p.pods {
		pod, err := p.evictPod(encoded)
		if err != nil {
			p.left[invalidPod]++
			continue
		}
		demand.Pods = append(demand.Pods, pod)
	}
	return demand, p.left, nil
}

// evictPod decodes an EvictPod. The name of the plugin in it is ignored.
func (p *parts) evictPod(encoded []byte) (arbiter.PodDemand, error) {
	var pod, options []byte
	var replaced int
	d := arbiter.PodDemand{}
	err := fields(encoded, func(number protowire.Number, typ protowire.Type, value, whole []byte) error {
		want := protowire.BytesType
		switch number {
		case 1:
			pod = value
		case 2:
			d.Reason = beginning(value, maxReason)
		case 3:
			replaced += replace(&options, value)
		case 4:
			want = protowire.VarintType
			d.Force = isTrue(whole)
		default:
			return nil
		}
		if typ != want {
			return errWireType
		}
		return nil
	})
	p.left.add(invalidOptions, replaced)
	if err != nil {
		return d, err
	}
	if d.UID, err = podUID(pod); err != nil {
		return d, err
	}
	d.GraceSeconds = p.graceSeconds(options)
	return d, nil
}

// isTrue decodes a field with a varint.
func isTrue(field []byte) bool {
	_, _, tag := protowire.ConsumeTag(field)
	value, n := protowire.ConsumeVarint(field[tag:])
	return n > 0 && value != 0
}

// beginning returns at most limit bytes as valid UTF-8. It does not refer to the answer.
func beginning(text []byte, limit int) string {
	return strings.ToValidUTF8(string(text[:min(limit, len(text))]), "")
}

// thresholdOf decodes a ThresholdMetResponse.
func thresholdOf(answer []byte) (*arbiter.Threshold, leftOut, error) {
	p, err := thresholdAnswer.split(answer)
	if err != nil {
		return nil, p.left, fmt.Errorf("invalid answer of ThresholdMet: %w", err)
	}
	var m v1alpha1.ThresholdMetResponse
	if err := proto.Unmarshal(p.scalars, &m); err != nil {
		return nil, p.left, fmt.Errorf("invalid answer of ThresholdMet: %w", err)
	}
	t := &arbiter.Threshold{
		Scope: scope(m.GetEvictionScope()), Target: m.GetThresholdValue(), Observed: m.GetObservedValue(),
		Grace: thresholdGrace(m.GetGracePeriodSeconds()), Candidates: p.uids(), Condition: p.decodeCondition(),
	}
	switch m.GetMetType() {
	case v1alpha1.ThresholdMetType_NOT_MET:
	case v1alpha1.ThresholdMetType_SOFT_MET:
		t.Kind = arbiter.Soft
	case v1alpha1.ThresholdMetType_HARD_MET:
		t.Kind = arbiter.Hard
	default:
		return nil, p.left, unknown("met_type", m.GetMetType())
	}
	switch m.GetThresholdOperator() {
	case v1alpha1.ThresholdOperator_LESS_THAN:
		t.LessThan = true
	case v1alpha1.ThresholdOperator_GREATER_THAN:
	default:
		return nil, p.left, unknown("threshold_operator", m.GetThresholdOperator())
	}
	return t, p.left, nil
}

func unknown(field string, value protoreflect.Enum) error {
	return fmt.Errorf("invalid answer of ThresholdMet: %s has the unknown value %d", field, value.Number())
}

// thresholdGrace returns for how long a threshold must be met, at least 0 and at most an hour.
func thresholdGrace(seconds int64) time.Duration {
	return time.Duration(min(max(0, seconds), int64(maxThresholdGrace/time.Second))) * time.Second
}

// scope returns a scope with the characters of resource names. It is part of messages and of requests to the plugin.
func scope(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("-_./", r):
			return r
		}
		return '_'
	}, s)
	return strings.Clone(s[:min(maxScope, len(s))])
}

// replyOf decodes a GetTopEvictionPodsResponse. The reply has no question yet.
func replyOf(answer []byte) (*arbiter.Reply, leftOut, error) {
	p, err := topPodsAnswer.split(answer)
	if err != nil {
		return nil, p.left, fmt.Errorf("invalid answer of GetTopEvictionPods: %w", err)
	}
	return &arbiter.Reply{Pods: p.uids(), GraceSeconds: p.graceSeconds(p.options)}, p.left, nil
}

// uids returns the UIDs of the pods of an answer.
func (p *parts) uids() (uids []types.UID) {
	for _, pod := range p.pods {
		uid, err := podUID(pod)
		if err != nil {
			p.left[invalidPod]++
			continue
		}
		uids = append(uids, uid)
	}
	return uids
}

// graceSeconds returns the grace period in DeletionOptions, nil if these are absent or invalid (E23). Each result has
// its own memory (E14).
func (p *parts) graceSeconds(encoded []byte) *int64 {
	if encoded == nil {
		return nil
	}
	var m v1alpha1.DeletionOptions
	if len(encoded) > maxPart || proto.Unmarshal(encoded, &m) != nil {
		p.left[invalidOptions]++
		return nil
	}
	return new(m.GetGracePeriodSeconds())
}

// decodeCondition returns the condition, nil if it is absent or invalid. The arbiter checks its name and its effects.
func (p *parts) decodeCondition() *arbiter.ConditionReport {
	if p.condition == nil {
		return nil
	}
	var m v1alpha1.Condition
	if len(p.condition) > maxPart || proto.Unmarshal(p.condition, &m) != nil {
		p.left[invalidCondition]++
		return nil
	}
	report := &arbiter.ConditionReport{Name: m.GetConditionName(), Met: m.GetMetCondition(), Effects: m.GetEffects()}
	switch m.GetConditionType() {
	case v1alpha1.ConditionType_NODE_CONDITION:
	case v1alpha1.ConditionType_CNR_CONDITION:
		report.Resource = true
	default:
		p.left[invalidCondition]++
		return nil
	}
	return report
}
