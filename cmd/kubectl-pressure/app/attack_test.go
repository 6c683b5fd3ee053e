package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilclock "k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
)

// hostileNode serves pages in which each text is hostile, as a compromised node could.
func hostileNode(t *testing.T) *httptest.Server {
	t.Helper()
	name := hostile + "\u009b2J\U000e0001"
	pod := debugv1alpha1.PressurePod{Namespace: name, Name: "pod-00", UID: "u"}
	victim := debugv1alpha1.PressureVictim{PressurePod: debugv1alpha1.PressurePod{Namespace: "scenario", Name: "pod-00",
		UID: "u"}, Cause: name, Signal: name, Limit: name, Plugins: name, Killer: name, Message: name}
	candidate := debugv1alpha1.PressureCandidate{PressurePod: victim.PressurePod, QOSClass: name, Reason: name}
	outcome := debugv1alpha1.PressureOutcome{Decision: 1, Kind: name, Pod: &victim.PressurePod, Detail: name, Error: name}
	d := debugv1alpha1.PressureDecision{
		Number: 1, Trigger: name, Victims: []debugv1alpha1.PressureVictim{victim},
		Needs:      []debugv1alpha1.PressureNeed{{Signal: name, Outcome: name, InFlight: 1}},
		Thresholds: []debugv1alpha1.PressureThreshold{{Signal: name, Kind: name, Value: name, Met: true}},
		Rankings: []debugv1alpha1.PressureRanking{{Signal: name,
			Candidates: []debugv1alpha1.PressureCandidate{candidate, candidate}}},
		Reclaims: []debugv1alpha1.PressureReclaim{{Signal: name}}, Outcomes: []debugv1alpha1.PressureOutcome{outcome},
	}
	s := debugv1alpha1.PressureStatus{
		Node: name, Signals: []debugv1alpha1.PressureSignal{{Signal: name, Level: name, Error: name, Source: name}},
		InFlight: []debugv1alpha1.PressureInFlight{{PressurePod: pod, State: name}}, Thresholds: d.Thresholds,
		Waiting: []debugv1alpha1.PressurePod{pod}, DryRun: []debugv1alpha1.PressureVictim{victim},
		Conditions: []debugv1alpha1.PressureCondition{{Type: name, True: true}},
		Rankings: []debugv1alpha1.PressureRanking{{Signal: "memory.available",
			Candidates: []debugv1alpha1.PressureCandidate{candidate, candidate}}},
	}
	earlier := d
	earlier.Number = 0
	event, err := json.Marshal(&d)
	if err != nil {
		t.Error(err)
	}
	mux := http.NewServeMux()
	for path, value := range map[string]any{
		"status": s, "decisions/1": d,
		"decisions": debugv1alpha1.PressureDecisionList{Items: []debugv1alpha1.PressureDecision{earlier, d}},
	} {
		mux.HandleFunc("/debug/pressure/"+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := json.NewEncoder(w).Encode(value); err != nil {
				t.Error(err)
			}
		})
	}
	mux.HandleFunc("/debug/pressure/watch", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("event: decision\ndata: " + string(event) + "\n\n"))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// Whatever a node sends, it cannot change the terminal.
func TestTextsOfAHostileNodeAreText(t *testing.T) {
	w := newWorld(t)
	w.asker["n1"] = hostileNode(t).URL
	for _, args := range []string{
		"status", "status -o wide", "status -o json", "status -o yaml", "status n1", "status n1 -o wide",
		"status n1 -o json", "status n1 -o yaml", "why pod-00 -o yaml", "rank n1 -o yaml",
		"status n1 -o jsonpath={.status}", "why pod-00", "why pod-00 -o wide", "why pod-00 -o json", "rank n1",
		"rank n1 -o wide", "rank n1 -o json", "watch n1", "watch n1 -o json",
	} {
		out, messages, _ := w.run(t, strings.Fields(args)...)
		if text := out + messages; strings.ContainsAny(text, "\x1b\u202e\u009b\U000e0001") {
			t.Errorf("%s: a text can change the terminal:\n%q", args, text)
		}
		if strings.HasSuffix(args, "json") || strings.HasSuffix(args, "yaml") {
			var value any
			decode := json.Unmarshal
			if strings.HasSuffix(args, "yaml") {
				decode = func(text []byte, into any) error { return yaml.Unmarshal(text, into) }
			}
			if err := decode([]byte(out), &value); err != nil {
				t.Errorf("%s: %v", args, err)
			} else if text, _ := json.Marshal(value); !strings.Contains(string(text), "\u009b2J\U000e0001") {
				t.Errorf("%s: the text is lost", args)
			}
		}
	}
}

