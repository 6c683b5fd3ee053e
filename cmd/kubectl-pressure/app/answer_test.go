package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// answers is a node with these pages.
type answers struct {
	list debugv1alpha1.PressureDecisionList
	// full are the pages of single decisions; those of the list if it is nil.
	full []debugv1alpha1.PressureDecision
}

// add adds a node to the world.
func (w *world) add(t *testing.T, name string, a answers) {
	t.Helper()
	write := func(w http.ResponseWriter, value any) {
		if err := json.NewEncoder(w).Encode(value); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pressure/decisions", func(w http.ResponseWriter, _ *http.Request) { write(w, a.list) })
	if a.full == nil {
		a.full = a.list.Items
	}
	for i := range a.full {
		d := a.full[i]
		path, err := json.Marshal(d.Number)
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("/debug/pressure/decisions/"+string(path), func(w http.ResponseWriter, _ *http.Request) {
			write(w, d)
		})
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.asker[name] = server.URL
	if name == "n1" {
		return
	}
	if _, err := w.cluster.CoreV1().Nodes().Create(t.Context(), node(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// decisionAbout returns a decision with one victim, so many seconds after noon.
func decisionAbout(
	number uint64, seconds int, v debugv1alpha1.PressureVictim, outcomes ...string,
) debugv1alpha1.PressureDecision {
	d := debugv1alpha1.PressureDecision{
		Number: number, Time: noon.Add(time.Duration(seconds) * time.Second), Victims: []debugv1alpha1.PressureVictim{v},
	}
	for _, kind := range outcomes {
		d.Outcomes = append(d.Outcomes, debugv1alpha1.PressureOutcome{
			Decision: number, Time: d.Time.Add(time.Second), Kind: kind, Pod: &d.Victims[0].PressurePod,
		})
	}
	return d
}

// victim returns the pod scenario/cart-0 as a victim for a hard threshold of memory.
func victim(uid types.UID, change ...func(*debugv1alpha1.PressureVictim)) debugv1alpha1.PressureVictim {
	v := debugv1alpha1.PressureVictim{Cause: "hard", Signal: "memory.available"}
	v.Namespace, v.Name, v.UID = "scenario", "cart-0", uid
	for _, f := range change {
		f(&v)
	}
	return v
}

func dry(v *debugv1alpha1.PressureVictim)      { v.DryRun = true }
func hastened(v *debugv1alpha1.PressureVictim) { v.Hastened = true }

func decisions(items ...debugv1alpha1.PressureDecision) debugv1alpha1.PressureDecisionList {
	return debugv1alpha1.PressureDecisionList{Items: items}
}

// why returns what is said of the pod cart-0.
func (w *world) why(t *testing.T) string {
	t.Helper()
	out, messages, code := w.run(t, "why", "cart-0")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, messages)
	}
	return out
}

// A dry run of the node on which the pod is now does not hide that a pod of the name was evicted from another one.
func TestWhyPrefersEvictionsToDryRuns(t *testing.T) {
	w := newWorld(t)
	w.add(t, "n1", answers{list: decisions(decisionAbout(7, 0, victim("old"), "KillAccepted"))})
	w.add(t, "n2", answers{list: decisions(decisionAbout(9, 60, victim("new", dry)))})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scenario", Name: "cart-0", UID: "new"},
		Spec: v1.PodSpec{NodeName: "n2"}}
	if _, err := w.cluster.CoreV1().Pods("scenario").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w.why(t), "The pod scenario/cart-0 was evicted from the node n1", "is another one (UID new)")
	// On one node, and besides what else was done.
	w.add(t, "n1", answers{list: decisions(decisionAbout(7, 0, victim("old"), "KillAccepted"),
		decisionAbout(8, 5, victim("old", dry)))})
	expect(t, w.why(t), "The pod scenario/cart-0 was evicted from the node n1")
	list := decisions(decisionAbout(8, 50, victim("old", dry)))
	critical := debugv1alpha1.PressurePod{Namespace: "scenario", Name: "critical", UID: "c"}
	list.Preemptions = []debugv1alpha1.PressurePreemption{{PressurePod: critical, Time: noon,
		Stop: []debugv1alpha1.PressurePod{victim("old").PressurePod}}}
	w.add(t, "n1", answers{list: list})
	expect(t, w.why(t), "The pod scenario/cart-0 was preempted on the node n1")
	// A pod that was refused after a dry run was refused.
	list = decisions(decisionAbout(8, 50, victim("old", dry)))
	list.Admissions = []debugv1alpha1.PressureAdmission{{PressurePod: victim("new").PressurePod,
		Time: noon.Add(2 * time.Minute), Outcome: "Rejected", Reason: "OutOfpods"}}
	w.add(t, "n1", answers{list: list})
	expect(t, w.why(t), "The pod scenario/cart-0 was refused by the node n1")
	list.Admissions = nil
	w.add(t, "n1", answers{list: list})
	expect(t, w.why(t), "The pod scenario/cart-0 would have been evicted (dry run)")
}

// The agent may be restarted between the list and the page of the decision: its numbers begin again.
func TestWhyWhileTheAgentRestarts(t *testing.T) {
	w := newWorld(t)
	other := victim("other")
	other.Name = "other"
	w.add(t, "n1", answers{list: decisions(decisionAbout(7, 0, victim("old"), "KillAccepted")),
		full: []debugv1alpha1.PressureDecision{decisionAbout(7, 90, other)}})
	out := w.why(t)
	expect(t, out, "The pod scenario/cart-0 was evicted from the node n1", "termination began")
}

// What was only reported was not tried before.
func TestWhyOfAPodAfterADryRun(t *testing.T) {
	w := newWorld(t)
	dryRun := decisionAbout(6, -60, victim("new", dry))
	dryRun.Reclaims = []debugv1alpha1.PressureReclaim{{Signal: "nodefs.available", DryRun: true}}
	w.add(t, "n1", answers{list: decisions(dryRun, decisionAbout(7, 0, victim("new"), "KillAccepted"))})
	if out := w.why(t); strings.Contains(out, "Tried before") || !strings.Contains(out, "Nothing was tried") {
		t.Error(out)
	}
}

// An eviction that the API server has not accepted did not take place.
func TestWhyOfAnEvictionThatWasRefused(t *testing.T) {
	w := newWorld(t)
	for kind, want := range map[string]string{
		"KillBlocked": "was to be evicted", "KillWithdrawn": "was to be evicted", "PodGone": "was to be evicted",
		"KillFailed": "was to be evicted", "KillRefused": "was to be evicted", "KillAccepted": "was evicted",
	} {
		w.add(t, "n1", answers{list: decisions(decisionAbout(7, 0, victim("old"), kind))})
		expect(t, w.why(t), "The pod scenario/cart-0 "+want+" from the node n1")
	}
	w.add(t, "n1", answers{list: decisions(decisionAbout(6, -9, victim("old"), "KillBlocked", "KillWithdrawn"),
		decisionAbout(7, 0, victim("old"), "KillBlocked", "KillAccepted", "KillFailed"))})
	expect(t, w.why(t), "The pod scenario/cart-0 was evicted from", "the pod scenario/cart-0 was to be evicted")
}

// Why a pod was evicted is said by the decision to evict it, and not by a later one that hastened it.
func TestWhyOfAHastenedPod(t *testing.T) {
	w := newWorld(t)
	soft := func(v *debugv1alpha1.PressureVictim) { v.Cause = "soft" }
	w.add(t, "n1", answers{list: decisions(decisionAbout(5, -50, victim("earlier")),
		decisionAbout(7, 0, victim("old", soft), "KillAccepted"), decisionAbout(9, 20, victim("old", hastened)))})
	expect(t, w.why(t), "was evicted from the node n1 at "+noon.Local().Format(clock)+" (decision 7)",
		"Its grace period was shortened at "+noon.Add(20*time.Second).Local().Format("15:04:05")+" (decision 9)")
	// It was terminating for another reason, and another pod had the name before.
	w.add(t, "n1", answers{list: decisions(decisionAbout(5, -50, victim("earlier")),
		decisionAbout(9, 20, victim("old", hastened), "KillAccepted"))})
	expect(t, w.why(t), "(decision 9)")
}

// A script must not take a node that could not be asked for one without a record.
func TestWhyWhileANodeCannotBeAsked(t *testing.T) {
	w := newWorld(t)
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "Forbidden", http.StatusForbidden)
	}))
	defer forbidden.Close()
	w.asker["stock"] = forbidden.URL
	_, messages, code := w.run(t, "why", "nobody")
	expect(t, messages, "node stock: 403 Forbidden", "not all could be asked")
	if code != ExitError {
		t.Errorf("exit code %d", code)
	}
}

