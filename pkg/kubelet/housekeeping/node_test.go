package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/mount-utils"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

var errTest = errors.New("oops")

// node implements all dependencies of a Cleaner. It records the calls; fail has the error of a call.
type node struct {
	mu      sync.Mutex
	journal []string
	fail    map[string]error

	layout  paths.Layout
	mounter *mount.FakeMounter

	pods, mirrors   []*v1.Pod
	orphanedMirrors []string
	known           map[types.UID]podworkers.KnownPod
	inactive        sets.Set[types.UID]
	waiting         sets.Set[types.UID]
	running         []*kubecontainer.Pod
	cgroups         map[types.UID]cm.CgroupName
	mounted         sets.Set[types.UID]
	terminating     sets.Set[string]
	destroying      chan struct{}
	goingDown       bool
	// deletedMirrors are the mirror pods whose deletion was requested; the request waits for apiServer unless it is nil.
	deletedMirrors []string
	apiServer      chan struct{}
	// mayStart are the pods for which BeginRemoval returns false; reserved is the number of removals in progress.
	mayStart sets.Set[types.UID]
	reserved int
	// keptUserIDs are the pods whose user IDs are kept.
	keptUserIDs []types.UID
}

func newNode(t testing.TB) *node {
	layout := paths.New(t.TempDir(), t.TempDir())
	mkdir(t, layout.Pods())
	return &node{
		fail: map[string]error{}, layout: layout, mounter: mount.NewFakeMounter(nil),
		known: map[types.UID]podworkers.KnownPod{}, inactive: sets.New[types.UID](), waiting: sets.New[types.UID](),
		mounted: sets.New[types.UID](), terminating: sets.New[string](), mayStart: sets.New[types.UID](),
	}
}

func (n *node) disk() *Disk { return NewDisk(n.layout, n.mounter, n) }

func (n *node) config() Config {
	return Config{
		Pods: n, Workers: n, Mirrors: n, Lifecycle: n, Active: n, Waiting: n.waiting.Has, Runtime: n, Disk: n.disk(),
		Cgroups: func() PodCgroups { return n }, Probes: n, Statuses: n, Allocations: n, UserNamespaces: n, BackOff: n,
		ShuttingDown: func() bool { return n.goingDown },
		Clock:        testingclock.NewFakePassiveClock(time.Unix(1000, 0)),
	}
}

func (n *node) called(format string, args ...any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	n.journal = append(n.journal, call)
	return n.fail[call]
}

func (n *node) takeCalls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	j := n.journal
	n.journal = nil
	return j
}

func (n *node) GetPodsAndMirrorPods() ([]*v1.Pod, []*v1.Pod, []string) {
	_ = n.called("pods")
	return n.pods, n.mirrors, n.orphanedMirrors
}

func (n *node) GetPodByFullName(fullName string) (*v1.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.pods, func(p *v1.Pod) bool { return kubecontainer.GetPodFullName(p) == fullName })
	if i < 0 {
		return nil, false
	}
	return n.pods[i], true
}

func (n *node) BeginRemoval(uid types.UID) (func(), bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mayStart.Has(uid) {
		return nil, false
	}
	n.reserved++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reserved--
	}, true
}

func (n *node) GetPodAndMirrorPod(pod *v1.Pod) (*v1.Pod, *v1.Pod, bool) { return pod, nil, false }

func (n *node) SyncKnownPods([]*v1.Pod) map[types.UID]podworkers.KnownPod {
	_ = n.called("known")
	return n.known
}

func (n *node) SyncStaticPods([]*v1.Pod) map[types.UID]podworkers.KnownPod {
	_ = n.called("known static")
	return n.known
}

func (n *node) UpdatePod(_ context.Context, u podworkers.Update) {
	switch {
	case u.RunningPod != nil:
		_ = n.called("kill orphan %s grace=%d", u.RunningPod.ID, *u.Kill.GracePeriod)
	case u.UpdateType == kubetypes.SyncPodKill:
		_ = n.called("finish %s", u.Pod.UID)
	default:
		_ = n.called("%s %s", u.UpdateType, u.Pod.UID)
	}
}

func (n *node) DeleteMirrorPod(_ context.Context, name string, uid *types.UID) (bool, error) {
	n.mu.Lock()
	deleted := name
	if uid != nil {
		deleted += " " + string(*uid)
	}
	n.deletedMirrors = append(n.deletedMirrors, deleted)
	err := n.fail["delete mirror "+name]
	n.mu.Unlock()
	if n.apiServer != nil {
		<-n.apiServer
	}
	return err == nil, err
}

func (n *node) IsPodForMirrorPodTerminatingByFullName(name string) bool {
	return n.terminating.Has(name)
}

func (n *node) FilterActive(pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return n.inactive.Has(p.UID) })
}

func (n *node) ForceUpdateIfOlder(_ context.Context, than time.Time) error {
	return n.called("refresh runtime %d", than.Unix())
}

func (n *node) GetPods(context.Context) ([]*kubecontainer.Pod, error) {
	return n.running, n.called("running")
}

func (n *node) GetAllPodsFromCgroups() (map[types.UID]cm.CgroupName, error) {
	return n.cgroups, n.called("cgroups")
}

func (n *node) ReduceCPULimits(_ klog.Logger, name cm.CgroupName) error {
	return n.called("throttle %s", name[0])
}

func (n *node) Destroy(_ klog.Logger, name cm.CgroupName) error {
	if n.destroying != nil {
		<-n.destroying
	}
	return n.called("destroy %s", name[0])
}

func (n *node) CleanupPods(keep map[types.UID]sets.Empty) {
	_ = n.called("probes %v", sortedUIDs(keep))
}

func (n *node) RemoveOrphanedStatuses(_ klog.Logger, keep map[types.UID]bool) {
	_ = n.called("statuses %v", sortedUIDs(keep))
}

func (n *node) RemoveOrphanedPods(keep sets.Set[types.UID]) {
	_ = n.called("allocations %v", sortedUIDs(keep))
}

func (n *node) CleanupOrphanedPodUsernsAllocations(
	_ context.Context, pods []*v1.Pod, running []*kubecontainer.Pod,
) error {
	kept := sets.New[types.UID]()
	for _, pod := range pods {
		kept.Insert(pod.UID)
	}
	for _, pod := range running {
		kept.Insert(pod.ID)
	}
	n.keptUserIDs = sets.List(kept)
	return n.called("userns")
}

func (n *node) GC() { _ = n.called("backoff") }

func (n *node) HasPossiblyMountedVolumesForPod(pod volumetypes.UniquePodName) bool {
	return n.mounted.Has(types.UID(pod))
}

func static(uid types.UID) *v1.Pod { return fixture.StaticPod(string(uid), uid) }

func runtimePod(uid types.UID) *kubecontainer.Pod { return &kubecontainer.Pod{ID: uid} }

func syncing(withConfig bool) podworkers.KnownPod {
	return podworkers.KnownPod{State: podlifecycle.WorkSync, HasConfig: withConfig}
}

func expectCalls(t testing.TB, n *node, want ...string) {
	t.Helper()
	fixture.ExpectEqual(t, "calls", n.takeCalls(), want)
}

func cleanUp(t testing.TB, n *node) error {
	t.Helper()
	c := New(n.config())
	err := c.CleanUp(context.Background())
	c.Wait()
	if n.reserved != 0 {
		t.Errorf("%d removals have not ended", n.reserved)
	}
	return err
}
