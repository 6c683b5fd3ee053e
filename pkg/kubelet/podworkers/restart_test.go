package podworkers

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// machine is everything that outlives the agent: containers, the API server, and the directory of termination records.
type machine struct {
	t    *rapid.T
	dir  string
	rand *rand.Rand

	mu      sync.Mutex
	running sets.Set[types.UID]
	// generated are the statuses that the running agent has generated; shown are those at the API server.
	generated, published map[types.UID]v1.PodStatus
	// recorded are the pods with a record on disk, and their deadlines; they must not be started.
	recorded map[types.UID]time.Time
	// requested are the pods whose termination was requested.
	requested sets.Set[types.UID]
	// slow is how long the containers of a pod take to stop, if the grace period permits it.
	slow map[types.UID]time.Duration
	// sooner ends the Terminate of a pod.
	sooner map[types.UID]chan struct{}
}

func (m *machine) Sync(_ context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, promised := m.recorded[request.Pod.UID]; promised {
		m.t.Errorf("%s is synced although it has a termination record", request.Pod.UID)
	}
	m.running.Insert(request.Pod.UID)
	return podsync.SyncResult{}, nil
}

func (m *machine) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	uid := request.Pod.UID
	m.mu.Lock()
	if !m.requested.Has(uid) {
		m.t.Errorf("%s is stopped without a request", uid)
	}
	if latest, promised := m.recorded[uid]; promised && *request.GracePeriod > 1 &&
		time.Now().Add(time.Duration(*request.GracePeriod)*time.Second).After(latest) {
		m.t.Errorf("%s gets %d s at %v, its deadline is %v", uid, *request.GracePeriod, time.Now(), latest)
	}
	status := v1.PodStatus{Phase: v1.PodRunning}
	request.Disruption.Apply(&status)
	m.generated[uid] = status
	takes := time.Duration(0)
	if m.running.Has(uid) {
		takes = min(m.slow[uid], time.Duration(*request.GracePeriod)*time.Second)
	}
	sooner := make(chan struct{}, 1)
	m.sooner[uid] = sooner
	m.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-sooner:
	case <-time.After(takes):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running.Delete(uid)
	return nil
}

// Hasten ends a Terminate that still runs after the shorter grace period.
func (m *machine) Hasten(ctx context.Context, request podsync.TerminateRequest) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(*request.GracePeriod) * time.Second):
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case m.sooner[request.Pod.UID] <- struct{}{}:
	default:
	}
	return nil
}

func (m *machine) TerminateRuntimePod(context.Context, *kubecontainer.Pod) error { return nil }

// CleanUp reports the final status. It reaches the API server soon, unless the agent crashes before.
func (m *machine) CleanUp(_ context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	status, known := m.generated[pod.UID]
	if !known {
		status = pod.Status // as the status generator does
	}
	if status.Phase != v1.PodFailed {
		status.Phase = v1.PodSucceeded
	}
	if m.rand.Intn(2) == 0 {
		m.published[pod.UID] = status
	}
	return nil
}

// pods returns the pods as they are at the API server.
func (m *machine) pods() []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var pods []*v1.Pod
	for i := range 4 {
		pod := newPod(fmt.Sprintf("p%d", i))
		pod.Status = m.published[pod.UID]
		pods = append(pods, pod)
	}
	return pods
}

// agent is one run of the agent on the machine.
type agent struct {
	*node
	m     *machine
	store *terminations.Store
	// stopWriting stops writing to disk.
	stopWriting func()
}

// start starts an agent and sends it all pods. It writes records at once, or never (a full disk).
func (m *machine) start(t *testing.T, writes bool) *agent {
	a := &agent{m: m, store: terminations.New(terminations.Config{Directory: m.dir})}
	a.store.Load(t.Context())
	m.generated = map[types.UID]v1.PodStatus{}
	a.node = newNode(t, withTerminations(a.store), func(c *Config) { c.Syncer, c.Runtime, c.Hastener = m, m, m })
	for uid := range m.running {
		a.cache.Set(uid, running(&v1.Pod{}), nil, time.Now())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if writes {
			a.store.Run(ctx)
		}
	}()
	a.stopWriting = func() { cancel(); <-ended }
	for _, pod := range m.pods() {
		a.create(pod)
	}
	return a
}

// crash ends the agent as SIGKILL does: the directory remains as it is now.
func (a *agent) crash() {
	before := a.m.onDisk()
	a.close()
	a.stopWriting()
	if err := os.RemoveAll(a.m.dir); err != nil {
		a.m.t.Fatal(err)
	}
	if len(before) > 0 {
		if err := os.MkdirAll(a.m.dir, 0o700); err != nil {
			a.m.t.Fatal(err)
		}
	}
	for name, data := range before {
		if err := os.WriteFile(a.m.dir+"/"+name, data, 0o600); err != nil {
			a.m.t.Fatal(err)
		}
	}
}

