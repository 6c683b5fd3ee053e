package agentlife

import (
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

const (
	// apiServer is the static pod with the API server of some histories.
	apiServer = "kube-apiserver"
	// restTime is how long the pods must not change in the end; it is longer than any operation in progress.
	restTime = graceSeconds*time.Second + 2*backoffPeriod
	// sequencesPlayed is the default number of histories, which PLIMSOLL_SEQUENCES overrides; PLIMSOLL_SEED plays a single
	// one.
	sequencesPlayed = 1000
)

// found are the seeds of histories that detect a defect that the model has found, or an injected fault: pods that start
// again only after all sources have reported (5), a rejected static pod whose status outlives its manifest (13), a
// dropped static pod whose termination is not retried (42), one that is removed before it was started (116), a status
// cache that is used before it is filled (316), a static pod that was moved away and back and that a shutdown fails
// before it has terminated (502), one that is added again while the worker of the new pod stops it (2380, in one run of
// ten).
var found = []int64{5, 13, 42, 116, 316, 502, 2380}

// After any history of agent, machine, manifests and API server exactly the desired pods run in the end; before the API
// server responds, exactly the desired pods of the sources that have reported. Static pods with one name never run at
// the same time.
func TestWhatIsDesiredRunsAfterAnyHistory(t *testing.T) {
	if s := os.Getenv("PLIMSOLL_SEED"); s != "" {
		seed, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		play(t, seed, t.Logf)
		return
	}
	total := sequencesPlayed
	if s := os.Getenv("PLIMSOLL_SEQUENCES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		total = n
	}
	for _, seed := range found {
		play(t, seed, nil)
	}
	for seed := range int64(total) {
		if play(t, seed, nil); t.Failed() {
			return
		}
	}
}

// history is one random history.
type history struct {
	*rand.Rand
	t *testing.T
	w *world
	// a is nil while no agent runs.
	a *agent
	// pods is the number of pods so far, events the history as text.
	pods   int
	events []string
	log    func(string, ...any)
}

// play plays the history of a seed.
func play(t *testing.T, seed int64, log func(string, ...any)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := &history{Rand: rand.New(rand.NewSource(seed)), t: t, w: newWorld(seed, dir), log: log}
		defer func() {
			h.a.stop()
			if t.Failed() {
				t.Errorf("seed %d:\n%s", seed, strings.Join(h.events, "\n"))
			}
		}()
		h.before()
		h.begin()
		for range 4 + h.Intn(20) {
			h.step()
			time.Sleep(time.Duration(h.Intn(h.Intn(12_000)+1)) * time.Millisecond)
			synctest.Wait()
		}
		h.rest()
	})
}

func (h *history) logf(format string, args ...any) {
	line := time.Now().Format("04:05.000 ") + fmt.Sprintf(format, args...)
	h.events = append(h.events, line)
	if h.log != nil {
		h.log("%s", line)
	}
}

var staticNames = []string{"dns", "etcd", apiServer}

// before creates the initial state of the world.
func (h *history) before() {
	h.w.reachable = h.Intn(2) == 0
	if h.Intn(3) == 0 {
		h.w.selfHosted = apiServer
	}
	for _, name := range staticNames {
		if h.Intn(3) > 0 {
			h.w.files[name] = manifest{revision: 1 + h.Intn(2)}
		}
		if h.Intn(2) == 0 {
			h.w.start(staticPod(name, 1+h.Intn(2)))
		}
	}
	for range h.Intn(4) {
		if pod := h.newAPIPod(); h.Intn(2) == 0 {
			h.w.start(pod)
		}
	}
	h.logf("at first: reachable %t, self-hosted %q, manifests %v, %d pods in the API, running %s",
		h.w.reachable, h.w.selfHosted, h.w.files, len(h.w.api), join(h.w.runningUIDs()))
}

