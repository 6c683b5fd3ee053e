package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stock "k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	m.Run()
}

// world is a fake node: a runtime with images and containers on one file system, and the pods. Its methods are safe for
// concurrent use; tests change its fields while no goroutine runs.
type world struct {
	mu          sync.Mutex
	images      []image
	pods        []*kubecontainer.Pod
	active      []*v1.Pod
	pulling     []string
	podStates   map[types.UID]plan.PodState
	notReady    bool
	capacity    int64
	system      int64
	inodes      int64
	removalTime time.Duration
	fails       map[string]error
	measureErr  error
	// unusedHangs makes DeleteAllUnusedContainers last until its context ends.
	unusedHangs bool
	// onRemove is called while an image or container is being removed.
	onRemove func(id string)
	removals int

	removed       []string
	unusedDeleted int
	// collected counts the periodic collections of containers.
	collected int
	events    []string
	remaining [][]string
}

// image is an image on the node. used is what its removal frees, in bytes and inodes.
type image struct {
	kubecontainer.Image
	used, inodes int64
}

func newWorld(images ...image) *world {
	return &world{
		images: images, capacity: 1000, inodes: 1000, podStates: map[types.UID]plan.PodState{}, fails: map[string]error{},
	}
}

func newImage(name string, bytes int64) image {
	return image{
		Image: kubecontainer.Image{
			ID: "sha256:" + name, RepoTags: []string{"docker.io/library/" + name + ":latest"}, Size: bytes,
		}, used: bytes, inodes: 10,
	}
}

func (w *world) ListImages(context.Context) ([]kubecontainer.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []kubecontainer.Image
	for _, i := range w.images {
		list = append(list, i.Image)
	}
	return list, w.fails["ListImages"]
}

func (w *world) RemoveImage(_ context.Context, spec kubecontainer.ImageSpec) error {
	return w.remove(spec.Image, func() {
		w.images = slices.DeleteFunc(w.images, func(i image) bool {
			return i.ID == spec.Image && i.Spec.RuntimeHandler == spec.RuntimeHandler
		})
	})
}

