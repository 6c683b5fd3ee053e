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

// Annotations by which a pod says what it wishes. They count only in the namespaces of Protection (kubernetes issue
// 65300).
const (
	// PreferenceAnnotation is a whole number from -100 to 100, 0 when absent. Of pods that are equal in what counts more,
	// the one with the greater number is evicted first.
	PreferenceAnnotation = snapshot.AnnotationPrefix + "eviction-preference"
	// OptOutAnnotation lists, separated by commas, for which resources the pod would rather not be evicted: memory, pid,
	// nodefs, imagefs, containerfs.
	OptOutAnnotation = snapshot.AnnotationPrefix + "opt-out"
	// MaxPreference is the greatest preference; the least is its negative.
	MaxPreference = 100
)

// optOutSignals are the words of OptOutAnnotation.
var optOutSignals = map[string][]snapshot.Signal{
	"memory":      {snapshot.MemoryAvailable},
	"pid":         {snapshot.PIDAvailable},
	"nodefs":      {snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree},
	"imagefs":     {snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree},
	"containerfs": {snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree},
}

// wish is what a pod asks for, as far as it is granted.
type wish struct {
	preference int32
	optOut     []snapshot.Signal
}

// CheckWishes says why annotations of a pod do not count, naming annotation, value and what is allowed. A broken
// annotation is ignored as a whole, the other one counts. Without configuration annotations are of no interest to
// anybody.
func (p *Protection) CheckWishes(pod *v1.Pod) error {
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

// wishes are those of all pods that are granted: preferences to all in the right namespaces, opting out to as many as
// there is room for.
func (p *Protection) wishes(pods []snapshot.Pod) map[types.UID]wish {
	if len(p.Namespaces) == 0 {
		return nil
	}
	granted := map[types.UID]wish{}
	var optOuts []*snapshot.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Critical || len(pod.Annotations) == 0 || !p.covers(pod.Namespace) {
			continue
		}
		if n, err := preferenceOf(pod.Annotations); err == nil && n != 0 {
			granted[pod.UID] = wish{preference: int32(n)}
		}
		if signals, err := optOutOf(pod.Annotations); err == nil && len(signals) > 0 {
			optOuts = append(optOuts, pod)
		}
	}
	for _, pod := range p.roomFor(optOuts) {
		w := granted[pod.UID]
		w.optOut, _ = optOutOf(pod.Annotations)
		granted[pod.UID] = w
	}
	return granted
}

// roomFor is which pods may opt out. That depends on nothing that changes while a pod runs, so that a pod does not win
// and lose its protection from look to look. The order in which pods are granted it:
//
//  1. higher priority first
//  2. older first
//  3. the UID
func (p *Protection) roomFor(pods []*snapshot.Pod) []*snapshot.Pod {
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

// covers tells whether pods of the namespace may have wishes.
func (p *Protection) covers(namespace string) bool {
	return slices.ContainsFunc(p.Namespaces, func(pattern string) bool {
		ok, err := path.Match(pattern, namespace)
		return ok && err == nil
	})
}

// spares tells whether the pod opted out of what the need is about.
func (w *wish) spares(n *need, l snapshot.Layout) bool {
	return slices.ContainsFunc(w.optOut, func(sig snapshot.Signal) bool {
		g, ok := groupOf(sig, l)
		return ok && g == n.group
	})
}