func (h *history) newAPIPod() *v1.Pod {
	h.pods++
	pod := newPod(types.UID(fmt.Sprintf("pod-%d", h.pods)), kubetypes.ApiserverSource)
	if h.Intn(2) == 0 {
		pod = daemonPod(types.UID(fmt.Sprintf("daemon-%d", h.pods)))
	}
	h.w.change(func() { h.w.api[pod.UID] = pod })
	return pod
}

func (h *history) begin() {
	h.logf("the agent starts")
	h.a = h.w.startAgent(h.t)
}

// step applies one random event.
func (h *history) step() {
	name := staticNames[h.Intn(len(staticNames))]
	switch kind := h.Intn(21); kind {
	case 0, 1, 2:
		h.file(name, manifest{})
	case 3, 4, 5:
		h.file(name, manifest{revision: 1 + h.Intn(3)})
	case 6:
		h.file(name, manifest{revision: 1, unreadable: true})
	case 7:
		// Moved away and back.
		f := h.w.files[name]
		h.file(name, manifest{})
		time.Sleep(time.Duration(h.Intn(3000)) * time.Millisecond)
		h.file(name, f)
	case 8:
		h.logf("pod %s is created", h.newAPIPod().UID)
	case 9, 10:
		h.deletePod(kind == 9)
	case 11, 12:
		h.toggle("API server reachable", &h.w.reachable)
	case 13:
		h.toggle("runtime slow", &h.w.slow)
	case 14:
		h.toggle("runtime fails now and then", &h.w.failing)
	case 15:
		h.toggle("runtime down", &h.w.down)
	case 16:
		h.toggle("pressure", &h.w.pressure)
	case 17:
		h.containerEnds()
	case 18:
		if h.a != nil {
			h.logf("shutdown announced: %t", !h.w.goingDown)
			h.a.announce(!h.w.goingDown)
		}
	case 19:
		h.restart()
		return
	case 20:
		h.evict()
	}
	if h.a == nil {
		h.begin()
	}
	h.a.requestRead()
}

// file writes a manifest; the zero manifest removes it.
func (h *history) file(name string, f manifest) {
	h.logf("manifest %s: %+v", name, f)
	h.w.change(func() {
		if h.w.files[name] = f; f.revision == 0 {
			delete(h.w.files, name)
		}
	})
	if h.a != nil {
		h.a.requestRead()
	}
}

func (h *history) deletePod(force bool) {
	pods := h.w.apiPods()
	if len(pods) == 0 {
		return
	}
	uid := pods[h.Intn(len(pods))].UID
	h.logf("pod %s is deleted, by force %t", uid, force)
	h.w.change(func() {
		if force {
			delete(h.w.api, uid)
			return
		}
		deleted := h.w.api[uid].DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		deleted.DeletionGracePeriodSeconds = new(int64(graceSeconds))
		h.w.api[uid] = deleted
	})
}

func (h *history) evict() {
	pods := h.w.apiPods()
	if len(pods) == 0 || h.a == nil {
		return
	}
	pod := pods[h.Intn(len(pods))]
	if _, known := h.a.pods.GetPodByUID(pod.UID); !known || h.a.isTerminal(pod.UID) {
		return
	}
	h.logf("pod %s is evicted", pod.UID)
	h.a.workers.UpdatePod(h.t.Context(), podworkers.Update{
		UpdateType: kubetypes.SyncPodKill, Pod: pod, Kill: &podworkers.KillOptions{Evict: true, GracePeriod: new(int64(10))},
	})
}

func (h *history) toggle(what string, flag *bool) {
	h.w.change(func() { *flag = !*flag })
	h.logf("%s: %t", what, *flag)
}

func (h *history) containerEnds() {
	uids := h.w.runningUIDs()
	if len(uids) == 0 {
		return
	}
	uid := uids[h.Intn(len(uids))]
	h.logf("the containers of %s end by themselves", uid)
	h.w.change(func() { delete(h.w.running, uid) })
}

// restart kills the agent; the next event starts another one. Sometimes the machine is rebooted as well.
func (h *history) restart() {
	if h.a == nil {
		return
	}
	h.logf("the agent is killed")
	h.a.crash()
	h.a = nil
	if h.Intn(4) == 0 {
		h.logf("the machine is rebooted")
		h.w.reboot()
		h.w.change(func() { h.w.goingDown = false })
	}
}

