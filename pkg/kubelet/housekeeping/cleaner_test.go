package housekeeping

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// fullNode returns a node with an example of everything that CleanUp handles.
func fullNode(t testing.TB) *node {
	n := newNode(t)
	terminal := fixture.Pod("rejected")
	terminal.DeletionTimestamp = &metav1.Time{}
	terminal.Status.Phase = v1.PodFailed
	n.pods = []*v1.Pod{fixture.Pod("runs"), static("again"), fixture.Pod("waiting"), terminal}
	n.inactive.Insert("rejected")
	n.waiting.Insert("waiting")
	n.mirrors = []*v1.Pod{fixture.Pod("mirror")}
	n.orphanedMirrors = []string{"z_ns", "busy_ns", "a_ns"}
	n.terminating.Insert("busy_ns")
	n.known = map[types.UID]podworkers.KnownPod{
		"runs":  syncing(true),
		"going": {State: podlifecycle.WorkTerminating, HasConfig: true, Orphan: true},
		"gone":  {State: podlifecycle.WorkTerminated, HasConfig: true, Orphan: true},
	}
	n.running = []*kubecontainer.Pod{runtimePod("runs"), runtimePod("unknown"), runtimePod("again"), runtimePod("going")}
	n.cgroups = map[types.UID]cm.CgroupName{
		"runs": {"c-runs"}, "going": {"c-going"}, "again": {"c-again"}, "unknown": {"c-unknown"}, "mounted": {"c-mounted"},
	}
	n.mounted.Insert("mounted")
	return n
}

var allCalls = []string{
	"cgroups", "pods", "known", "refresh runtime 1000", "running",
	"probes [going runs]", "statuses [again mirror rejected runs waiting]", "allocations [again rejected runs waiting]",
	"userns",
	"create again", "finish rejected", "kill orphan unknown grace=1",
	"throttle c-mounted", "backoff",
}

func TestCleanUp(t *testing.T) {
	n := fullNode(t)
	if err := cleanUp(t, n); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, n, allCalls...)
}

// Before all sources have reported, pods are restarted, nothing is removed, and the runtime is not accessed.
func TestRestartPods(t *testing.T) {
	n := fullNode(t)
	dir := mkdir(t, n.layout.Pod("orphan"))
	if err := New(n.config()).RestartPods(context.Background()); err != nil {
		t.Fatal(err)
	}
	expectCalls(t, n, "pods", "known static", "statuses [again mirror rejected runs waiting]", "create again")
	if !exists(dir) {
		t.Error("a pod directory was removed")
	}
}

// While the machine shuts down no pod is started again.
func TestNoRestartsDuringShutdown(t *testing.T) {
	for name, round := range map[string]func(*Cleaner) error{
		"with all sources":         func(c *Cleaner) error { return c.CleanUp(context.Background()) },
		"before all have reported": func(c *Cleaner) error { return c.RestartPods(context.Background()) },
	} {
		n := fullNode(t)
		n.goingDown = true
		cleaner := New(n.config())
		if err := round(cleaner); err != nil {
			t.Fatal(err)
		}
		cleaner.Wait()
		if calls := n.takeCalls(); slices.Contains(calls, "create again") {
			t.Errorf("%s: a pod is started again: %q", name, calls)
		}
	}
}

func TestCleanUpFailures(t *testing.T) {
	for _, tc := range []struct {
		call  string
		fatal bool
		quiet bool
	}{
		{call: "cgroups", fatal: true},
		{call: "refresh runtime 1000", fatal: true},
		{call: "running", fatal: true},
		{call: "userns"},
		{call: "delete mirror a_ns", quiet: true},
		{call: "throttle c-mounted", quiet: true},
	} {
		n := fullNode(t)
		n.fail[tc.call] = errTest
		err := cleanUp(t, n)
		if tc.quiet != (err == nil) || (err != nil && !errors.Is(err, errTest)) {
			t.Errorf("%s: error %v", tc.call, err)
		}
		want := allCalls
		if tc.fatal {
			want = allCalls[:slices.Index(allCalls, tc.call)+1]
		}
		expectCalls(t, n, want...)
		if !tc.fatal {
			fixture.ExpectEqual(t, "deleted mirror pods", n.deletedMirrors, []string{"a_ns", "z_ns"})
		}
	}
}

