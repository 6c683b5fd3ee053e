package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// EncodePod returns what decisions use of a pod's API object. Of annotations these are values of closed sets.
func EncodePod(f *snapshot.Facts) (debugv1alpha1.PressureTracePod, error) {
	plain := *f
	plain.Annotations = nil
	text, err := json.Marshal(snapshot.Pod{Facts: &plain, Images: snapshot.Unknown})
	if err != nil {
		return debugv1alpha1.PressureTracePod{}, fmt.Errorf("pod %s: %w", f.UID, err)
	}
	p := debugv1alpha1.PressureTracePod{Facts: text}
	p.EvictionPreference, p.OptOut = policy.EvictionPreference(f.Annotations)
	return p, nil
}

// EncodeRules returns rules with an ID that is the same for equal rules.
func EncodeRules(r *policy.Rules) (debugv1alpha1.PressureTraceRules, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return debugv1alpha1.PressureTraceRules{}, fmt.Errorf("rules: %w", err)
	}
	sum := sha256.Sum256(text)
	return debugv1alpha1.PressureTraceRules{ID: hex.EncodeToString(sum[:8]), Rules: text}, nil
}

// EncodeReplay returns what the decision of a round can be made from again; rules is the ID of its rules. Without the
// state it has to be made after the decision with the number before.
func EncodeReplay(r *Round, rules string, withState, partial bool) (*debugv1alpha1.PressureReplay, error) {
	s := *r.Snapshot
	s.Pods = make([]snapshot.Pod, len(r.Snapshot.Pods))
	facts := make([]snapshot.Facts, len(s.Pods))
	for i := range s.Pods {
		s.Pods[i] = r.Snapshot.Pods[i]
		facts[i].UID, facts[i].QOS = s.Pods[i].UID, s.Pods[i].QOS
		s.Pods[i].Facts = &facts[i]
	}
	text, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	replay := &debugv1alpha1.PressureReplay{Rules: rules, PartialPods: partial, Snapshot: text}
	if withState {
		if replay.State, err = json.Marshal(r.State); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
	}
	return replay, nil
}