// A Node may be removed before its pods are.
func TestWhyOfAPodWhoseNodeIsGone(t *testing.T) {
	w := newWorld(t)
	w.add(t, "n1", answers{list: decisions(decisionAbout(7, 0, victim("old"), "KillAccepted"))})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "scenario", Name: "cart-0", UID: "new"},
		Spec: v1.PodSpec{NodeName: "removed"}}
	if _, err := w.cluster.CoreV1().Pods("scenario").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w.why(t), "The pod scenario/cart-0 was evicted from the node n1")
	if _, _, code := w.run(t, "why", "cart-0", "--node", "removed"); code != ExitError {
		t.Errorf("exit code %d", code)
	}
}

// A pod that has waited may have been admitted since.
func TestWhyOfAPodThatHasWaited(t *testing.T) {
	w := newWorld(t)
	list := decisions()
	list.Admissions = []debugv1alpha1.PressureAdmission{{PressurePod: victim("new").PressurePod, Time: noon,
		Outcome: "Waiting", Reason: "WaitingForRoom"}}
	w.add(t, "n1", answers{list: list})
	expect(t, w.why(t), "The pod scenario/cart-0 began to wait for its admission to the node n1")
}

// A decision that is only reported is shown as such.
func TestWatchMarksDryRuns(t *testing.T) {
	d := decisionAbout(7, 0, victim("new", dry))
	d.Needs = []debugv1alpha1.PressureNeed{{Signal: "memory.available", DryRun: true, Outcome: "Evict"}}
	for _, line := range decisionLines(&d) {
		if !strings.Contains(line, "dry run") {
			t.Error(line)
		}
	}
	d = decisionAbout(7, 0, victim("new"))
	for _, line := range decisionLines(&d) {
		if strings.Contains(line, "dry run") {
			t.Error(line)
		}
	}
}
