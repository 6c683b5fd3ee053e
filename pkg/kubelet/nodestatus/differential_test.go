package nodestatus

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

// twin has two equal worlds: one with our Updater, one with the stock kubelet.
type twin struct {
	clock     *testingclock.FakeClock
	s, stockS *apiServer
	w, stockW *world
	u         *Updater
	stock     *oracle
}

// TestSameAsStock registers and reports with both, and compares the Nodes, events, marked volumes and numbers of
// patches. The lister does not lag, since ours differs from stock then.
func TestSameAsStock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newTwin(t)
		ctx := t.Context()
		if err, ok := d.u.register(ctx), d.stock.register(ctx); (err == nil) != ok {
			t.Fatalf("registration: ours %v, stock %v", err, ok)
		}
		d.compare(t)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			d.clock.Step(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute}).Draw(t, "wait"))
			d.change(t)
			if ours, theirs := d.u.tryHeartbeat(ctx, 0), d.stock.heartbeat(ctx); ours != nil || theirs != nil {
				t.Fatalf("heartbeat: ours %v, stock %v", ours, theirs)
			}
			d.compare(t)
		}
	})
}

func newTwin(t *rapid.T) *twin {
	existing := drawNode(t)
	d := &twin{
		clock: testingclock.NewFakeClock(time.Unix(1e9, 0)), w: newWorld(), stockW: newWorld(),
		s: newAPIServer(existing), stockS: newAPIServer(existing),
	}
	plugins, zero := drawResources(t, "plugins", "example.com/gpu", "hugepages-1Gi"), rapid.Bool().Draw(t, "zero")
	for _, w := range []*world{d.w, d.stockW} {
		w.plugins, w.zeroExtended = plugins, zero
	}
	configure := drawConfig(t)
	cfg := newUpdater(nil, d.s, d.w, configure, func(c *Config) { c.Clock = d.clock }).cfg
	d.u = New(cfg)
	d.stock = newOracle(nil, d.stockS, d.stockW, cfg)
	return d
}

func (d *twin) change(t *rapid.T) {
	memory, disk, pid := rapid.Bool().Draw(t, "memory"), rapid.Bool().Draw(t, "disk"), rapid.Bool().Draw(t, "pid")
	down := rapid.SampledFrom([]error{nil, errors.New("runtime is down")}).Draw(t, "runtime")
	shutdown := rapid.SampledFrom([]error{nil, errors.New("node is shutting down")}).Draw(t, "shutdown")
	inUse := rapid.SliceOfN(rapid.SampledFrom([]v1.UniqueVolumeName{"a", "b"}), 0, 2).Draw(t, "volumes")
	images := []kubecontainer.Image{
		{ID: "i", RepoTags: rapid.SliceOfN(rapid.StringMatching("[a-z]{3}"), 0, 8).Draw(t, "tags"), Size: 5},
	}
	for _, w := range []*world{d.w, d.stockW} {
		w.memory, w.disk, w.pid, w.runtimeErr, w.shutdownErr, w.inUse, w.images = memory, disk, pid, down, shutdown, inUse,
			images
	}
	if rapid.Bool().Draw(t, "edit") {
		cordoned, labels := rapid.Bool().Draw(t, "cordoned"),
			drawMap(t, "labels", v1.LabelOSStable, v1.LabelArchStable, "theirs")
		cidrs := rapid.SampledFrom([][]string{nil, {"10.0.0.0/24"}, {"10.1.0.0/24", "fd00::/64"}}).Draw(t, "CIDRs")
		for _, s := range []*apiServer{d.s, d.stockS} {
			s.edit(func(n *v1.Node) { n.Spec.Unschedulable, n.Labels, n.Spec.PodCIDRs = cordoned, labels, cidrs })
		}
	}
}

func (d *twin) compare(t *rapid.T) {
	quantities := cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	if diff := cmp.Diff(d.stockS.current(), d.s.current(), quantities, ignoreVersion()); diff != "" {
		t.Fatalf("node (-stock +ours):\n%s", diff)
	}
	if diff := cmp.Diff(d.stockW.events, d.w.events); diff != "" {
		t.Fatalf("events (-stock +ours):\n%s", diff)
	}
	if diff := cmp.Diff(d.stockW.marked, d.w.marked); diff != "" {
		t.Fatalf("marked volumes (-stock +ours):\n%s", diff)
	}
	if diff := cmp.Diff(d.stockW.cidrUpdates, d.w.cidrUpdates); diff != "" {
		t.Fatalf("pod CIDR (-stock +ours):\n%s", diff)
	}
	if stock, ours := len(d.stockS.sent()), len(d.s.sent()); ours > stock {
		t.Fatalf("%d patches, stock %d", ours, stock)
	}
}