// The sync loop does not wait for an API server that does not answer. At most one goroutine does.
func TestHousekeepingDoesNotWaitForTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.orphanedMirrors, n.apiServer = []string{"b_ns", "a_ns"}, make(chan struct{})
		c := New(n.config())
		for range 3 {
			if err := c.CleanUp(context.Background()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		fixture.ExpectEqual(t, "deleted while the API server does not answer", n.deletedMirrors, []string{"a_ns"})
		close(n.apiServer)
		c.Wait()
		fixture.ExpectEqual(t, "deleted", n.deletedMirrors, []string{"a_ns", "b_ns"})
		if err := c.CleanUp(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		fixture.ExpectEqual(t, "deleted again", n.deletedMirrors, []string{"a_ns", "b_ns", "a_ns", "b_ns"})
	})
}

func TestMissingPodsDirectoryFailsOnlyItsTask(t *testing.T) {
	n := fullNode(t)
	if err := os.Remove(n.layout.Pods()); err != nil {
		t.Fatal(err)
	}
	if err := cleanUp(t, n); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "orphaned pod directories") {
		t.Errorf("got %v", err)
	}
	expectCalls(t, n, allCalls...)
}

func TestOrphanedCgroupIsRemovedByOneGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.cgroups = map[types.UID]cm.CgroupName{"orphan": {"c-orphan"}, "gone": {"c-gone"}}
		n.known["gone"] = podworkers.KnownPod{State: podlifecycle.WorkTerminated}
		n.destroying = make(chan struct{})
		c := New(n.config())
		for range 3 {
			if err := c.CleanUp(context.Background()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		close(n.destroying)
		c.Wait()
		destroyed := slices.DeleteFunc(n.takeCalls(), func(s string) bool { return !strings.HasPrefix(s, "destroy") })
		slices.Sort(destroyed)
		if want := []string{"destroy c-gone", "destroy c-orphan"}; !slices.Equal(destroyed, want) {
			t.Errorf("got %q", destroyed)
		}
		// After a removal has ended, with or without an error, it may be repeated.
		if err := c.CleanUp(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if !slices.Contains(n.takeCalls(), "destroy c-orphan") {
			t.Error("the removal is not repeated")
		}
	})
}

func TestWithoutPodCgroups(t *testing.T) {
	n := fullNode(t)
	c := n.config()
	c.Cgroups = nil
	if err := New(c).CleanUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, call := range n.takeCalls() {
		if call == "cgroups" || strings.HasPrefix(call, "throttle") {
			t.Error(call)
		}
	}
}

