package plugins

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// eventIgnored is the reason of the event on a pod that a plugin leaves out since the pod has an invalid setting for
// it.
const eventIgnored = "EvictionAnnotationIgnored"

// rulePlugin answers the calls of the driver by a rule. Its calls are made one at a time.
type rulePlugin struct {
	name string
	// decide applies the rule to the facts of a round. It fails if they are unknown: then the answer is missing, and
	// clocks of thresholds pause.
	decide   func(context.Context, *plugin.View) (rule.Finding, error)
	recorder record.EventRecorder
	// proposed, when set, is called with the pod that is proposed for a threshold.
	proposed func(v *plugin.View, pod types.UID)

	// round is that of found and err.
	round *plugin.View
	found rule.Finding
	err   error
	notes []rule.Note
	// unread is what was last logged that could not be read, empty if it could be read since; unreadAt is when.
	unread   string
	unreadAt time.Time
}

var _ plugin.Plugin = (*rulePlugin)(nil)

// errNotDecided: the rule has not returned.
var errNotDecided = errors.New("the rule has failed in this round")

// evaluate applies the rule once for each round.
func (p *rulePlugin) evaluate(ctx context.Context, v *plugin.View) (*rule.Finding, error) {
	if p.round != v {
		// A rule that panics has not decided in this round: the finding of the last one does not count.
		p.round, p.found, p.err = v, rule.Finding{}, errNotDecided
		if p.found, p.err = p.decide(ctx, v); p.err == nil {
			p.report(ctx, v)
		}
		p.logUnread(ctx, v)
	}
	return &p.found, p.err
}

// EvictPods implements plugin.Plugin.
func (p *rulePlugin) EvictPods(ctx context.Context, v *plugin.View) (*arbiter.Demand, error) {
	found, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	return &arbiter.Demand{Pods: slices.Clone(found.Pods)}, nil
}

// ThresholdMet implements plugin.Plugin.
func (p *rulePlugin) ThresholdMet(ctx context.Context, v *plugin.View) (*arbiter.Threshold, error) {
	found, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	t := found.Threshold
	t.Candidates = slices.Clone(t.Candidates)
	return &t, nil
}

// TopEvictionPods implements plugin.Plugin. It proposes the pods of the last round that may be named now.
func (p *rulePlugin) TopEvictionPods(
	_ context.Context, v *plugin.View, q arbiter.Question,
) (*arbiter.Reply, error) {
	reply := &arbiter.Reply{Question: q, GraceSeconds: p.found.GraceSeconds}
	if p.err != nil || p.found.Threshold.Scope != q.Scope {
		return reply, nil
	}
	named := map[types.UID]bool{}
	for _, pod := range v.Pods {
		named[pod.UID] = true
	}
	for _, uid := range p.found.Top {
		if named[uid] && (q.TopN == 0 || uint64(len(reply.Pods)) < q.TopN) {
			reply.Pods = append(reply.Pods, uid)
		}
	}
	if len(reply.Pods) > 0 && p.proposed != nil {
		p.proposed(v, reply.Pods[0])
	}
	return reply, nil
}

// report reports the notes that were not in the finding of the round before.
func (p *rulePlugin) report(ctx context.Context, v *plugin.View) {
	for _, note := range p.found.Notes {
		if slices.Contains(p.notes, note) {
			continue
		}
		klog.FromContext(ctx).Info("Eviction plugins: note of a plugin", "plugin", p.name, "podUID", note.Pod,
			"note", note.Text)
		if pod := v.Pod(string(note.Pod)); pod != nil && note.Event {
			p.recorder.Eventf(pod, v1.EventTypeWarning, eventIgnored, "Plugin %s: %s", p.name, note.Text)
		}
	}
	p.notes = p.found.Notes
}

const (
	// unreadEvery is the shortest time between two log lines about what a plugin cannot read: files that can be read in
	// one round and not in the next, or of other pods in each round, do not fill the log.
	unreadEvery = time.Minute
	// maxUnread bounds such a line, in bytes.
	maxUnread = 1024
)

// logUnread logs what could not be read, if that is something else than was logged.
func (p *rulePlugin) logUnread(ctx context.Context, v *plugin.View) {
	var texts []string
	for _, err := range append([]error{p.err}, p.found.Unread...) {
		if err != nil {
			texts = append(texts, err.Error())
		}
	}
	text := strings.Join(texts, "; ")
	if len(text) > maxUnread {
		text = strings.ToValidUTF8(text[:maxUnread], "")
	}
	switch since := v.Taken.Sub(p.unreadAt); {
	case text == "":
		p.unread = ""
	case text != p.unread && (p.unreadAt.IsZero() || since < 0 || since >= unreadEvery):
		p.unread, p.unreadAt = text, v.Taken
		klog.FromContext(ctx).Info("Eviction plugins: plugin cannot read what it decides on", "plugin", p.name,
			"answers", p.err == nil, "err", text)
	}
}

// ending returns the pods of a round that are being stopped. The victims of the last decision are among them: its
// snapshot is older, and they may have ended when the next one is taken. One that the API server is to evict is not
// before it has accepted that.
func ending(v *plugin.View) map[types.UID]bool {
	list := map[types.UID]bool{}
	for _, pod := range v.Pods {
		if pod.DeletionTimestamp != nil {
			list[pod.UID] = true
		}
	}
	if v.Node == nil {
		return list
	}
	s := v.Node.Snapshot
	for i := range s.InFlight {
		if s.InFlight[i].State != snapshot.Failed {
			list[s.InFlight[i].UID] = true
		}
	}
	for i := range v.Node.Decision.Victims {
		if victim := &v.Node.Decision.Victims[i]; victim.Killer == snapshot.PodWorker {
			list[victim.Pod.UID] = true
		}
	}
	for i := range s.Pods {
		if s.Pods[i].Terminating != nil {
			list[s.Pods[i].UID] = true
		}
	}
	return list
}
