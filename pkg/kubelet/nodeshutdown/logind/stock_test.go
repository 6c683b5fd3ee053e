package logind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	stock "k8s.io/kubernetes/pkg/kubelet/nodeshutdown"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

// node implements what the managers depend on. It records their calls.
type node struct {
	volumemanager.VolumeManager
	record.EventRecorder

	mu   sync.Mutex
	pods []*v1.Pod
	// calls has the events, and for each group the kills in alphabetical order; group has the kills of the current group.
	calls, group []string
	ended        bool
	// release blocks kills until it is closed, if it is not nil; killing is true after the first kill.
	release chan struct{}
	killing atomic.Bool
}

func (n *node) active() []*v1.Pod { return slices.Clone(n.pods) }

func (n *node) kill(pod *v1.Pod, evict bool, grace *int64, amend func(*v1.PodStatus)) error {
	n.killing.Store(true)
	if n.release != nil {
		<-n.release
	}
	status := v1.PodStatus{Phase: pod.Status.Phase}
	if amend != nil {
		amend(&status)
	}
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	statusJSON, err := json.Marshal(status)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = append(n.group, fmt.Sprintf("%s evict=%t grace=%d %s %v", pod.UID, evict, *grace, statusJSON, err))
	return nil
}

func (n *node) WaitForAllPodsUnmount(context.Context, []*v1.Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.group)
	n.calls, n.group = append(n.calls, strings.Join(n.group, "; ")), nil
	return nil
}

// Event blocks forever after the end of the test: stock's manager cannot be stopped, and would continue with the locks
// of other tests.
func (n *node) Event(_ runtime.Object, kind, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		n.mu.Unlock()
		select {}
	}
	n.calls = append(n.calls, kind+" "+reason+" "+message)
}

func (n *node) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
}

// manager is the interface that stock's manager and ours have in common.
type manager interface {
	lifecycle.PodAdmitHandler
	ShutdownStatus() error
}

// settings is the configuration of a manager.
type settings struct {
	total, critical time.Duration
	byPriority      []kubeletconfig.ShutdownGracePeriodByPodPriority
}

func startStock(t *testing.T, n *node, s settings, dir string) manager {
	t.Helper()
	m := stock.NewManager(&stock.Config{
		Logger: klog.Background(), VolumeManager: n, Recorder: n, NodeRef: &v1.ObjectReference{}, GetPodsFunc: n.active,
		KillPodFunc:        n.kill,
		SyncNodeStatusFunc: func(context.Context) {}, ShutdownGracePeriodRequested: s.total,
		ShutdownGracePeriodCriticalPods:  s.critical,
		ShutdownGracePeriodByPodPriority: slices.Clone(s.byPriority), StateDirectory: dir, Clock: clock.RealClock{},
	})
	if err := m.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return m
}

func startOurs(t *testing.T, n *node, s settings, dir string) manager {
	t.Helper()
	var periods []plan.Period
	for _, p := range s.byPriority {
		periods = append(periods, plan.Period{Priority: p.Priority, Seconds: p.ShutdownGracePeriodSeconds})
	}
	if periods == nil {
		periods = plan.Legacy(s.total, s.critical)
	}
	m := nodeshutdown.New(nodeshutdown.Config{
		Periods: periods,
		Connect: func(ctx context.Context) (nodeshutdown.Logind, error) { return Connect(ctx, clock.RealClock{}) },
		Pods: nodeshutdown.Pods{
			Active: n.active, WaitForUnmount: n.WaitForAllPodsUnmount, SourcesReady: func() bool { return true },
			Kill: fakekill.Waiting(func(ctx context.Context, r podkill.Request) error {
				done := make(chan error, 1)
				go func() { done <- n.kill(r.Pod, r.Evict, r.GracePeriodSeconds, r.Disruption.Apply) }()
				select {
				case err := <-done:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}),
			Terminating: func(types.UID) bool { return false }, Readmitted: func(*v1.Pod) bool { return false },
			Restart: func(context.Context, []*v1.Pod) {},
		},
		SyncNode: func(context.Context) {}, Recorder: n, NodeRef: &v1.ObjectReference{},
		StateFile: filepath.Join(dir, nodeshutdown.StateFileName), Clock: clock.RealClock{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	m.Start(ctx)
	return m
}

// randomSettings returns periods in random order, or the two legacy fields.
func randomSettings(r *rand.Rand) (s settings) {
	if r.IntN(4) == 0 {
		s.critical = time.Duration(1+r.IntN(10)) * time.Second
		s.total = s.critical + time.Duration(1000+r.IntN(20_000))*time.Millisecond
		return s
	}
	for range 1 + r.IntN(5) {
		s.byPriority = append(s.byPriority, kubeletconfig.ShutdownGracePeriodByPodPriority{
			Priority: int32(r.IntN(9) - 3), ShutdownGracePeriodSeconds: int64(1 + r.IntN(40)),
		})
	}
	return s
}

// randomPods returns pods that do not restart with the node, because for the others the managers differ.
func randomPods(r *rand.Rand) (pods []*v1.Pod) {
	for i := range r.IntN(12) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("%02d", i)), Name: "pod", Namespace: "ns",
			Generation: int64(i)}}
		pod.Status.Phase = []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed}[r.IntN(4)]
		if r.IntN(5) > 0 {
			priority := []int32{int32(r.IntN(12) - 6), 2_000_000_000, 2_000_001_000}[r.IntN(3)]
			pod.Spec.Priority = &priority
		}
		if r.IntN(5) > 0 {
			grace := int64(r.IntN(60))
			pod.Spec.TerminationGracePeriodSeconds = &grace
		}
		pods = append(pods, pod)
	}
	return pods
}