// rest makes the runtime healthy, and checks the result: at first with the API server as it is, then with one that
// responds.
func (h *history) rest() {
	h.logf("rest, API server answers: %t", h.w.apiAnswers())
	h.w.change(func() { h.w.healthy, h.w.pressure = true, false })
	if h.a == nil {
		h.begin()
	}
	if h.w.goingDown {
		h.a.announce(false)
	}
	h.await("cancelled shutdown", func() string {
		if err := h.a.shutdown.ShutdownStatus(); err != nil {
			return err.Error()
		}
		return ""
	})
	h.moveRejected()
	h.await("before the API server is reachable", h.a.difference)
	h.logf("API server reachable")
	h.w.change(func() { h.w.reachable = true })
	f, there := h.w.files[apiServer]
	if h.w.selfHosted != "" && (!there || f.unreadable) {
		h.file(apiServer, manifest{revision: 100})
	}
	h.await("with the API server", func() string {
		if !h.a.ready.AllReady() {
			return "not all sources are ready"
		}
		return h.a.difference()
	})
	time.Sleep(restTime)
	synctest.Wait()
	if wrong := h.a.difference(); wrong != "" {
		h.t.Errorf("not stable: %s", wrong)
	}
	for _, pod := range h.w.manifests() {
		if h.a.isTerminal(pod.UID) {
			h.t.Errorf("%s was moved away and back, and remains rejected", pod.UID)
		}
	}
	for _, wrong := range h.w.faults {
		h.t.Error(wrong)
	}
}

// moveRejected moves the manifests of static pods that a shutdown has rejected away, and back at once.
func (h *history) moveRejected() {
	h.a.readNow()
	synctest.Wait()
	for _, name := range staticNames {
		f, there := h.w.files[name]
		if !there || f.unreadable || !h.a.isTerminal(staticPod(name, f.revision).UID) {
			continue
		}
		for _, m := range []manifest{{}, f} {
			h.file(name, m)
			h.a.readNow()
		}
	}
	synctest.Wait()
}

// await waits until wrong returns an empty string.
func (h *history) await(when string, wrong func() string) {
	for begin := time.Now(); wrong() != ""; {
		if time.Since(begin) > patience {
			h.t.Fatalf("%s: %s\nafter %v; running %s", when, wrong(), patience, join(h.w.runningUIDs()))
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

// difference describes a difference between the running pods and those of the sources that have reported, empty if
// there is none.
func (a *agent) difference() string {
	running := a.w.runningUIDs()
	files, wanted := a.w.manifests(), map[types.UID]bool{}
	if len(a.files.snapshot()) != len(files) {
		return "the manifests have not been read"
	}
	for _, pod := range slices.Concat(files, a.api.snapshot()) {
		// Rejected pods have a terminal phase, also static ones: a shutdown that is cancelled later rejects new pods.
		if !podutil.IsPodPhaseTerminal(pod.Status.Phase) && !a.isTerminal(pod.UID) && pod.DeletionTimestamp == nil {
			wanted[pod.UID] = true
		}
	}
	for uid := range wanted {
		if !slices.Contains(running, uid) {
			state, _ := a.store.State(uid)
			return fmt.Sprintf("%s is desired and does not run: %+v", uid, state)
		}
	}
	for _, uid := range running {
		// Before all sources have reported, one that has not may have the pod, unless the pod is static and was dropped.
		if !wanted[uid] && (a.ready.AllReady() || a.files.hasDelivered(uid)) {
			state, _ := a.store.State(uid)
			return fmt.Sprintf("%s is not desired and runs: %+v", uid, state)
		}
	}
	return ""
}

// isTerminal is true when the agent has reported a terminal phase of the pod: the pod has ended, or was rejected.
func (a *agent) isTerminal(uid types.UID) bool {
	status, known := a.statuses.GetPodStatus(uid)
	return known && podutil.IsPodPhaseTerminal(status.Phase)
}
