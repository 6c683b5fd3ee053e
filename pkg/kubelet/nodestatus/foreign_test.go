package nodestatus

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/reported"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// TestForeignPartsAreUntouched writes to the Node as other clients do, in random order with registrations, heartbeats
// and publications of pressure, of plugin conditions and of fields of reporter plugins, and with a lister that lags. It
// checks that the fields of the other clients have their last values, and that in the end the plugin conditions and the
// fields of reporter plugins are those that were reported last.
func TestForeignPartsAreUntouched(t *testing.T) {
	reporters := newReporters(t)
	rapid.Check(t, func(t *rapid.T) {
		if err := os.RemoveAll(reporters.file); err != nil {
			t.Fatal(err)
		}
		reporters.content = merge.Node{}
		s, w := newAPIServer(nil), newWorld()
		w.plugins = v1.ResourceList{"example.com/ours": resource.MustParse("2")}
		theirs := &foreign{}
		if rapid.Bool().Draw(t, "exists") {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode, UID: "exists"}}
			theirs.write(t, node)
			s.store(node)
		}
		u := newUpdater(nil, s, w, reporters.configure)
		if err := u.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		theirs.takeTaints(s.current())
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			u = step(t, s, w, u, theirs, reporters)
			theirs.check(t, s.current())
		}
		s.deliver()
		u.SyncNow(t.Context())
		checkPluginConditions(t, s.current(), w.pluginConditions)
		writeReported(t, u, reporters)
		u.SyncNow(t.Context())
		want, err := reported.Of(&reporters.content)
		if err != nil {
			t.Fatal(err)
		}
		got := reported.OfNode(s.current())
		maps.DeleteFunc(got, func(f reported.Field, _ string) bool { return !strings.HasPrefix(f.Key, "example.com/p") })
		if !maps.Equal(got, want) {
			t.Fatalf("fields of reporter plugins %v, want %v", got, want)
		}
	})
}

// checkPluginConditions fails if the plugin conditions of the Node are not those in the list.
func checkPluginConditions(t *rapid.T, node *v1.Node, want []PluginCondition) {
	if diff := cmp.Diff(want, pluginConditionsOf(node.Status.Conditions), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("plugin conditions (-want +got):\n%s", diff)
	}
}

func drawPluginConditions(t *rapid.T) (list []PluginCondition) {
	for _, name := range []string{"A", "B", "Ready"} {
		if rapid.Bool().Draw(t, "condition "+name) {
			list = append(list, NewPluginCondition(name, rapid.Bool().Draw(t, name), []string{"p"}))
		}
	}
	return list
}

