package podsync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"pgregory.net/rapid"
)

var errTest = errors.New("oops")

// allSyncCalls are the calls of the first synchronization of a static pod, in order.
var allSyncCalls = []string{
	"no resize condition", "generate terminal=false", "publish", "register secrets", "register config maps",
	"qos", "make cgroup", "actuated", "node", "create mirror", "make dirs", "mount", "add probes", "run containers",
	"reasons",
}

func syncPod(w *world, pod *v1.Pod) (SyncResult, error) {
	request := SyncRequest{UpdateType: kubetypes.SyncPodCreate, Pod: pod, Status: w.inRuntime}
	return New(w.config()).Sync(context.Background(), request)
}

func TestSyncDoesEverythingInOrder(t *testing.T) {
	w := newWorld()
	res, err := syncPod(w, staticPod())
	if err != nil || res.Terminal || res.AfterSync != nil {
		t.Errorf("got %+v, %v", res, err)
	}
	expectCalls(t, w, allSyncCalls...)
	expectEvents(t, w)
}

func TestSyncFailures(t *testing.T) {
	for _, tc := range []struct {
		call string
		// after lists the calls after the failed one, nil if there are none.
		after []string
		// ignored failures do not fail the synchronization.
		ignored bool
		event   string
	}{
		{call: "qos", after: allSyncCalls[6:], ignored: true},
		{call: "make cgroup", event: "Warning FailedCreatePodContainer unable to ensure pod container exists: oops"},
		{call: "actuated"},
		{call: "node", after: allSyncCalls[10:], ignored: true},
		{call: "create mirror", after: allSyncCalls[10:], ignored: true},
		{call: "make dirs", event: "Warning Failed error making pod data directories: oops"},
		{call: "mount", event: "Warning FailedMount Unable to attach or mount volumes: oops"},
		{call: "run containers", after: []string{"reasons"}},
	} {
		t.Run(tc.call, func(t *testing.T) {
			w := newWorld()
			w.script[tc.call] = []error{errTest}
			res, err := syncPod(w, staticPod())
			if tc.ignored != (err == nil) || (err != nil && !errors.Is(err, errTest)) {
				t.Errorf("error %v", err)
			}
			if res.Terminal || res.AfterSync != nil {
				t.Errorf("a failed synchronization has the result %+v", res)
			}
			upTo := allSyncCalls[:slices.Index(allSyncCalls, tc.call)+1]
			expectCalls(t, w, slices.Concat(upTo, tc.after)...)
			if tc.event == "" {
				expectEvents(t, w)
			} else {
				expectEvents(t, w, tc.event)
			}

			// The next synchronization succeeds.
			if _, err := syncPod(w, staticPod()); err != nil {
				t.Errorf("second synchronization: %v", err)
			}
			if got := w.takeCalls(); got[len(got)-1] != "reasons" || !slices.Contains(got, "run containers") {
				t.Errorf("second synchronization ended early: %q", got)
			}
		})
	}
}

// For any failures every synchronization begins with the first step, and one more than the number of failures succeeds.
func TestSyncConverges(t *testing.T) {
	failing := []string{"make cgroup", "actuated", "make dirs", "mount", "run containers", "qos", "node", "create mirror"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		failures := 0
		for _, call := range failing {
			n := rapid.IntRange(0, 3).Draw(t, call)
			w.script[call] = slices.Repeat([]error{errTest}, n)
			failures += n
		}
		for pass := 0; ; pass++ {
			_, err := syncPod(w, staticPod())
			calls := w.takeCalls()
			if !isSubsequence(calls, allSyncCalls) {
				t.Fatalf("wrong order: %q", calls)
			}
			if err == nil {
				if !slices.Contains(calls, "run containers") {
					t.Fatalf("success without running containers: %q", calls)
				}
				return
			}
			if pass > failures {
				t.Fatalf("still failing after %d synchronizations: %v", pass, err)
			}
		}
	})
}

func isSubsequence(part, whole []string) bool {
	for _, p := range part {
		i := slices.Index(whole, p)
		if i < 0 {
			return false
		}
		whole = whole[i+1:]
	}
	return true
}

func TestSyncOfEndedPodIsTerminal(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		w := newWorld()
		w.api.Phase = phase
		res, err := syncPod(w, testPod())
		if err != nil || !res.Terminal {
			t.Errorf("%s: got %+v, %v", phase, res, err)
		}
		expectCalls(t, w, "no resize condition", "generate terminal=false", "publish")
	}
}

func TestSyncCopiesTheStatusForPublishedAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		api  v1.PodStatus
		want []string
	}{
		"many": {
			v1.PodStatus{PodIP: "1.1.1.1", PodIPs: []v1.PodIP{{IP: "1.1.1.1"}, {IP: "::1"}}}, []string{"1.1.1.1", "::1"},
		},
		"one":  {v1.PodStatus{PodIP: "1.1.1.1"}, []string{"1.1.1.1"}},
		"none": {v1.PodStatus{}, []string{}},
	} {
		w := newWorld()
		w.api = tc.api
		w.inRuntime.IPs = []string{"9.9.9.9"}
		if _, err := syncPod(w, testPod()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.synced.status.IPs, tc.want) || w.inRuntime.IPs[0] != "9.9.9.9" {
			t.Errorf("%s: the runtime gets %v, the cache has %v", name, w.synced.status.IPs, w.inRuntime.IPs)
		}
	}
}

func TestSyncWithoutNetwork(t *testing.T) {
	w := newWorld()
	w.network = errTest
	_, err := syncPod(w, testPod())
	const message = "network is not ready: oops"
	if !errors.Is(err, ErrNetworkNotReady) || !errors.Is(err, errTest) || !strings.Contains(err.Error(), message) {
		t.Errorf("got %v", err)
	}
	expectCalls(t, w, "no resize condition", "generate terminal=false", "publish")
	expectEvents(t, w, "Warning NetworkNotReady network is not ready: oops")

	pod := testPod()
	pod.Spec.HostNetwork = true
	if _, err := syncPod(w, pod); err != nil {
		t.Errorf("host network: %v", err)
	}
}

func TestSyncOfTerminatingPodSetsNothingUp(t *testing.T) {
	w := newWorld()
	w.terminating = true
	if _, err := syncPod(w, testPod()); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, w, "no resize condition", "generate terminal=false", "publish", "make dirs", "mount", "add probes")
}

func TestSyncStartsNothingOnceTerminationIsRequested(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(context.Background())
		w.onVolumes = cancel
		_, err := New(w.config()).Sync(ctx, SyncRequest{Pod: testPod(), Status: w.inRuntime})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if calls := w.takeCalls(); slices.Contains(calls, "run containers") {
			t.Errorf("containers are started: %q", calls)
		}
	})
	t.Run("lifecycle", func(t *testing.T) {
		w := newWorld()
		w.onVolumes = func() { w.terminating = true }
		if _, err := syncPod(w, testPod()); err != nil {
			t.Error(err)
		}
		if calls := w.takeCalls(); slices.Contains(calls, "run containers") {
			t.Errorf("containers are started: %q", calls)
		}
	})
}

func TestSyncWithoutCgroup(t *testing.T) {
	never, always := v1.RestartPolicyNever, v1.RestartPolicyAlways
	made := []string{"qos", "make cgroup", "actuated"}
	for _, tc := range []struct {
		name    string
		policy  v1.RestartPolicy
		running bool
		exists  bool
		own     *v1.ContainerRestartPolicy
		kill    error
		want    []string
		fails   bool
	}{
		{name: "exists", policy: always, running: true, exists: true},
		{name: "new pod", policy: always, want: made},
		{name: "new pod that runs once", policy: never, want: made},
		{name: "running", policy: always, running: true, want: slices.Concat([]string{"kill [a] grace=own", "qos"}, made)},
		{name: "running once", policy: never, running: true, want: []string{"kill [a] grace=own", "qos"}},
		{
			name: "running once, container restarts", policy: never, running: true, own: new(v1.ContainerRestartPolicyAlways),
			want: slices.Concat([]string{"kill [a] grace=own", "qos"}, made),
		},
		{
			name: "cannot be killed", policy: never, running: true, kill: errTest,
			want: slices.Concat([]string{"kill [a] grace=own"}, made),
		},
		{
			name: "kill interrupted", policy: always, running: true, kill: context.Canceled,
			want: []string{"kill [a] grace=own"}, fails: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			pod := testPod()
			pod.Spec.RestartPolicy = tc.policy
			pod.Spec.Containers[1].RestartPolicy = tc.own
			w.cgroup = tc.exists
			w.script["kill [a] grace=own"] = []error{tc.kill}
			if tc.running {
				w.api.ContainerStatuses = []v1.ContainerStatus{running("a")}
				w.inRuntime = runtimeStatus(container("a", kubecontainer.ContainerStateRunning))
			}
			_, err := syncPod(w, pod)
			if tc.fails != (err != nil) {
				t.Errorf("error %v", err)
			}
			calls := w.takeCalls()
			from := slices.Index(calls, "register config maps") + 1
			to := slices.Index(calls, "make dirs")
			if to < 0 {
				to = len(calls)
			}
			if !slices.Equal(calls[from:to], tc.want) {
				t.Errorf("got %q, want %q", calls[from:to], tc.want)
			}
		})
	}
}

