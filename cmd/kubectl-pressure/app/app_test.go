package app

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/simulate"
)

func TestStatus(t *testing.T) {
	w := newWorld(t)
	out, _, code := w.run(t, "status")
	expect(t, out, "NODE", "n1", "MemoryPressure", "memory.available", "met", "stock", "DiskPressure")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if _, _, code := w.run(t, "status", "--exit-code"); code != ExitPressure {
		t.Errorf("exit code %d", code)
	}
	if _, _, code := w.run(t, "status", "stock", "--exit-code"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	out, _, _ = w.run(t, "status", "n1", "-o", "wide")
	expect(t, out, "SIGNAL", "memory.available", "nodefs.available", "The hard threshold 4Gi of memory.available is met")
	out, _, _ = w.run(t, "status", "n1", "-o", "json")
	var s nodeStatus
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Status == nil || s.Status.Node != "n1" ||
		s.document != documentOf(nodeStatusKind) {
		t.Errorf("%v %+v", err, s)
	}
	out, _, _ = w.run(t, "status", "-o", "jsonpath={.items[*].node}")
	if out != "n1 stock\n" {
		t.Errorf("%q", out)
	}
	out, _, _ = w.run(t, "status", "-o", "yaml")
	expect(t, out, "apiVersion: debug.plimsoll.dev/v1alpha1\nkind: NodePressureStatusList\nitems:\n  - node: n1\n",
		"ready: \"True\"\n")
	out, _, _ = w.run(t, "status", "stock", "-o", "yaml")
	expect(t, out, "agent: stock")
	if _, messages, code := w.run(t, "status", "-o", "xml"); code != ExitError || !strings.Contains(messages, "--output") {
		t.Errorf("%d %s", code, messages)
	}
	if _, _, code := w.run(t, "status", "no-such-node"); code != ExitError {
		t.Errorf("exit code %d", code)
	}
}

// A node that cannot be asked is shown as such, and makes the command fail.
func TestANodeThatCannotBeAsked(t *testing.T) {
	w := newWorld(t)
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Forbidden", http.StatusForbidden)
	}))
	defer forbidden.Close()
	w.asker["stock"] = forbidden.URL
	out, messages, code := w.run(t, "status")
	expect(t, out, "n1", "unknown")
	expect(t, messages, "node stock: 403 Forbidden")
	if code != ExitError {
		t.Errorf("exit code %d", code)
	}
}

func TestWhy(t *testing.T) {
	w := newWorld(t)
	out, _, code := w.run(t, "why", "pod-00")
	expect(t, out, "The pod scenario/pod-00 was evicted from the node n1", "The node ran out of memory",
		"the hard threshold of memory.available is 4Gi", "had to come free", "It was number 1 of 20 candidates: is above its",
		"PLACE", "Nothing was tried in the ten minutes before", "What became of it", "containers have stopped",
		"at most 1024Mi of memory", "What could be set", "Request at least", "kubectl pressure plan --node n1")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	out, _, _ = w.run(t, "why", "pod-00", "-o", "json")
	var a answer
	if err := json.Unmarshal([]byte(out), &a); err != nil || a.victim() == nil || len(a.Suggestions) != 3 ||
		a.document != documentOf(answerKind) {
		t.Errorf("%v %+v", err, a)
	}
	// A pod that runs is asked for on its own node only.
	out, _, _ = w.run(t, "why", "pod-01")
	expect(t, out, "The pod scenario/pod-01 was not evicted by the node n1. It was considered in")
	out, _, _ = w.run(t, "why", "late")
	expect(t, out, "The pod scenario/late was refused by the node n1", "Evicted", `\u202e`)
	if _, messages, code := w.run(t, "why", "nobody"); code != ExitNotFound || !strings.Contains(messages, "no record") {
		t.Errorf("%d %s", code, messages)
	}
	_, messages, code := w.run(t, "why", "pod-00", "--node", "stock")
	expect(t, messages, "warning: 1 of 1 nodes have no decision log; node stock: the kubelet of the node has no")
	if code != ExitNotFound {
		t.Errorf("exit code %d", code)
	}
}

