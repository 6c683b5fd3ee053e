package policy

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Annotations by which pods influence their eviction. They have an effect only in the namespaces of Protection
// (kubernetes issue 65300).
const (
	// PreferenceAnnotation is a whole number from -100 to 100, 0 if absent. Of pods that are equal in what ranks before
	// it, the one with the greater number is evicted first.
	PreferenceAnnotation = snapshot.AnnotationPrefix + "eviction-preference"
	// OptOutAnnotation lists, separated by commas, for which resources the pod asks not to be evicted: memory, pid,
	// nodefs, imagefs, containerfs.
	OptOutAnnotation = snapshot.AnnotationPrefix + "opt-out"
	// MaxPreference is the greatest preference; the least is its negative.
	MaxPreference = 100
)

// optOutSignals are the resources that OptOutAnnotation may list, with their signals.
var optOutSignals = map[string][]snapshot.Signal{
	"memory":      {snapshot.MemoryAvailable},
	"pid":         {snapshot.PIDAvailable},
	"nodefs":      {snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree},
	"imagefs":     {snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree},
	"containerfs": {snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree},
}

// podAnnotations are the annotations of a pod, as far as they are granted.
type podAnnotations struct {
	preference int32
	optOut     []snapshot.Signal
}

// CheckAnnotations returns an error if annotations of the pod have no effect, with the annotation, its value and what
// is allowed. An annotation with an invalid value is ignored as a whole; the other one has its effect. If no namespace
// is configured, it returns nil.
func (p *Protection) CheckAnnotations(pod *v1.Pod) error {
	_, prefers := pod.Annotations[PreferenceAnnotation]
	_, optsOut := pod.Annotations[OptOutAnnotation]
	switch {
	case len(p.Namespaces) == 0 || (!prefers && !optsOut):
		return nil
	case !p.covers(pod.Namespace):
		return fmt.Errorf("annotations %s and %s do not count in namespace %q, only in %q", PreferenceAnnotation,
			OptOutAnnotation, pod.Namespace, p.Namespaces)
	}
	_, preferenceErr := preferenceOf(pod.Annotations)
	_, optOutErr := optOutOf(pod.Annotations)
	return errors.Join(preferenceErr, optOutErr)
}

func preferenceOf(annotations map[string]string) (int, error) {
	text, ok := annotations[PreferenceAnnotation]
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -MaxPreference || n > MaxPreference {
		return 0, fmt.Errorf("annotation %s: %q: must be a whole number from %d to %d", PreferenceAnnotation, text,
			-MaxPreference, MaxPreference)
	}
	return n, nil
}

func optOutOf(annotations map[string]string) ([]snapshot.Signal, error) {
	text, ok := annotations[OptOutAnnotation]
	if !ok {
		return nil, nil
	}
	var signals []snapshot.Signal
	for word := range strings.SplitSeq(text, ",") {
		found, ok := optOutSignals[strings.TrimSpace(word)]
		if !ok {
			return nil, fmt.Errorf(
				"annotation %s: %q: must be a list, separated by commas, of memory, pid, nodefs, imagefs, containerfs",
				OptOutAnnotation, text)
		}
		signals = append(signals, found...)
	}
	return signals, nil
}

// optOutWords returns the resources that a valid OptOutAnnotation lists, sorted, each once.
func optOutWords(text string) (words []string) {
	if text == "" {
		return nil
	}
	for word := range strings.SplitSeq(text, ",") {
		words = append(words, strings.TrimSpace(word))
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// granted returns the effective annotations of the pods that have any: the preference of each pod in the configured
// namespaces, and the opt-out of as many as MaxPods and MaxMemory allow.
func (p *Protection) granted(pods []snapshot.Pod) map[types.UID]podAnnotations {
	if len(p.Namespaces) == 0 {
		return nil
	}
	granted := map[types.UID]podAnnotations{}
	var optOuts []*snapshot.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Critical || len(pod.Annotations) == 0 || !p.covers(pod.Namespace) {
			continue
		}
		if n, err := preferenceOf(pod.Annotations); err == nil && n != 0 {
			granted[pod.UID] = podAnnotations{preference: int32(n)}
		}
		if signals, err := optOutOf(pod.Annotations); err == nil && len(signals) > 0 {
			optOuts = append(optOuts, pod)
		}
	}
	for _, pod := range p.grantOptOuts(optOuts) {
		w := granted[pod.UID]
		w.optOut, _ = optOutOf(pod.Annotations)
		granted[pod.UID] = w
	}
	return granted
}

// grantOptOuts returns the pods whose opt-out is granted. It depends only on what does not change while a pod runs, so
// that a pod does not gain and lose protection from round to round. Pods are granted it in this order:
//
//  1. higher priority first
//  2. older first
//  3. the UID
func (p *Protection) grantOptOuts(pods []*snapshot.Pod) []*snapshot.Pod {
	slices.SortFunc(pods, func(a, b *snapshot.Pod) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority),
			a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	var granted []*snapshot.Pod
	memory := p.MaxMemory
	for _, pod := range pods {
		if len(granted) < p.MaxPods && pod.MemoryRequest <= memory {
			granted, memory = append(granted, pod), memory-pod.MemoryRequest
		}
	}
	return granted
}

// covers reports whether annotations of pods in the namespace have an effect.
func (p *Protection) covers(namespace string) bool {
	return slices.ContainsFunc(p.Namespaces, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace)
		return ok && err == nil
	})
}

// optsOutOf reports whether the pod opted out of the resource of the need.
func (a *podAnnotations) optsOutOf(n *need, l snapshot.Layout) bool {
	return slices.ContainsFunc(a.optOut, func(sig snapshot.Signal) bool {
		g, ok := groupOf(sig, l)
		return ok && g == n.group
	})
}
