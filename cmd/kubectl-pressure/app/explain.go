package app

import (
	"fmt"
	"slices"
	"strings"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// clock formats a time of a record.
const clock = "2006-01-02 15:04:05"

// sentence writes a sentence in a line of its own.
func (o *options) sentence(format string, values ...any) { fmt.Fprintf(o.Out, format+"\n", values...) }

// explain writes an answer in sentences.
func (o *options) explain(a *answer, wide bool) error {
	pod, node := podName(&a.Pod), plain(a.Node)
	if n := a.Now; n != nil {
		defer o.tellCurrent(a, n)
	}
	switch {
	case a.Decision != nil:
		return o.tellEviction(a, wide)
	case a.Admission != nil:
		verb := "was refused by"
		if a.Admission.Outcome == "Waiting" {
			verb = "began to wait for its admission to"
		}
		o.sentence("The pod %s %s the node %s at %s: %s.", pod, verb, node, a.at.Local().Format(clock),
			plain(a.Admission.Reason))
		o.sentence("%s", plain(a.Admission.Message))
	case a.wasStopped():
		o.tellPreemption(a)
	case a.Preemption != nil:
		p := a.Preemption
		o.sentence("At %s, %d pods of lower priority were to be stopped on the node %s for the pod %s, and %d that are "+
			"terminating were awaited.", a.at.Local().Format(clock), len(p.Stop), node, podName(&p.PressurePod), len(p.Await))
		if p.Error != "" {
			o.sentence("%s", plain(p.Error))
		}
	default:
		o.sentence("The pod %s was not evicted by the node %s. It was considered in %d decisions, the last at %s.", pod, node,
			a.Considered, a.at.Local().Format(clock))
	}
	return nil
}

// tellPreemption says for which pod another one had to end.
func (o *options) tellPreemption(a *answer) {
	p := a.Preemption
	o.sentence("The pod %s was preempted on the node %s at %s: the pod %s, whose priority is higher, was admitted in its "+
		"place.", podName(&a.Pod), plain(a.Node), a.at.Local().Format(clock), podName(&p.PressurePod))
	if slices.Contains(p.Await, a.Pod) {
		o.sentence("It was terminating already; the other pod only waited for its end.")
	}
	if others := len(p.Stop) + len(p.Await) - 1; others > 0 {
		o.sentence("%s needed beside it.", were(others, "other pod"))
	}
	o.tellSuggestions(a)
}

func (o *options) tellSuggestions(a *answer) {
	if len(a.Suggestions) == 0 {
		return
	}
	o.sentence("\nWhat could be set:")
	for _, s := range a.Suggestions {
		o.sentence("  * %s", s)
	}
}

// tellCurrent says that the record is not about the pod that has the name now.
func (o *options) tellCurrent(a *answer, now *currentPod) {
	where := "on the node " + plain(now.Node)
	if now.Node == "" {
		where = "on no node yet"
	}
	if a.Pod.UID == "" || a.Pod.UID == now.UID {
		o.sentence("\nThe pod is %s now.", where)
		return
	}
	o.sentence("\nThis is about the pod with the UID %s. The pod that has the name now, %s, is another one (UID %s).",
		plain(string(a.Pod.UID)), where, plain(string(now.UID)))
}

func (o *options) tellEviction(a *answer, wide bool) error {
	d, v := a.Decision, a.victim()
	verb := "was evicted from"
	switch {
	case v.DryRun:
		verb = "would have been evicted (dry run) from"
	case !wasEvicted(d, v):
		verb = "was to be evicted from"
	}
	o.sentence("The pod %s %s the node %s at %s (decision %d).", podName(&a.Pod), verb, plain(a.Node),
		d.Time.Local().Format(clock), d.Number)
	o.sentence("")
	o.tellCause(d, v)
	if err := o.tellRanking(a, wide); err != nil {
		return err
	}
	o.tellBefore(a)
	o.tellAfter(a, v)
	o.tellSuggestions(a)
	return nil
}

// tellCause says what was scarce.
func (o *options) tellCause(d *debugv1alpha1.PressureDecision, v *debugv1alpha1.PressureVictim) {
	switch v.Cause {
	case "limit":
		o.sentence("The pod exceeded its limit %s.", plain(v.Limit))
		return
	case "plugin":
		o.sentence("Its eviction was requested by %s.", plain(v.Plugins))
		return
	}
	for i := range d.Thresholds {
		t := &d.Thresholds[i]
		if t.Signal != v.Signal || !strings.EqualFold(t.Kind, v.Cause) || t.DryRun != v.DryRun {
			continue
		}
		available := "an unknown amount"
		for j := range d.Signals {
			if g := &d.Signals[j]; g.Signal == t.Signal && g.Available != nil {
				available = amount(g.Signal, *g.Available)
			}
		}
		o.sentence("The node ran out of %s: %s was available, and the %s threshold of %s is %s.", resourceOf(t.Signal),
			available, plain(v.Cause), plain(t.Signal), plain(t.Value))
		if t.GracePeriodSeconds > 0 {
			o.sentence("That had lasted for its grace period of %.0f s.", t.GracePeriodSeconds)
		}
	}
	for i := range d.Needs {
		n := &d.Needs[i]
		if n.Signal != v.Signal || n.DryRun != v.DryRun {
			continue
		}
		text := fmt.Sprintf("%s had to come free", amount(n.Signal, n.Amount))
		if n.InFlight > 0 {
			text += fmt.Sprintf(", beside %s that pods in termination released", amount(n.Signal, n.InFlight))
		}
		o.sentence("%s; %s chosen for that.", text, were(n.Chosen, "pod"))
	}
}

func (o *options) tellRanking(a *answer, wide bool) error {
	k, i := a.ranking()
	if k == nil {
		return nil
	}
	o.sentence("It was number %d of %d candidates: %s.\n", i+1, len(k.Candidates), plain(because(k, i)))
	most := max(i+2, 5)
	if wide {
		most = len(k.Candidates)
	}
	return o.rankTable(k, most, wide)
}

// tellBefore says what was tried before.
func (o *options) tellBefore(a *answer) {
	if len(a.Earlier) == 0 {
		o.sentence("\nNothing was tried in the ten minutes before.")
		return
	}
	o.sentence("\nTried before:")
	for i := range a.Earlier {
		d := &a.Earlier[i]
		at := d.Time.Local().Format("15:04:05")
		for j := range d.Reclaims {
			if d.Reclaims[j].DryRun {
				continue
			}
			o.sentence("  * %s  %s: dead containers and unused images were to be removed%s", at, plain(d.Reclaims[j].Signal),
				outcomeText(d, "ReclaimEnded", ""))
		}
		for j := range d.Victims {
			p, verb := &d.Victims[j], "was evicted"
			if p.DryRun {
				continue
			}
			if !wasEvicted(d, p) {
				verb = "was to be evicted"
			}
			o.sentence("  * %s  the pod %s %s%s", at, podName(&p.PressurePod), verb,
				outcomeText(d, "PodReleased", string(p.UID)))
		}
	}
}

// outcomeText describes an outcome of a decision, empty if there is none.
func outcomeText(d *debugv1alpha1.PressureDecision, kind, uid string) string {
	for i := range d.Outcomes {
		x := &d.Outcomes[i]
		if x.Kind != kind || (uid != "" && (x.Pod == nil || string(x.Pod.UID) != uid)) {
			continue
		}
		switch {
		case x.Error != "":
			return ": " + plain(x.Error)
		case x.Detail != "":
			return ": " + plain(x.Detail)
		case x.ReleasedMemoryBytes > 0:
			return fmt.Sprintf(", which released at most %s of memory", amount("memory.available", x.ReleasedMemoryBytes))
		}
	}
	return ""
}

// outcomeNames are outcomes in the words of a sentence.
var outcomeNames = map[string]string{
	"KillAccepted": "termination began", "PodFenced": "growth was limited", "FenceEnded": "the limit ended",
	"PodStopped": "containers have stopped", "PodReleased": "cgroups and volumes are removed",
	"PodOverdue": "it was still terminating after its grace period", "KillFailed": "the wait for it has failed",
	"KillRefused": "the kubelet was stopping", "PodGone": "it had ended before",
	"KillBlocked": "the API server refused for the time being", "KillWithdrawn": "the request was withdrawn",
}

// tellAfter says what became of the pod.
func (o *options) tellAfter(a *answer, v *debugv1alpha1.PressureVictim) {
	if v.DryRun {
		return
	}
	o.sentence("\nWhat became of it (grace period %d s):", v.GracePeriodSeconds)
	for i := range a.Decision.Outcomes {
		x := &a.Decision.Outcomes[i]
		if x.Pod == nil || x.Pod.UID != a.Pod.UID {
			continue
		}
		name := outcomeNames[x.Kind]
		if name == "" {
			name = plain(x.Kind)
		}
		text := fmt.Sprintf("  * %s  %s", x.Time.Local().Format("15:04:05"), name)
		if x.Detail != "" {
			text += ": " + plain(x.Detail)
		}
		if x.ReleasedMemoryBytes > 0 {
			text += fmt.Sprintf(", at most %s of memory", amount("memory.available", x.ReleasedMemoryBytes))
		}
		if x.Error != "" {
			text += ": " + plain(x.Error)
		}
		o.sentence("%s", text)
	}
	if h := a.Hastened; h != nil {
		o.sentence("Its grace period was shortened at %s (decision %d).", h.Time.Local().Format("15:04:05"), h.Number)
	}
}