func TestRank(t *testing.T) {
	w := newWorld(t)
	out, _, code := w.run(t, "rank", "n1")
	expect(t, out, "PLACE", "pod-00", "is above its request")
	if code != 0 || strings.Count(out, "\n") != 22 {
		t.Errorf("exit code %d, %d lines", code, strings.Count(out, "\n"))
	}
	out, _, _ = w.run(t, "rank", "n1", "-o", "jsonpath={.candidates[0].name}")
	if out != "pod-00\n" {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{{"rank", "n1", "--signal", "pid.available"}, {"rank", "stock"}, {"rank"}} {
		if _, messages, code := w.run(t, args...); code != ExitError || messages == "" {
			t.Errorf("%q: %d %q", args, code, messages)
		}
	}
}

// Records are shown as they are made; the command ends when the node ends the stream.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pressure/watch", func(answer http.ResponseWriter, _ *http.Request) {
		decision, _, err := w.log.Decision(firstEviction(t, w))
		if err != nil {
			t.Error(err)
		}
		text, err := json.Marshal(decision)
		if err != nil {
			t.Error(err)
		}
		outcome, err := json.Marshal(debugv1alpha1.PressureOutcome{Decision: 7, Kind: "PodStopped",
			Pod: &debugv1alpha1.PressurePod{Namespace: "x", Name: hostile}})
		if err != nil {
			t.Error(err)
		}
		_, _ = answer.Write([]byte(": comment\n\nevent: decision\nid: 1\ndata: " + string(text) +
			"\n\nevent: outcome\ndata: " + string(outcome) + "\n\nevent: unknown\ndata: {}\n\nevent: decision\ndata: {\n\n"))
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	w.asker["n1"] = s.URL
	out, messages, code := w.run(t, "watch", "n1")
	expect(t, out, "n1  ", "memory.available:", "Evict", "evict scenario/pod-00: ", "PodStopped", `\x1b[2J`)
	expect(t, messages, "the stream has ended")
	if code != ExitError {
		t.Errorf("exit code %d", code)
	}
	out, _, _ = w.run(t, "watch", "n1", "-o", "json")
	if first, _, _ := strings.Cut(out, "\n"); !json.Valid([]byte(first)) {
		t.Errorf("%q", first)
	}
}

// firstEviction returns the number of the decision with a victim.
func firstEviction(t *testing.T, w *world) uint64 {
	t.Helper()
	list, err := listed(w.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list.Items {
		if len(d.Victims) > 0 {
			return d.Number
		}
	}
	t.Fatal("nothing is evicted")
	return 0
}

// A trace that is taken away gives the recorded decisions with the same settings, and others with another threshold.
func TestTraceAndPlan(t *testing.T) {
	w := newWorld(t)
	out, _, code := w.run(t, "trace", "n1")
	if code != 0 {
		t.Fatal(code)
	}
	dir := t.TempDir()
	file, picture := filepath.Join(dir, "n1.jsonl"), filepath.Join(dir, "plan.svg")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"plan", "--trace", file}, {"plan", "--node", "n1"},
		{"plan", "--trace", file, "--threshold", "memory.available=4Gi"}} {
		out, messages, code := w.run(t, args...)
		expect(t, out, "The settings are those of the recording.", "pod-00", "Same")
		if code != 0 || strings.Contains(out, "others now") || strings.Contains(out, "could not be made") {
			t.Errorf("%q: %d %s %s", args, code, out, messages)
		}
	}
	out, _, _ = w.run(t, "plan", "--trace", file, "--threshold", "memory.available=6Gi", "--svg", picture)
	expect(t, out, "pod-00", "Earlier")
	svg, err := os.ReadFile(picture)
	if err != nil || !strings.HasPrefix(string(svg), "<svg ") || strings.Count(string(svg), "<polyline") != 3 {
		t.Errorf("%v %.200s", err, svg)
	}
	out, _, _ = w.run(t, "plan", "--trace", file, "--threshold", "memory.available=1Gi", "-o", "json")
	var r simulate.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Recorded) == 0 || len(r.Planned) != 0 {
		t.Errorf("%v %+v", err, r)
	}
}