func TestMirrorPod(t *testing.T) {
	mirrorOf := func(hash string) *v1.Pod {
		m := staticPod()
		m.UID = "mirror"
		m.Annotations[kubetypes.ConfigMirrorAnnotationKey] = hash
		return m
	}
	static := staticPod()
	static.Annotations[kubetypes.ConfigHashAnnotationKey] = "1"
	if !kubepod.IsMirrorPodOf(mirrorOf("1"), static) {
		t.Fatal("the mirror pod is not one of the static pod")
	}
	deleted := mirrorOf("1")
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	gone := &v1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	remove := "delete mirror pod_ns mirror"
	for _, tc := range []struct {
		name       string
		pod        *v1.Pod
		mirror     *v1.Pod
		node       *v1.Node
		fail       string
		notDeleted bool
		want       []string
	}{
		{name: "not static", pod: testPod()},
		{name: "none", pod: static, want: []string{"node", "create mirror"}},
		{name: "same", pod: static, mirror: mirrorOf("1")},
		{name: "other version", pod: static, mirror: mirrorOf("2"), want: []string{remove, "node", "create mirror"}},
		{name: "being deleted", pod: static, mirror: deleted, want: []string{remove, "node", "create mirror"}},
		{name: "delete fails", pod: static, mirror: deleted, fail: remove, want: []string{remove}},
		{name: "another one exists", pod: static, mirror: deleted, notDeleted: true, want: []string{remove}},
		{name: "no node", pod: static, fail: "node", want: []string{"node"}},
		{name: "node is being deleted", pod: static, node: gone, want: []string{"node"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			if tc.node != nil {
				w.node = tc.node
			}
			w.notDeleted = tc.notDeleted
			w.script[tc.fail] = []error{errTest}
			New(w.config()).ReconcileMirrorPod(context.Background(), tc.pod, tc.mirror)
			expectCalls(t, w, tc.want...)
		})
	}
}

func TestVolumeAttachLimitRejectsThePod(t *testing.T) {
	w := newWorld()
	w.script["mount"] = []error{&volumemanager.VolumeAttachLimitExceededError{OriginalError: errTest}}
	res, err := syncPod(w, testPod())
	if err != nil || !res.Terminal {
		t.Errorf("got %+v, %v", res, err)
	}
	calls := w.takeCalls()
	if got := calls[len(calls)-1]; got != "reject VolumeAttachmentLimitExceeded" {
		t.Errorf("last call %q", got)
	}
}

func TestCancelledVolumeWaitSendsNoEvent(t *testing.T) {
	w := newWorld()
	w.script["mount"] = []error{context.DeadlineExceeded}
	if _, err := syncPod(w, testPod()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	expectEvents(t, w)
}

func TestPullSecrets(t *testing.T) {
	w := newWorld()
	w.secrets["there"] = true
	pod := testPod()
	pod.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "x"}, {Name: ""}, {Name: "there"}, {Name: "y"}}
	if _, err := syncPod(w, pod); err != nil {
		t.Fatal(err)
	}
	if got := w.synced.pull; len(got) != 1 || got[0].Name != "there" {
		t.Errorf("got %v", got)
	}
	expectEvents(t, w, "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (x, y); "+
		"attempting to pull the image may not succeed.")

	c := w.config()
	c.Secrets, c.ConfigMaps = nil, nil
	if _, err := New(c).Sync(context.Background(), SyncRequest{Pod: pod, Status: nil}); err != nil {
		t.Errorf("without an API server: %v", err)
	}
}

func syncResult(action kubecontainer.SyncAction, err error) *kubecontainer.SyncResult {
	r := kubecontainer.NewSyncResult(action, "a")
	if err != nil {
		r.Fail(err, "the message")
	}
	return r
}

func TestRestartOfAllContainers(t *testing.T) {
	removed := syncResult(kubecontainer.RemoveContainer, nil)
	requested := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionTrue}
	for _, tc := range []struct {
		name      string
		condition v1.PodCondition
		off       bool
		results   []*kubecontainer.SyncResult
		restart   bool
		after     []string
	}{
		{
			name: "not requested", condition: v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse},
			results: []*kubecontainer.SyncResult{removed}, after: []string{"relist uid"},
		},
		{
			name: "gate off", condition: requested, off: true, results: []*kubecontainer.SyncResult{removed},
			after: []string{"relist uid"},
		},
		{
			name: "removed", condition: requested, results: []*kubecontainer.SyncResult{removed}, restart: true,
			after: []string{"requeue", "relist uid"},
		},
		{
			name: "all removed before", condition: requested, restart: true, after: []string{"relist uid"},
			results: []*kubecontainer.SyncResult{syncResult(kubecontainer.StartContainer, nil)},
		},
		{
			name: "failed", condition: requested, restart: true,
			results: []*kubecontainer.SyncResult{removed, syncResult(kubecontainer.RemoveContainer, errTest)},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.api.Conditions = []v1.PodCondition{tc.condition}
			w.runtimeDid.SyncResults = tc.results
			c := w.config()
			c.Features.RestartAllContainersOnContainerExits = !tc.off
			res, _ := New(c).Sync(context.Background(), SyncRequest{Pod: testPod(), Status: w.inRuntime})
			w.takeCalls()
			if w.synced.restartAll != tc.restart {
				t.Errorf("restartAll %t", w.synced.restartAll)
			}
			if res.AfterSync != nil {
				res.AfterSync()
			}
			expectCalls(t, w, tc.after...)
		})
	}
}

