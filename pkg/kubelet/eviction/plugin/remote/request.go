package remote

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"weak"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

const (
	// activePods is the number of the field active_pods in all requests.
	activePods = 1
	// maxQuestion bounds what a request has beside its pods, in bytes: the number of pods and the scope.
	maxQuestion = 1 << 10
)

// Encoder encodes the pods of a View for plugins, once for all plugins and calls. It keeps them as long as the View is
// referred to elsewhere. The zero value is ready for use. It is safe for concurrent use.
type Encoder struct {
	mu    sync.Mutex
	views map[weak.Pointer[plugin.View]]*encodedView
}

// encodedView has the pods of one View, each encoded as a field of a request. Its buffers are shared and must not be
// modified.
type encodedView struct {
	once sync.Once
	pods []encodedPod
}

type encodedPod struct {
	uid   types.UID
	field []byte
}

// of returns the encoding of a View.
func (e *Encoder) of(v *plugin.View) *encodedView {
	encoded := e.entry(v)
	encoded.once.Do(func() {
		pods, invalid := encode(v.Pods)
		var omitted int
		encoded.pods, omitted = fitting(pods, maxMessage-maxQuestion)
		if invalid+omitted > 0 {
			podsOmitted.Add(float64(invalid + omitted))
			klog.V(2).InfoS("Pods are left out of requests to eviction plugins", "tooLarge", omitted, "invalid", invalid)
		}
	})
	return encoded
}

func (e *Encoder) entry(v *plugin.View) *encodedView {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := weak.Make(v)
	if encoded, ok := e.views[key]; ok {
		return encoded
	}
	if e.views == nil {
		e.views = map[weak.Pointer[plugin.View]]*encodedView{}
	}
	e.views[key] = &encodedView{}
	runtime.AddCleanup(v, e.free, key)
	return e.views[key]
}

func (e *Encoder) free(key weak.Pointer[plugin.View]) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.views, key)
}

// only returns the pods with these UIDs, all without UIDs.
func (e *encodedView) only(uids []types.UID) []encodedPod {
	if len(uids) == 0 {
		return e.pods
	}
	return slices.DeleteFunc(slices.Clone(e.pods), func(p encodedPod) bool { return !slices.Contains(uids, p.uid) })
}

// messageWith returns encoded pods as a request.
func messageWith(pods []encodedPod) (message mem.BufferSlice) {
	for i := range pods {
		message = append(message, mem.SliceBuffer(pods[i].field))
	}
	return message
}

// encode encodes pods in their order, and returns how many cannot be encoded.
func encode(pods []*v1.Pod) (encoded []encodedPod, invalid int) {
	for _, pod := range pods {
		field, err := encodePod(pod)
		if err != nil {
			invalid++
			continue
		}
		encoded = append(encoded, encodedPod{pod.UID, field})
	}
	return encoded, invalid
}

func encodePod(pod *v1.Pod) ([]byte, error) {
	short := abridged(pod)
	size := short.Size()
	field := make([]byte, 0, protowire.SizeTag(activePods)+protowire.SizeBytes(size))
	field = protowire.AppendTag(field, activePods, protowire.BytesType)
	field = protowire.AppendVarint(field, uint64(size))
	start := len(field)
	field = field[:start+size]
	n, err := short.MarshalToSizedBuffer(field[start:])
	if err == nil && n != size {
		err = fmt.Errorf("the encoded pod has %d bytes, want %d", n, size)
	}
	return field, err
}

// fitting leaves out the largest pods until the others have at most limit bytes (E24), and returns how many it has left
// out. Of pods with the same size it leaves out the one with the lowest UID first. The others keep their order.
func fitting(pods []encodedPod, limit int) (left []encodedPod, omitted int) {
	total := 0
	for i := range pods {
		total += len(pods[i].field)
	}
	if total <= limit {
		return pods, 0
	}
	largest := slices.Clone(pods)
	slices.SortFunc(largest, func(a, b encodedPod) int {
		return cmp.Or(cmp.Compare(len(b.field), len(a.field)), cmp.Compare(a.uid, b.uid))
	})
	out := map[types.UID]bool{}
	for i := 0; total > limit; i++ {
		total -= len(largest[i].field)
		out[largest[i].uid] = true
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p encodedPod) bool { return out[p.uid] }), len(out)
}

// abridged returns the pod without what plugins do not need and should not see: managed fields, the last applied
// configuration, and of containers the environment, commands, arguments, hooks and probes. Hooks and probes have
// commands and HTTP headers. The pod itself is not modified.
func abridged(pod *v1.Pod) *v1.Pod {
	short := *pod
	short.ManagedFields = nil
	if _, ok := short.Annotations[v1.LastAppliedConfigAnnotation]; ok {
		short.Annotations = make(map[string]string, len(pod.Annotations))
		for key, value := range pod.Annotations {
			if key != v1.LastAppliedConfigAnnotation {
				short.Annotations[key] = value
			}
		}
	}
	short.Spec.InitContainers = abridgedContainers(pod.Spec.InitContainers)
	short.Spec.Containers = abridgedContainers(pod.Spec.Containers)
	short.Spec.EphemeralContainers = slices.Clone(pod.Spec.EphemeralContainers)
	for i := range short.Spec.EphemeralContainers {
		c := &short.Spec.EphemeralContainers[i].EphemeralContainerCommon
		c.Command, c.Args, c.EnvFrom, c.Env, c.Lifecycle = nil, nil, nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
	}
	return &short
}

func abridgedContainers(containers []v1.Container) []v1.Container {
	short := slices.Clone(containers)
	for i := range short {
		c := &short[i]
		c.Command, c.Args, c.EnvFrom, c.Env, c.Lifecycle = nil, nil, nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
	}
	return short
}