// The output format is checked before anything is asked: without a cluster that would panic. So is its template.
func TestOutputFormatIsCheckedFirst(t *testing.T) {
	for _, args := range [][]string{
		{"status", "-o", "xml"}, {"why", "pod-01", "-o", "json "}, {"rank", "n1", "-o", ""}, {"watch", "-o", "yaml"},
		{"plan", "--scenario", "leak", "-o", "jsonpath"},
	} {
		_, messages, code := new(world).run(t, args...)
		if code != ExitError || !strings.Contains(messages, "must be one of table, ") {
			t.Errorf("%q: %d %q", args, code, messages)
		}
	}
	for _, template := range []string{"", "{.items[}", "{.items"} {
		_, messages, code := new(world).run(t, "status", "-o", "jsonpath="+template)
		if code != ExitError || !strings.Contains(messages, "--output: ") {
			t.Errorf("%q: %d %q", template, code, messages)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{\"pod\":{}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"plan"}, {"plan", "--scenario", "flood"}, {"plan", "--scenario", "leak", "--node", "n1"},
		{"plan", "--scenario", "leak", "--threshold", "memory.available"}, {"plan", "--trace", bad},
		{"plan", "--scenario", "leak", "--threshold", "memory=1Gi"}, {"plan", "--scenario", "leak", "--spared", "die"},
		{"plan", "--scenario", "leak", "--signal", "none"}, {"plan", "--scenario", "leak", "--config", bad},
		{"plan", "--scenario", "leak", "--pressure-config", filepath.Join(dir, "absent.yaml")},
	} {
		if _, messages, code := w.run(t, args...); code != ExitError || messages == "" {
			t.Errorf("%q: %d %q", args, code, messages)
		}
	}
}

func TestPlanWithFiles(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	kubelet, pressure := filepath.Join(dir, "kubelet.yaml"), filepath.Join(dir, "pressure.yaml")
	for file, text := range map[string]string{
		kubelet: "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
			"evictionHard:\n  memory.available: 2Gi\n",
		pressure: "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\ndryRun:\n" +
			"- signal: memory.available\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, _, _ := w.run(t, "plan", "--scenario", "leak", "--config", kubelet)
	expect(t, out, "pod-00", "Additional")
	out, _, _ = w.run(t, "plan", "--node", "n1", "--pressure-config", pressure)
	expect(t, out, "pod-00", "dry run")
}

// Every command has an example, and completion knows nodes and pods.
func TestHelpAndCompletion(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"status", "why", "rank", "watch", "trace", "plan"} {
		out, _, code := w.run(t, name, "--help")
		expect(t, out, "Examples:", "kubectl pressure "+name)
		if code != 0 {
			t.Errorf("%s: %d", name, code)
		}
	}
	out, _, _ := w.run(t, "__complete", "status", "")
	expect(t, out, "n1", "stock")
	out, _, _ = w.run(t, "__complete", "--namespace", "scenario", "why", "")
	expect(t, out, "pod-01")
}

func TestTheContextEndsAWatch(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.cluster.watch(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil); err == nil {
		t.Error("no error")
	}
}

// Who had to end for a critical pod is found by name and by UID, also if a pod of the name was evicted before.
func TestWhyOfAPreemptedPod(t *testing.T) {
	w := newWorld(t)
	const uid = "12345678-1234-1234-1234-123456789abc"
	pod := func(namespace, name string, uid types.UID) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}
	}
	now := w.log.Clock.(*clocktesting.FakePassiveClock)
	now.SetTime(now.Now().Add(time.Minute))
	w.log.Preemption(pod("scenario", "critical", "c"), []*v1.Pod{pod("scenario", "batch", uid),
		pod("scenario", "pod-00", "another")}, []*v1.Pod{pod("scenario", "ending", "e")}, nil)
	for _, name := range []string{"batch", uid} {
		out, messages, code := w.run(t, "why", name)
		expect(t, out, "The pod scenario/batch was preempted on the node n1", "the pod scenario/critical, whose priority",
			"2 other pods were needed beside it", "Leave room on the node for the pod scenario/critical")
		if code != 0 || strings.Contains(out, "terminating") {
			t.Errorf("%d %s %s", code, out, messages)
		}
	}
	out, _, _ := w.run(t, "why", "ending")
	expect(t, out, "The pod scenario/ending was preempted", "It was terminating already")
	out, _, _ = w.run(t, "why", "pod-00")
	expect(t, out, "The pod scenario/pod-00 was preempted")
	out, _, _ = w.run(t, "why", "pod-00", "-o", "json")
	var a answer
	if err := json.Unmarshal([]byte(out), &a); err != nil || a.Pod.UID != "another" || a.Preemption == nil ||
		a.Decision != nil || len(a.Preemption.Stop) != 2 {
		t.Errorf("%v %+v", err, a)
	}
	out, _, _ = w.run(t, "why", "critical")
	expect(t, out, "2 pods of lower priority were to be stopped on the node n1 for the pod scenario/critical")
	// The next pod of the name is refused: that is newer.
	now.SetTime(now.Now().Add(time.Minute))
	w.log.Admission(pod("scenario", "batch", "next"), decisionlog.Rejected, "OutOfmemory", "no room")
	out, _, _ = w.run(t, "why", "batch")
	expect(t, out, "The pod scenario/batch was refused by the node n1")
}

// A pod that is being evicted when a plan awaits its end was not preempted.
func TestWhyOfAnEvictedPodThatAPlanAwaits(t *testing.T) {
	w := newWorld(t)
	out, _, _ := w.run(t, "why", "pod-00", "-o", "json")
	var before, after answer
	if err := json.Unmarshal([]byte(out), &before); err != nil || before.Decision == nil {
		t.Fatal(err, out)
	}
	now := w.log.Clock.(*clocktesting.FakePassiveClock)
	now.SetTime(now.Now().Add(time.Minute))
	pod := func(p debugv1alpha1.PressurePod) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
	}
	critical := debugv1alpha1.PressurePod{Namespace: "scenario", Name: "critical", UID: "c"}
	w.log.Preemption(pod(critical), nil, []*v1.Pod{pod(before.Pod)}, nil)
	out, _, _ = w.run(t, "why", "pod-00", "-o", "json")
	if err := json.Unmarshal([]byte(out), &after); err != nil || after.Decision == nil || after.Preemption != nil {
		t.Errorf("%v, an eviction before: %t, now %+v", err, before.Decision != nil, after)
	}
}