func TestTerminatedPodsWithoutAWorker(t *testing.T) {
	now := &metav1.Time{}
	for name, change := range map[string]func(*node, *v1.Pod){
		"not deleted":  func(_ *node, p *v1.Pod) { p.DeletionTimestamp = nil },
		"not terminal": func(_ *node, p *v1.Pod) { p.Status.Phase = v1.PodPending },
		"has a worker": func(n *node, p *v1.Pod) { n.known[p.UID] = syncing(true) },
	} {
		n := newNode(t)
		p := fixture.Pod("p")
		p.DeletionTimestamp, p.Status.Phase = now, v1.PodSucceeded
		n.pods = []*v1.Pod{p}
		n.inactive.Insert("p")
		change(n, p)
		if err := cleanUp(t, n); err != nil {
			t.Fatal(err)
		}
		if got := n.takeCalls(); slices.Contains(got, "finish p") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// A pod with running containers is stopped first, and finished in a later round.
	n := newNode(t)
	p := fixture.Pod("p")
	p.DeletionTimestamp, p.Status.Phase = now, v1.PodSucceeded
	n.pods, n.running = []*v1.Pod{p}, []*kubecontainer.Pod{runtimePod("p")}
	n.inactive.Insert("p")
	_ = cleanUp(t, n)
	if got := n.takeCalls(); slices.Contains(got, "finish p") || !slices.Contains(got, "kill orphan p grace=1") {
		t.Errorf("running: %q", got)
	}
}

func TestMetrics(t *testing.T) {
	metrics.Register()
	n := fullNode(t)
	if err := cleanUp(t, n); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP kubelet_active_pods [ALPHA] The number of pods the kubelet considers active and which are being ` +
		`considered when admitting new pods. static is true if the pod is not from the apiserver.
# TYPE kubelet_active_pods gauge
kubelet_active_pods{static=""} 2
kubelet_active_pods{static="true"} 1
# HELP kubelet_desired_pods [ALPHA] The number of pods the kubelet is being instructed to run. ` +
		`static is true if the pod is not from the apiserver.
# TYPE kubelet_desired_pods gauge
kubelet_desired_pods{static=""} 3
kubelet_desired_pods{static="true"} 1
# HELP kubelet_mirror_pods [ALPHA] The number of mirror pods the kubelet will try to create ` +
		`(one per admitted static pod)
# TYPE kubelet_mirror_pods gauge
kubelet_mirror_pods 1
# HELP kubelet_working_pods [ALPHA] Number of pods the kubelet is actually running, broken down by lifecycle phase, ` +
		`whether the pod is desired, orphaned, or runtime only (also orphaned), and whether the pod is static. ` +
		`An orphaned pod has been removed from local configuration or force deleted in the API and consumes resources ` +
		`that are not otherwise visible.
# TYPE kubelet_working_pods gauge
kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1
kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1
kubelet_working_pods{config="desired",lifecycle="terminated",static=""} 0
kubelet_working_pods{config="desired",lifecycle="terminated",static="true"} 0
kubelet_working_pods{config="desired",lifecycle="terminating",static=""} 0
kubelet_working_pods{config="desired",lifecycle="terminating",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="sync",static=""} 0
kubelet_working_pods{config="orphan",lifecycle="sync",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="terminated",static=""} 1
kubelet_working_pods{config="orphan",lifecycle="terminated",static="true"} 0
kubelet_working_pods{config="orphan",lifecycle="terminating",static=""} 1
kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 0
kubelet_working_pods{config="runtime_only",lifecycle="sync",static="unknown"} 0
kubelet_working_pods{config="runtime_only",lifecycle="terminated",static="unknown"} 0
kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1
`
	names := []string{"kubelet_active_pods", "kubelet_desired_pods", "kubelet_mirror_pods", "kubelet_working_pods"}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestRegisterStaticPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var reconciled []string
		RegisterStaticPods(context.Background(), StaticPods{
			Node: func(context.Context) (*v1.Node, error) {
				if time.Since(begin) < 3*nodePollPeriod {
					return nil, errTest
				}
				return &v1.Node{}, nil
			},
			Pods: func() map[*v1.Pod]*v1.Pod {
				return map[*v1.Pod]*v1.Pod{static("b"): nil, static("a"): fixture.Pod("m"), static("c"): nil}
			},
			Reconcile: func(_ context.Context, p, mirror *v1.Pod) {
				name := p.Name
				if mirror != nil {
					name += "+" + mirror.Name
				}
				reconciled = append(reconciled, name)
			},
		})
		if !slices.Equal(reconciled, []string{"a+m", "b", "c"}) || time.Since(begin) != 3*nodePollPeriod {
			t.Errorf("got %q after %v", reconciled, time.Since(begin))
		}

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		RegisterStaticPods(ctx, StaticPods{
			Node: func(context.Context) (*v1.Node, error) { return nil, errTest },
			Pods: func() map[*v1.Pod]*v1.Pod { t.Error("mirror pods are created before the registration"); return nil },
		})
	})
}