// ignoreVersion: stock sends a patch at registration even if it is empty.
func ignoreVersion() cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "ObjectMeta.ResourceVersion" }, cmp.Ignore())
}

func drawNode(t *rapid.T) *v1.Node {
	if rapid.Bool().Draw(t, "new") {
		return nil
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: testNode,
		Labels: drawMap(t, "labels", v1.LabelHostname, v1.LabelOSStable, v1.LabelArchStable, v1.LabelTopologyZone,
			v1.LabelInstanceType, "beta.kubernetes.io/os", "theirs"),
		Annotations: drawMap(t, "annotations", volumeutil.ControllerManagedAttachAnnotation, "theirs"),
	}}
	if rapid.Bool().Draw(t, "has capacity") {
		node.Status.Capacity = drawResources(t, "capacity", "cpu", "example.com/gpu", "other.com/x", "hugepages-2Mi",
			"hugepages-1Gi")
	}
	if rapid.Bool().Draw(t, "has allocatable") {
		node.Status.Allocatable = drawResources(t, "allocatable", "cpu", "example.com/gpu", "hugepages-2Mi", "hugepages-1Gi")
	}
	for _, kind := range []v1.NodeConditionType{v1.NodeReady, v1.NodeMemoryPressure, "Theirs"} {
		if status := rapid.SampledFrom([]v1.ConditionStatus{"", "True", "False", "Unknown"}).Draw(t,
			string(kind)); status != "" {
			node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{
				Type: kind, Status: status, Reason: "R", LastTransitionTime: metav1.NewTime(time.Unix(5, 0)),
			})
		}
	}
	return node
}

func drawConfig(t *rapid.T) func(*Config) {
	labels := drawMap(t, "own labels", "mine", v1.LabelTopologyZone, v1.LabelInstanceType, v1.LabelArchStable)
	attach, external := rapid.Bool().Draw(t, "attach"), rapid.Bool().Draw(t, "external")
	perCore := rapid.IntRange(0, 30).Draw(t, "pods per core")
	return func(c *Config) {
		r := &c.Registration
		r.Labels, r.ControllerAttachDetach, r.ExternalCloudProvider, r.ProviderID = labels, attach, external, "p://1"
		if external {
			r.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}
		c.Reporting.PodsPerCore = perCore
	}
}

func drawMap(t *rapid.T, name string, keys ...string) map[string]string {
	m := map[string]string{}
	for _, k := range keys {
		if v := rapid.SampledFrom([]string{"-", "", "true", "x"}).Draw(t, name+" "+k); v != "-" {
			m[k] = v
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

func drawResources(t *rapid.T, name string, names ...v1.ResourceName) v1.ResourceList {
	list := v1.ResourceList{}
	for _, n := range names {
		if v := rapid.Int64Range(-1, 3).Draw(t, name+" "+string(n)); v >= 0 {
			list[n] = *resource.NewQuantity(v, resource.DecimalSI)
		}
	}
	return list
}

// TestStatusChangedSameAsStock compares the decisions whether a status has changed.
func TestStatusChangedSameAsStock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawStatus(t, "before")
		after := before.DeepCopy()
		if rapid.Bool().Draw(t, "independent") {
			after = drawStatus(t, "after")
		}
		if rapid.Bool().Draw(t, "beat") {
			for i := range after.Conditions {
				after.Conditions[i].LastHeartbeatTime = metav1.NewTime(time.Unix(99, 0))
			}
		}
		b, a := before.DeepCopy(), after.DeepCopy()
		if ours, stock := statusChanged(before, after), stockStatusChanged(b, a); ours != stock {
			t.Fatalf("ours %v, stock %v", ours, stock)
		}
		if diff := cmp.Diff([]*v1.NodeStatus{b, a}, []*v1.NodeStatus{before, after}); diff != "" {
			t.Fatalf("modified what it compared:\n%s", diff)
		}
	})
}

func drawStatus(t *rapid.T, name string) *v1.NodeStatus {
	status := &v1.NodeStatus{Phase: v1.NodePhase(rapid.SampledFrom([]string{"", "x"}).Draw(t, name+" phase"))}
	status.Capacity = drawResources(t, name, "cpu")
	status.VolumesInUse = rapid.SliceOfN(rapid.Just[v1.UniqueVolumeName]("v"), 0, 1).Draw(t, name+" volumes")
	for _, kind := range rapid.Permutation([]v1.NodeConditionType{"A", "B"}).Draw(t, name+" order") {
		if s := rapid.SampledFrom([]v1.ConditionStatus{"", "True", "False"}).Draw(t, name+" "+string(kind)); s != "" {
			status.Conditions = append(status.Conditions, v1.NodeCondition{Type: kind, Status: s})
		}
	}
	return status
}