func TestResizeConditions(t *testing.T) {
	t.Run("in progress", func(t *testing.T) {
		w := newWorld()
		w.resizing = true
		_, _ = syncPod(w, testPod())
		if got := w.takeCalls()[0]; got != `resize condition "" ""` {
			t.Error(got)
		}
		expectEvents(t, w)
	})
	t.Run("done", func(t *testing.T) {
		w := newWorld()
		w.cleared = true
		_, _ = syncPod(w, testPod())
		const prefix = "Normal ResizeCompleted Pod resize completed: "
		got := w.takeEvents()
		if len(got) != 1 || !strings.HasPrefix(got[0], prefix) || !strings.Contains(got[0], `"generation":3`) {
			t.Error(got)
		}
	})
	t.Run("refused", func(t *testing.T) {
		w := newWorld()
		w.resizing = true
		w.changed = true
		w.runtimeDid.SyncResults = []*kubecontainer.SyncResult{syncResult(kubecontainer.ResizePodInPlace, errTest)}
		if _, err := syncPod(w, testPod()); !errors.Is(err, errTest) {
			t.Errorf("got %v", err)
		}
		if calls := w.takeCalls(); calls[len(calls)-1] != `resize condition "Error" "the message"` {
			t.Errorf("got %q", calls)
		}
		if got := w.takeEvents(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning ResizeError Pod resize error: ") {
			t.Error(got)
		}
	})
	t.Run("gate off", func(t *testing.T) {
		w := newWorld()
		w.resizing = true
		w.runtimeDid.SyncResults = []*kubecontainer.SyncResult{syncResult(kubecontainer.ResizePodInPlace, errTest)}
		c := w.config()
		c.Features.InPlacePodVerticalScaling = false
		_, _ = New(c).Sync(context.Background(), SyncRequest{Pod: testPod(), Status: w.inRuntime})
		for _, call := range w.takeCalls() {
			if strings.Contains(call, "resize") {
				t.Error(call)
			}
		}
	})
}

func TestBackOffExpirationSurvivesWrapping(t *testing.T) {
	w := newWorld()
	until := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	backingOff := syncResult(kubecontainer.StartContainer, kubecontainer.NewBackoffError(errTest, until))
	w.runtimeDid.SyncResults = []*kubecontainer.SyncResult{backingOff}
	_, err := syncPod(w, testPod())
	if at, ok := kubecontainer.MinBackoffExpiration(err); !ok || !at.Equal(until) {
		t.Errorf("got %v, %t from %v", at, ok, err)
	}
}

func TestStartsRunning(t *testing.T) {
	seen := kubetypes.NewTimestamp().GetString()
	for _, tc := range []struct {
		name      string
		now       v1.PodPhase
		published v1.PodPhase
		fromAPI   v1.PodPhase
		seen      string
		want      bool
	}{
		{name: "pending stays pending", now: v1.PodPending, published: v1.PodPending, seen: seen},
		{name: "first sync", now: v1.PodPending, seen: seen},
		{name: "becomes running", now: v1.PodRunning, published: v1.PodPending, seen: seen, want: true},
		{name: "stays running", now: v1.PodRunning, published: v1.PodRunning, seen: seen},
		{name: "ran before the agent started", now: v1.PodRunning, fromAPI: v1.PodRunning, seen: seen},
		{name: "first seen time not recorded", now: v1.PodRunning, published: v1.PodPending},
	} {
		w := newWorld()
		pod := testPod()
		pod.Status.Phase = tc.fromAPI
		if tc.published != "" {
			w.published["uid"] = v1.PodStatus{Phase: tc.published}
		}
		if tc.seen != "" {
			pod.Annotations = map[string]string{kubetypes.ConfigFirstSeenAnnotationKey: tc.seen}
		}
		p := newSyncPass(SyncRequest{Pod: pod})
		p.api.Phase = tc.now
		if got := (publishStatus{statuses: w}).startsRunning(p); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestStepNamesAreDistinct(t *testing.T) {
	s := New(newWorld().config())
	var all []string
	for _, x := range s.sync {
		all = append(all, x.Name())
	}
	for _, x := range s.terminate {
		all = append(all, x.Name())
	}
	for _, x := range s.cleanUp {
		all = append(all, x.Name())
	}
	slices.Sort(all)
	if len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("two steps have the same name: %q", all)
	}
}