// An evicted pod is found although another pod on another node has its name now, and the two are not confused.
func TestWhyOfAPodWithASuccessor(t *testing.T) {
	w := newWorld(t)
	empty := httptest.NewServer(pages(decisionlog.New(decisionlog.Config{Node: "n2", Clock: utilclock.RealClock{},
		LimitBytes: 1 << 20})))
	defer empty.Close()
	w.asker["n2"] = empty.URL
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scenario", Name: "pod-00", UID: "successor"},
		Spec: v1.PodSpec{NodeName: "n2"}}
	if _, err := w.cluster.CoreV1().Nodes().Create(t.Context(), node("n2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.cluster.CoreV1().Pods("scenario").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, messages, code := w.run(t, "why", "pod-00")
	if code != 0 {
		t.Fatalf("%d %s", code, messages)
	}
	expect(t, out, "The pod scenario/pod-00 was evicted from the node n1",
		"This is about the pod with the UID scenario-00", "on the node n2, is another one (UID successor)")
	if _, _, code := w.run(t, "why", "pod-00", "--node", "n2"); code != ExitNotFound {
		t.Errorf("exit code %d", code)
	}
	// On the same node as before.
	pod.Spec.NodeName = "n1"
	if _, err := w.cluster.CoreV1().Pods("scenario").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, _, _ = w.run(t, "why", "pod-00")
	expect(t, out, "was evicted from the node n1", "on the node n1, is another one (UID successor)")
}

// The end of the stream of one node is said while others are watched on.
func TestWatchSaysThatANodeIsNotWatchedAnyMore(t *testing.T) {
	w := newWorld(t)
	w.asker["n1"] = hostileNode(t).URL
	_, messages, code := w.run(t, "watch")
	expect(t, messages, "warning: not watched any more: node stock: the kubelet of the node has no decision log",
		"warning: not watched any more: node n1: the stream has ended")
	if code != ExitError {
		t.Errorf("exit code %d", code)
	}
}

// A decision that says what the one before said is not shown again.
func TestWatchDoesNotRepeatItself(t *testing.T) {
	w := newWorld(t)
	same := `event: decision\ndata: {"number":1,"signals":[{"signal":"nodefs.available","available":5,"capacity":10}]}` +
		"\n\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.ReplaceAll(same, `\n`, "\n") + strings.ReplaceAll(same, `\n`, "\n")))
	}))
	defer server.Close()
	w.asker["n1"] = server.URL
	if out, _, _ := w.run(t, "watch", "n1"); strings.Count(out, "nodefs.available") != 1 {
		t.Errorf("%s", out)
	}
}

func TestRankOfANodeWithoutPods(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"rankings":[{"signal":"memory.available","candidates":[]}]}`))
	}))
	defer server.Close()
	w.asker["n1"] = server.URL
	out, _, code := w.run(t, "rank", "n1")
	expect(t, out, "There is no pod that may be evicted")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestYAMLIsReadByOthers: parsers of YAML 1.1, which kubectl has, read the same strings.
func TestYAMLIsReadByOthers(t *testing.T) {
	for _, text := range []string{"on", "no", "y", "N", "<<", "1:20", "1e5", "0777", "~", "null", "", "true", "=", "a: b",
		"2026-11-23T22:33:18Z", " a ", "a\nb", "a\r\nb", "\x1b[31m", "\u202e", "\u00a0", "\U000e0001", "\U0001f600",
		"\x00", "\x7f",
	} {
		want := map[string]any{"text": text, text: []any{text}}
		written, err := yamlOf(want)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got map[string]any
		if err := yaml.Unmarshal(written, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %q is %q", text, err, written, got)
		}
	}
}
