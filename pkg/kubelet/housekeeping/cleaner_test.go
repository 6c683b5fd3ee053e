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
)

// busyNode has one of everything.
func busyNode(t testing.TB) *node {
	n := newNode(t)
	ended := pod("rejected")
	ended.DeletionTimestamp = &metav1.Time{}
	ended.Status.Phase = v1.PodFailed
	n.pods = []*v1.Pod{pod("runs"), static("again"), pod("held"), ended}
	n.inactive.Insert("rejected")
	n.waiting.Insert("held")
	n.mirrors = []*v1.Pod{pod("mirror")}
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

var wholeRound = []string{
	"cgroups", "pods", "known", "refresh runtime 1000", "running",
	"probes [going runs]", "statuses [again held mirror rejected runs]", "allocations [again held rejected runs]",
	"userns",
	"delete mirror a_ns", "delete mirror z_ns",
	"create again", "finish rejected", "kill orphan unknown grace=1",
	"throttle c-mounted", "backoff",
}

func TestRound(t *testing.T) {
	n := busyNode(t)
	if err := clean(t, n); err != nil {
		t.Fatal(err)
	}
	expect(t, n, wholeRound...)
}

// Before every source has reported pods are started again and nothing is removed, nor is the runtime asked.
func TestRestartPods(t *testing.T) {
	n := busyNode(t)
	dir := mkdir(t, n.layout.Pod("nobody's"))
	if err := New(n.config()).RestartPods(context.Background()); err != nil {
		t.Fatal(err)
	}
	expect(t, n, "pods", "known static", "statuses [again held mirror rejected runs]", "create again")
	if !exists(dir) {
		t.Error("a directory was removed")
	}
}

func TestFailuresOfARound(t *testing.T) {
	for _, tc := range []struct {
		call  string
		fatal bool
		quiet bool
	}{
		{call: "cgroups", fatal: true},
		{call: "refresh runtime 1000", fatal: true},
		{call: "running", fatal: true},
		{call: "userns"},
		{call: "delete mirror a_ns"},
		{call: "throttle c-mounted", quiet: true},
	} {
		n := busyNode(t)
		n.fail[tc.call] = errTest
		err := clean(t, n)
		if tc.quiet != (err == nil) || (err != nil && !errors.Is(err, errTest)) {
			t.Errorf("%s: error %v", tc.call, err)
		}
		want := wholeRound
		if tc.fatal {
			want = wholeRound[:slices.Index(wholeRound, tc.call)+1]
		}
		expect(t, n, want...)
	}
}

func TestMissingPodsDirectoryFailsOnlyItsTask(t *testing.T) {
	n := busyNode(t)
	if err := os.Remove(n.layout.Pods()); err != nil {
		t.Fatal(err)
	}
	if err := clean(t, n); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "orphaned pod directories") {
		t.Errorf("got %v", err)
	}
	expect(t, n, wholeRound...)
}

func TestOrphanedCgroupIsRemovedOnceAtATime(t *testing.T) {
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
		destroyed := slices.DeleteFunc(n.take(), func(s string) bool { return !strings.HasPrefix(s, "destroy") })
		slices.Sort(destroyed)
		if want := []string{"destroy c-gone", "destroy c-orphan"}; !slices.Equal(destroyed, want) {
			t.Errorf("got %q", destroyed)
		}
		// A removal that has ended, well or not, may be repeated.
		if err := c.CleanUp(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if !slices.Contains(n.take(), "destroy c-orphan") {
			t.Error("not tried again")
		}
	})
}

func TestWithoutPodCgroups(t *testing.T) {
	n := busyNode(t)
	c := n.config()
	c.Cgroups = nil
	if err := New(c).CleanUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, call := range n.take() {
		if call == "cgroups" || strings.HasPrefix(call, "throttle") {
			t.Error(call)
		}
	}
}

func TestRejectedPodsThatAreLeftAlone(t *testing.T) {
	now := &metav1.Time{}
	for name, change := range map[string]func(*node, *v1.Pod){
		"not deleted": func(_ *node, p *v1.Pod) { p.DeletionTimestamp = nil },
		"not ended":   func(_ *node, p *v1.Pod) { p.Status.Phase = v1.PodPending },
		"known":       func(n *node, p *v1.Pod) { n.known[p.UID] = syncing(true) },
	} {
		n := newNode(t)
		p := pod("p")
		p.DeletionTimestamp, p.Status.Phase = now, v1.PodSucceeded
		n.pods = []*v1.Pod{p}
		n.inactive.Insert("p")
		change(n, p)
		if err := clean(t, n); err != nil {
			t.Fatal(err)
		}
		if got := n.take(); slices.Contains(got, "finish p") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// One that runs is stopped, and finished in a later round.
	n := newNode(t)
	p := pod("p")
	p.DeletionTimestamp, p.Status.Phase = now, v1.PodSucceeded
	n.pods, n.running = []*v1.Pod{p}, []*kubecontainer.Pod{runtimePod("p")}
	n.inactive.Insert("p")
	_ = clean(t, n)
	if got := n.take(); slices.Contains(got, "finish p") || !slices.Contains(got, "kill orphan p grace=1") {
		t.Errorf("running: %q", got)
	}
}

func TestMetrics(t *testing.T) {
	metrics.Register()
	n := busyNode(t)
	if err := clean(t, n); err != nil {
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
				return map[*v1.Pod]*v1.Pod{static("b"): nil, static("a"): pod("m"), static("c"): nil}
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
			Pods: func() map[*v1.Pod]*v1.Pod { t.Error("went on without a node"); return nil },
		})
	})
}
