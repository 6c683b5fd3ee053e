package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/strictjson"
)

// podLimits are far above what the facts of a pod come to.
var podLimits = strictjson.Limits{Bytes: 1 << 20, String: 1 << 16, Depth: 8, Elements: 1 << 10, Total: 1 << 14}

// maxRules and maxPods bound what a decoder keeps: a trace of a week has far fewer.
const maxRules, maxPods = 1 << 10, 1 << 18

// Decoder decodes the lines of a trace in order. The zero value is ready to use.
type Decoder struct {
	started bool
	rules   map[string]*policy.Rules
	pods    map[types.UID]*snapshot.Facts
}

// Line is a decoded line. Trace has its content as it was written.
type Line struct {
	Trace debugv1alpha1.PressureTrace
	// Input is set for a decision that can be made again.
	Input *Input
}

// Input is what a decision was made from. Inputs share pods and rules and must not be modified.
type Input struct {
	Snapshot *snapshot.Snapshot
	// PartialPods: the snapshot has only the pods that the decision needed.
	PartialPods bool
	Rules       *policy.Rules
	// State is nil if it is that after the decision with the number before.
	State *policy.State
}

// Decode decodes a line, which may come from anywhere. An error names what is wrong with it.
func (d *Decoder) Decode(text []byte) (Line, error) {
	var l Line
	if err := json.Unmarshal(text, &l.Trace); err != nil {
		return Line{}, err
	}
	t := &l.Trace
	if !d.started || t.Start != nil {
		if t.Start == nil || t.APIVersion != debugv1alpha1.PressureAPIVersion || t.Kind != debugv1alpha1.PressureTraceKind {
			return Line{}, fmt.Errorf("apiVersion %q, kind %q: must begin with %s, %s", t.APIVersion, t.Kind,
				debugv1alpha1.PressureAPIVersion, debugv1alpha1.PressureTraceKind)
		}
		d.started, d.rules, d.pods = true, map[string]*policy.Rules{}, map[types.UID]*snapshot.Facts{}
	}
	if n := fieldsOf(t); n != 1 {
		return Line{}, fmt.Errorf("%d fields: must be one of start, rules, pod, decision, outcome, admission, preemption", n)
	}
	var err error
	switch {
	case t.Rules != nil:
		err = d.addRules(t.Rules)
	case t.Pod != nil:
		err = d.addPod(t.Pod)
	case t.Decision != nil && t.Decision.Replay != nil:
		l.Input, err = d.input(t.Decision.Replay)
	}
	return l, err
}

func fieldsOf(t *debugv1alpha1.PressureTrace) (n int) {
	for _, set := range []bool{t.Start != nil, t.Rules != nil, t.Pod != nil, t.Decision != nil, t.Outcome != nil,
		t.Admission != nil, t.Preemption != nil} {
		if set {
			n++
		}
	}
	return n
}

func (d *Decoder) addRules(r *debugv1alpha1.PressureTraceRules) error {
	rules, err := policy.DecodeRules(r.Rules)
	if err != nil {
		return err
	}
	if len(d.rules) >= maxRules {
		return fmt.Errorf("rules %q: more than %d", r.ID, maxRules)
	}
	d.rules[r.ID] = &rules
	return nil
}

func (d *Decoder) addPod(p *debugv1alpha1.PressureTracePod) error {
	var pod snapshot.Pod
	if err := strictjson.Unmarshal(p.Facts, &pod, podLimits); err != nil {
		return fmt.Errorf("pod: %w", err)
	}
	if n := p.EvictionPreference; n < -policy.MaxPreference || n > policy.MaxPreference {
		return fmt.Errorf("pod: evictionPreference: %d: must be from %d to %d", n, -policy.MaxPreference,
			policy.MaxPreference)
	}
	if len(pod.Annotations) > 0 {
		return errors.New("pod: annotations: must be absent")
	}
	if len(d.pods) >= maxPods {
		return fmt.Errorf("more than %d pods", maxPods)
	}
	pod.Annotations = Annotations(p.EvictionPreference, p.OptOut)
	d.pods[pod.UID] = pod.Facts
	return nil
}

// Annotations returns annotations that policy.EvictionPreference returns these values for, nil if there are none.
func Annotations(preference int, optOut []string) map[string]string {
	if preference == 0 && len(optOut) == 0 {
		return nil
	}
	annotations := map[string]string{}
	if preference != 0 {
		annotations[policy.PreferenceAnnotation] = strconv.Itoa(preference)
	}
	if len(optOut) > 0 {
		annotations[policy.OptOutAnnotation] = strings.Join(optOut, ",")
	}
	return annotations
}

func (d *Decoder) input(r *debugv1alpha1.PressureReplay) (*Input, error) {
	in := &Input{PartialPods: r.PartialPods, Rules: d.rules[r.Rules]}
	if in.Rules == nil {
		return nil, fmt.Errorf("replay.rules: %q: no such rules before", r.Rules)
	}
	s, err := snapshot.Decode(r.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		facts := d.pods[p.UID]
		if facts == nil || facts.QOS != p.QOS {
			return nil, fmt.Errorf("replay.snapshot.pods[%d].uid: %q: no such pod with the QoS class %s before", i, p.UID, p.QOS)
		}
		p.Facts = facts
	}
	in.Snapshot = s
	if len(bytes.TrimSpace(r.State)) > 0 {
		state, err := policy.DecodeState(r.State)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		in.State = &state
	}
	return in, nil
}