func (m *machine) onDisk() map[string][]byte {
	files := map[string][]byte{}
	entries, err := os.ReadDir(m.dir)
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(m.dir + "/" + e.Name()); err != nil {
			m.t.Fatal(err)
		}
	}
	return files
}

// step requests the termination of a random pod, or advances the time; then sync loop and housekeeping run.
func (a *agent) step(t *rapid.T) {
	pods := a.m.pods()
	if pod := pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]; rapid.Bool().Draw(t, "evict") &&
		pod.Status.Phase == "" {
		a.m.mu.Lock()
		a.m.requested.Insert(pod.UID)
		a.m.mu.Unlock()
		a.send(kubetypes.SyncPodKill, pod, evictionOptions(rapid.Int64Range(0, 120).Draw(t, "grace")))
	}
	a.advance(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
	a.round()
}

func (a *agent) round() {
	pods := a.m.pods()
	a.syncLoop(pods...)
	a.SyncKnownPods(pods)
	synctest.Wait()
	a.m.readRecords()
}

// readRecords reads the records on disk. From here on later agents must resume these terminations.
func (m *machine) readRecords() {
	disk := terminations.New(terminations.Config{Directory: m.dir})
	disk.Load(klog.NewContext(m.t.Context(), klog.Logger{}))
	m.mu.Lock()
	defer m.mu.Unlock()
	disk.DeleteFunc(func(r terminations.Record) bool {
		// In addition to the grace period: rounding to seconds, and the wait for the runtime's status.
		m.recorded[r.UID] = r.Deadline.Add(time.Second + defaultStatusWait)
		return false
	})
}

// After a crash at any time the next agent completes all recorded terminations, with their disruption and within their
// deadline. It stops no other pod, and no record is left on disk.
func TestAgentCrashesAtAnyTime(t *testing.T) {
	root, promises := t.TempDir(), 0
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			dir, err := os.MkdirTemp(root, "*")
			if err != nil {
				rt.Fatal(err)
			}
			m := newMachine(rt, dir+"/terminations")
			for range rapid.IntRange(1, 3).Draw(rt, "deaths") {
				a := m.start(t, rapid.IntRange(0, 4).Draw(rt, "full") > 0)
				for range rapid.IntRange(0, 8).Draw(rt, "steps") {
					a.step(rt)
				}
				a.crash()
				time.Sleep(time.Duration(rapid.IntRange(0, 60).Draw(rt, "away")) * time.Second)
			}
			last := m.start(t, true)
			defer last.stopWriting()
			defer last.close()
			for range 20 {
				last.advance(20 * time.Second)
				last.round()
			}
			m.check(last)
			promises += len(m.recorded)
		})
	})
	if promises == 0 {
		t.Error("there was never a record on disk")
	}
	t.Logf("%d terminations were on disk", promises)
}

func newMachine(t *rapid.T, dir string) *machine {
	m := &machine{
		t: t, dir: dir, rand: rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))), running: sets.New[types.UID](),
		published: map[types.UID]v1.PodStatus{}, recorded: map[types.UID]time.Time{}, requested: sets.New[types.UID](),
		slow:   map[types.UID]time.Duration{},
		sooner: map[types.UID]chan struct{}{},
	}
	for _, pod := range m.pods() {
		m.slow[pod.UID] = time.Duration(rapid.IntRange(0, 200).Draw(t, "slow")) * time.Second
	}
	return m
}

// check checks the final state.
func (m *machine) check(a *agent) {
	for _, pod := range m.pods() {
		status, final := m.published[pod.UID]
		if !final {
			status, final = m.generated[pod.UID]
		}
		_, promised := m.recorded[pod.UID]
		switch {
		case promised && (!final || status.Phase != v1.PodFailed || status.Reason != "Evicted" || status.Message == "" ||
			len(status.Conditions) != 1):
			m.t.Errorf("%s was to be evicted, its status is %+v", pod.UID, status)
		case promised && (m.running.Has(pod.UID) || a.state(pod).Phase != podlifecycle.Finished):
			m.t.Errorf("%s was to be evicted, and is %+v", pod.UID, a.state(pod))
		case !m.requested.Has(pod.UID) && (!m.running.Has(pod.UID) || a.phase(pod) != podlifecycle.Syncing):
			m.t.Errorf("%s is %v without a request", pod.UID, a.phase(pod))
		}
		_, left := a.store.Get(pod.UID)
		if acknowledged := m.published[pod.UID].Phase != ""; left && acknowledged {
			m.t.Errorf("%s: the phase at the API server is terminal, and the record is not deleted", pod.UID)
		}
	}
	if len(m.onDisk()) > 0 {
		kept := slices.Collect(func(yield func(types.UID) bool) {
			a.store.DeleteFunc(func(r terminations.Record) bool { yield(r.UID); return false })
		})
		if len(kept) != len(m.onDisk()) {
			m.t.Errorf("%d files on disk, records of %q", len(m.onDisk()), kept)
		}
	}
}