// TestLikeStock announces a shutdown to stock's manager and to ours on random nodes. Both stop the same pods in the
// same groups, with the same grace periods and statuses, send the same events, write the same file, and release the
// lock.
func TestLikeStock(t *testing.T) {
	for seed := range uint64(60) {
		b, r := resetBus(t), rand.New(rand.NewPCG(seed, 1))
		s, pods := randomSettings(r), randomPods(r)
		var nodes [2]*node
		var dirs [2]string
		var managers [2]manager
		first := b.count()
		for i, start := range []func(*testing.T, *node, settings, string) manager{startStock, startOurs} {
			nodes[i], dirs[i] = &node{pods: pods}, t.TempDir()
			managers[i] = start(t, nodes[i], s, dirs[i])
		}
		if b.count() != first+2 || !b.held(t, first) || !b.held(t, first+1) {
			t.Fatalf("seed %d: %d locks are taken", seed, b.count()-first)
		}
		b.announce(t, true)
		for i := range nodes {
			eventually(t, "lock released", func() bool { return !b.held(t, first+i) })
			nodes[i].end()
		}
		if !slices.Equal(nodes[0].calls, nodes[1].calls) {
			t.Errorf("seed %d, %+v: stock\n%q, ours\n%q", seed, s, nodes[0].calls, nodes[1].calls)
		}
		comparePublic(t, managers)
		compareFiles(t, dirs)
	}
}

func comparePublic(t *testing.T, managers [2]manager) {
	t.Helper()
	attrs := &lifecycle.PodAdmitAttributes{Pod: &v1.Pod{}}
	if stock, ours := managers[0].Admit(attrs), managers[1].Admit(attrs); stock != ours || ours.Admit {
		t.Errorf("stock admits %+v, ours %+v", stock, ours)
	}
	if stock, ours := managers[0].ShutdownStatus(), managers[1].ShutdownStatus(); fmt.Sprint(stock) != fmt.Sprint(ours) ||
		ours == nil {
		t.Errorf("status of stock %v, ours %v", stock, ours)
	}
}

func compareFiles(t *testing.T, dirs [2]string) {
	t.Helper()
	var fields [2][]string
	for i, dir := range dirs {
		file := filepath.Join(dir, "graceful_node_shutdown_state")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("mode %v, error %v", info.Mode(), err)
		}
		var times map[string]time.Time
		if err := json.Unmarshal(data, &times); err != nil {
			t.Fatal(err)
		}
		for field, when := range times {
			fields[i] = append(fields[i], fmt.Sprintf("%s %t", field, time.Since(when) < time.Minute))
		}
		slices.Sort(fields[i])
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 1 {
			t.Errorf("%d files are left, error %v", len(left), err)
		}
	}
	if !slices.Equal(fields[0], fields[1]) || len(fields[0]) != 2 {
		t.Errorf("stock writes %q, ours %q", fields[0], fields[1])
	}
}

// TestD41BesideStock cancels a shutdown after the lock was released, when its file descriptor belongs to another file.
// Stock closes that file.
func TestD41BesideStock(t *testing.T) {
	for name, tc := range map[string]struct {
		start func(*testing.T, *node, settings, string) manager
		open  bool
	}{"stock": {startStock, false}, "ours": {startOurs, true}} {
		b, n := resetBus(t), &node{}
		first := b.count()
		tc.start(t, n, settings{total: 2 * time.Second}, t.TempDir())
		fd := b.descriptor(t, first)
		b.announce(t, true)
		eventually(t, "lock released", func() bool { return !b.held(t, first) })
		other := otherFile(t, fd)
		b.announce(t, false)
		eventually(t, "another lock", func() bool { return b.count() == first+2 && b.held(t, first+1) })
		eventually(t, "cancellation", func() bool { return isOpen(fd, other) == tc.open })
		// It stays so: the manager has handled the cancellation before it handles the next announcement.
		b.announce(t, true)
		eventually(t, "second lock released", func() bool { return !b.held(t, first+1) })
		if got := isOpen(fd, other); got != tc.open {
			t.Errorf("%s: the other file is open %t, want %t", name, got, tc.open)
		}
		n.end()
	}
}