func (w *world) remove(id string, effect func()) error {
	w.mu.Lock()
	if w.removals++; w.removals > 1 {
		panic("two removals at the same time")
	}
	removalTime, err, hook := w.removalTime, w.fails[id], w.onRemove
	w.mu.Unlock()
	if hook != nil {
		hook(id)
	}
	if removalTime > 0 {
		<-time.After(removalTime)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removals--
	if err == nil {
		w.removed = append(w.removed, id)
		effect()
	}
	return err
}

func (w *world) GetPods(_ context.Context, all bool) ([]*kubecontainer.Pod, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !all {
		return nil, errors.New("GetPods does not include exited containers")
	}
	return slices.Clone(w.pods), w.fails["GetPods"]
}

func (w *world) GetContainerStatus(
	_ context.Context, _ types.UID, id kubecontainer.ContainerID,
) (*kubecontainer.Status, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := &kubecontainer.Status{ID: id}
	if volume, ok := w.fails["volume of "+id.ID]; ok {
		st.Mounts = []kubecontainer.Mount{{Name: "no image"}, {Image: &runtimeapi.ImageSpec{Image: volume.Error()}}}
	}
	return st, w.fails["GetContainerStatus"]
}

func (w *world) DeleteContainer(_ context.Context, id kubecontainer.ContainerID) error {
	return w.remove(id.ID, func() {
		for i, pod := range w.pods {
			c := *pod
			c.Containers = slices.DeleteFunc(slices.Clone(pod.Containers), func(c *kubecontainer.Container) bool {
				return c.ID == id
			})
			w.pods[i] = &c
		}
	})
}

func (w *world) GarbageCollect(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.collected++
	return w.fails["GarbageCollect"]
}

func (w *world) DeleteAllUnusedContainers(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unusedDeleted++
	if w.unusedHangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (w *world) ShouldPodContentBeRemoved(uid types.UID) bool {
	return w.podStates[uid] == plan.PodRemoved
}
func (w *world) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return w.podStates[uid] != plan.PodActive
}

func (w *world) available() Space {
	s := Space{Bytes: w.capacity - w.system, Inodes: w.inodes}
	for _, i := range w.images {
		s.Bytes, s.Inodes = s.Bytes-i.used, s.Inodes-i.inodes
	}
	for _, pod := range w.pods {
		// Each container uses ten bytes and one inode.
		s.Bytes, s.Inodes = s.Bytes-10*int64(len(pod.Containers)), s.Inodes-int64(len(pod.Containers))
	}
	return s
}

func (w *world) measure(context.Context, snapshot.Device) (Space, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.available(), w.measureErr
}

func (w *world) ImageFsStats(context.Context) (*statsapi.FsStats, *statsapi.FsStats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.available()
	fs := &statsapi.FsStats{CapacityBytes: new(uint64(w.capacity)), AvailableBytes: new(uint64(max(0, s.Bytes)))}
	return fs, fs, w.fails["ImageFsStats"]
}

func (w *world) Event(_ runtime.Object, _, reason, message string) {
	w.addEvent(reason + ": " + message)
}
func (w *world) Eventf(_ runtime.Object, _, reason, f string, a ...any) {
	w.addEvent(reason + ": " + fmt.Sprintf(f, a...))
}

func (w *world) AnnotatedEventf(_ runtime.Object, _ map[string]string, _, reason, f string, a ...any) {
	w.addEvent(reason + ": " + fmt.Sprintf(f, a...))
}

func (w *world) addEvent(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

func (w *world) hook(_ context.Context, remaining []string, _ time.Time) {
	w.remaining = append(w.remaining, slices.Sorted(slices.Values(remaining)))
}

func (w *world) config() Config {
	return Config{
		Images: w, Containers: w, Collector: w, PodStates: w, Stats: w, Recorder: w,
		NodeRef:      &v1.ObjectReference{Kind: "Node"},
		Active:       func() []*v1.Pod { w.mu.Lock(); defer w.mu.Unlock(); return w.active },
		Pulling:      func() []string { w.mu.Lock(); defer w.mu.Unlock(); return w.pulling },
		SourcesReady: func() bool { return !w.notReady },
		Measure:      w.measure, Tracer: noop.NewTracerProvider(), Clock: clock.RealClock{},
		Policy: Policy{
			HighPercent: 90, LowPercent: 80, Images: plan.Policy{MinAge: 2 * time.Minute},
			Containers: plan.ContainerPolicy{MaxPerContainer: 1},
		},
		Hooks:    []stock.PostImageGCHook{w.hook},
		Features: Features{RuntimeClassInImageCRI: true, ImageVolume: true},
	}
}

func (w *world) manager(t *testing.T) *Manager {
	t.Helper()
	m, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// addContainer adds a container to a pod. If ended is not zero, it has exited, and was created that long ago.
func (w *world) addContainer(pod types.UID, name, of string, ended time.Duration) {
	c := &kubecontainer.Container{
		ID: kubecontainer.ContainerID{Type: "fake", ID: string(pod) + "-" + name}, Name: name, ImageID: "sha256:" + of,
		State: kubecontainer.ContainerStateRunning,
	}
	if ended > 0 {
		c.State, c.CreatedAt = kubecontainer.ContainerStateExited, time.Now().Add(-ended).UnixNano()
		c.ID.ID += "-" + ended.String()
	}
	i := slices.IndexFunc(w.pods, func(p *kubecontainer.Pod) bool { return p.ID == pod })
	if i < 0 {
		w.pods, i = append(w.pods, &kubecontainer.Pod{ID: pod}), len(w.pods)
	}
	w.pods[i].Containers = append(w.pods[i].Containers, c)
}

// podWithImage is a pod with one container of an image.
func podWithImage(uid types.UID, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1.PodSpec{Containers: []v1.Container{{Image: name}}}}
}

// setUsed makes the manager observe the use of the images, one after the other, a minute apart, and advances the time.
func (w *world) setUsed(m *Manager, names ...string) {
	for _, name := range names {
		w.addContainer("earlier", "c", name, 0)
		m.updateUsage(context.Background())
		w.pods = slices.DeleteFunc(w.pods, func(p *kubecontainer.Pod) bool { return p.ID == "earlier" })
		<-time.After(time.Minute)
	}
	<-time.After(10 * time.Minute)
}

// request is the request to make that many bytes available.
func request(bytes int64) policy.ReclaimRequest {
	return policy.ReclaimRequest{
		Device: snapshot.NodeDevice, Signal: snapshot.NodeFsAvailable, Containers: true, Images: true, Target: bytes,
	}
}