// writeReported publishes what reporter plugins report now.
func writeReported(t *rapid.T, u *Updater, r *reporters) {
	if u.fields.devices.Load() == nil || !u.refreshReported() {
		return
	}
	if _, err := u.writeReported(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func drawReported(t *rapid.T) merge.Node {
	keys := rapid.SampledFrom([]string{"example.com/p1", "example.com/p2"})
	strings := rapid.MapOf(keys, rapid.SampledFrom([]string{"", "1", "2"}))
	quantities := func(label string) v1.ResourceList {
		list := v1.ResourceList{}
		for key, amount := range rapid.MapOf(keys, rapid.Int64Range(0, 2000)).Draw(t, label) {
			list[v1.ResourceName(key)] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
		return list
	}
	return merge.Node{
		Labels: strings.Draw(t, "reported labels"), Annotations: strings.Draw(t, "reported annotations"),
		Capacity: quantities("reported capacity"), Allocatable: quantities("reported allocatable"),
	}
}

func step(t *rapid.T, s *apiServer, w *world, u *Updater, theirs *foreign, r *reporters) *Updater {
	switch rapid.SampledFrom([]string{
		"they", "heartbeat", "pressure", "restart", "lag", "deliver", "world", "reporters",
	}).Draw(t, "step") {
	case "reporters":
		r.content = drawReported(t)
		writeReported(t, u, r)
	case "they":
		s.edit(func(n *v1.Node) { theirs.write(t, n) })
	case "heartbeat":
		u.SyncNow(t.Context())
	case "pressure":
		if err := u.tryPublishPressure(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	case "restart":
		s.deliver()
		u = newUpdater(nil, s, w, r.configure)
		w.zeroExtended = rapid.Bool().Draw(t, "created again") && len(theirs.capacity) == 0
		u.SyncNow(t.Context())
	case "lag":
		s.lagging = true
	case "deliver":
		s.lagging = false
		s.deliver()
	case "world":
		w.memory = rapid.Bool().Draw(t, "memory")
		w.disk = rapid.Bool().Draw(t, "disk")
		w.runtimeErr = rapid.SampledFrom([]error{nil, fmt.Errorf("down")}).Draw(t, "runtime")
		w.pluginConditions = drawPluginConditions(t)
		w.inUse = []v1.UniqueVolumeName{v1.UniqueVolumeName(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "volume"))}
	}
	return u
}

// foreign has the last values that other clients have written.
type foreign struct {
	labels, annotations map[string]string
	taints              []v1.Taint
	conditions          []v1.NodeCondition
	attached            []v1.AttachedVolume
	capacity            v1.ResourceList
	unschedulable       bool
}

const theirPrefix = "their.example/"

func (f *foreign) write(t *rapid.T, node *v1.Node) {
	keys := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID[string])
	values := rapid.SampledFrom([]string{"", "1", "2"})
	pairs := func(label string) map[string]string {
		m := map[string]string{}
		for _, k := range keys.Draw(t, label) {
			m[theirPrefix+k] = values.Draw(t, label+" value")
		}
		return m
	}
	*f = foreign{
		labels: pairs("labels"), annotations: pairs("annotations"), unschedulable: rapid.Bool().Draw(t, "cordoned"),
	}
	for _, k := range keys.Draw(t, "taints") {
		f.taints = append(f.taints, v1.Taint{Key: theirPrefix + k, Effect: v1.TaintEffectNoExecute})
	}
	for _, k := range keys.Draw(t, "conditions") {
		f.conditions = append(f.conditions, v1.NodeCondition{
			Type: v1.NodeConditionType(theirPrefix + k), Status: v1.ConditionStatus(values.Draw(t, "status")),
			Message:           values.Draw(t, "message"),
			LastHeartbeatTime: metav1.NewTime(time.Unix(rapid.Int64Range(1, 9).Draw(t, "time"), 0)),
		})
	}
	for _, k := range keys.Draw(t, "attached") {
		f.attached = append(f.attached, v1.AttachedVolume{Name: v1.UniqueVolumeName(k), DevicePath: values.Draw(t, "device")})
	}
	f.capacity = v1.ResourceList{}
	for _, k := range keys.Draw(t, "resources") {
		f.capacity[v1.ResourceName(theirPrefix+k)] = *resource.NewQuantity(rapid.Int64Range(0, 9).Draw(t, "amount"),
			resource.DecimalSI)
	}
	f.replaceIn(node)
}

func (f *foreign) replaceIn(node *v1.Node) {
	node.Labels = replaceTheirs(node.Labels, f.labels)
	node.Annotations = replaceTheirs(node.Annotations, f.annotations)
	node.Spec.Taints, node.Spec.Unschedulable = f.taints, f.unschedulable
	node.Status.VolumesAttached = f.attached
	node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c v1.NodeCondition) bool {
		return isTheirs(string(c.Type))
	})
	// In front, so that ours move.
	node.Status.Conditions = append(slices.Clone(f.conditions), node.Status.Conditions...)
	capacity := maps.Clone(node.Status.Capacity)
	maps.DeleteFunc(capacity, func(k v1.ResourceName, _ resource.Quantity) bool { return isTheirs(string(k)) })
	if capacity == nil {
		capacity = v1.ResourceList{}
	}
	maps.Copy(capacity, f.capacity)
	node.Status.Capacity = capacity
}

// takeTaints adds the taints with which the Node was created.
func (f *foreign) takeTaints(node *v1.Node) { f.taints = node.Spec.Taints }

func (f *foreign) check(t *rapid.T, node *v1.Node) {
	got := foreign{
		labels: onlyTheirs(node.Labels), annotations: onlyTheirs(node.Annotations),
		taints: node.Spec.Taints, attached: node.Status.VolumesAttached, unschedulable: node.Spec.Unschedulable,
		capacity: onlyTheirs(node.Status.Capacity),
	}
	for _, c := range node.Status.Conditions {
		if isTheirs(string(c.Type)) {
			got.conditions = append(got.conditions, c)
		}
	}
	byType := func(a, b v1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) }
	slices.SortFunc(got.conditions, byType)
	want := *f
	want.conditions = slices.SortedFunc(slices.Values(f.conditions), byType)
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// String returns a text for comparisons; nil and empty are equal in it.
func (f foreign) String() string {
	var b strings.Builder
	for _, m := range []map[string]string{f.labels, f.annotations} {
		fmt.Fprintln(&b, m)
	}
	for _, c := range f.conditions {
		fmt.Fprintln(&b, c.Type, c.Status, c.Message, c.LastHeartbeatTime.Unix())
	}
	for _, name := range slices.Sorted(maps.Keys(f.capacity)) {
		amount := f.capacity[name]
		fmt.Fprintln(&b, name, amount.Value())
	}
	fmt.Fprintln(&b, f.taints, f.attached, f.unschedulable)
	return b.String()
}

func isTheirs(key string) bool { return strings.HasPrefix(key, theirPrefix) }

func onlyTheirs[K ~string, V any](m map[K]V) map[K]V {
	only := maps.Clone(m)
	maps.DeleteFunc(only, func(k K, _ V) bool { return !isTheirs(string(k)) })
	return only
}

func replaceTheirs(m, theirs map[string]string) map[string]string {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(k, _ string) bool { return isTheirs(k) })
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, theirs)
	return out
}