// descriptor returns the file descriptor of a lock in this process.
func (b *bus) descriptor(t *testing.T, lock int) int {
	t.Helper()
	var readEnd int
	b.locked(func() { readEnd = int(b.locks[lock].Fd()) })
	pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", readEnd))
	if err != nil {
		t.Fatal(err)
	}
	found := -1
	eventually(t, "one write end of the pipe", func() bool {
		found = -1
		count := 0
		for fd := range 1024 {
			if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && link == pipe && fd != readEnd {
				found, count = fd, count+1
			}
		}
		return count == 1
	})
	if err := syscall.SetNonblock(readEnd, true); err != nil { // Fd has set it to blocking mode
		t.Fatal(err)
	}
	return found
}

// otherFile opens a file with the given file descriptor, which must not be in use. It returns the identity of the file.
func otherFile(t *testing.T, number int) os.FileInfo {
	t.Helper()
	if _, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", number)); err == nil {
		t.Fatalf("file descriptor %d is in use", number)
	}
	path := filepath.Join(t.TempDir(), "other")
	// An os.File would close the file descriptor when it is garbage collected.
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDONLY|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if fd != number {
		if err := errors.Join(syscall.Dup3(fd, number, syscall.O_CLOEXEC), syscall.Close(fd)); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if isOpen(number, info) {
			_ = syscall.Close(number)
		}
	})
	return info
}

// isOpen returns true if the file descriptor belongs to the other file.
func isOpen(number int, other os.FileInfo) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d", number))
	return err == nil && os.SameFile(info, other)
}

// TestD42BesideStock cancels a shutdown while a pod is being stopped. Stock handles the cancellation only after all
// pods have stopped.
func TestD42BesideStock(t *testing.T) {
	for name, tc := range map[string]struct {
		start     func(*testing.T, *node, settings, string) manager
		cancelled bool
	}{"stock": {startStock, false}, "ours": {startOurs, true}} {
		b, release := resetBus(t), make(chan struct{})
		n := &node{pods: []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "slow"}}}, release: release}
		m := tc.start(t, n, settings{total: time.Minute}, t.TempDir())
		b.announce(t, true)
		eventually(t, "a kill", func() bool { return n.killing.Load() })
		b.announce(t, false)
		if tc.cancelled {
			eventually(t, "cancelled", func() bool { return m.ShutdownStatus() == nil })
		}
		// When another subscription has received a later signal, the manager has received the cancellation.
		events, err := connect(t).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.announce(t, false)
		<-events
		if cancelled := m.ShutdownStatus() == nil; cancelled != tc.cancelled {
			t.Errorf("%s: the cancellation has taken effect: %t", name, cancelled)
		}
		n.end()
		close(release)
	}
}

// TestD43BesideStock starts the managers during a shutdown. Stock gets no lock, gives up, and admits all pods.
func TestD43BesideStock(t *testing.T) {
	b, n := resetBus(t), &node{}
	b.locked(func() { b.rejectLocks, *b.shuttingDown = true, true })
	attrs := &lifecycle.PodAdmitAttributes{Pod: &v1.Pod{}}
	m := stock.NewManager(&stock.Config{
		Logger: klog.Background(), Recorder: n, GetPodsFunc: n.active, KillPodFunc: n.kill,
		ShutdownGracePeriodRequested: time.Minute, StateDirectory: t.TempDir(),
	})
	if err := m.Start(t.Context()); err == nil || m.ShutdownStatus() != nil || !m.Admit(attrs).Admit {
		t.Errorf("stock starts with %v, state %v, admits %v", err, m.ShutdownStatus(), m.Admit(attrs))
	}
	ours := startOurs(t, n, settings{total: time.Minute}, t.TempDir())
	if ours.ShutdownStatus() == nil || ours.Admit(attrs).Admit {
		t.Errorf("ours: state %v, admits %v", ours.ShutdownStatus(), ours.Admit(attrs))
	}
}

// TestD44BesideStock stops a pod of a DaemonSet and a static pod. Stock fails both, so that the DaemonSet controller
// replaces its pod on the node that shuts down.
func TestD44BesideStock(t *testing.T) {
	yes := true
	daemon := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "daemon",
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
	}
	static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "static",
		Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}
	for name, tc := range map[string]struct {
		start func(*testing.T, *node, settings, string) manager
		fails bool
	}{"stock": {startStock, true}, "ours": {startOurs, false}} {
		b, n := resetBus(t), &node{pods: []*v1.Pod{daemon, static}}
		first := b.count()
		tc.start(t, n, settings{total: time.Minute}, t.TempDir())
		b.announce(t, true)
		eventually(t, "lock released", func() bool { return !b.held(t, first) })
		n.end()
		if calls := strings.Join(n.calls, "; "); strings.Count(calls, "grace=") != 2 ||
			strings.Count(calls, `"phase":"Failed"`) == 2 != tc.fails {
			t.Errorf("%s: %s", name, calls)
		}
	}
}
