package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// before is how long before a decision an earlier one counts as an attempt.
const before = 10 * time.Minute

// answer is what a node has about a pod.
type answer struct {
	document
	Node       string                            `json:"node"`
	Pod        debugv1alpha1.PressurePod         `json:"pod"`
	Decision   *debugv1alpha1.PressureDecision   `json:"decision,omitempty"`
	Earlier    []debugv1alpha1.PressureDecision  `json:"earlier,omitempty"`
	Admission  *debugv1alpha1.PressureAdmission  `json:"admission,omitempty"`
	Preemption *debugv1alpha1.PressurePreemption `json:"preemption,omitempty"`
	Considered int                               `json:"considered,omitempty"`
	// Hastened is a later decision that shortened the grace period of the pod.
	Hastened *debugv1alpha1.PressureDecision `json:"hastened,omitempty"`
	// Now is the pod that has the name now, if it is another one or runs on another node.
	Now         *currentPod `json:"now,omitempty"`
	Suggestions []string    `json:"suggestions,omitempty"`
	at          time.Time
}

// currentPod is a pod that exists.
type currentPod struct {
	UID  types.UID `json:"uid"`
	Node string    `json:"node,omitempty"`
}

func (o *options) whyCommand() *cobra.Command {
	var node string
	c := &cobra.Command{
		Use:   "why POD",
		Short: "What became of a pod under pressure, and why",
		Long: `What was scarce, who was ranked how, what was tried before, what became of the pod, and what could be set.

POD is a name, or a UID. A pod that is gone is looked for on all nodes, as far back as their logs go.`,
		Example: `  # A pod of the current namespace, also when it is gone
  kubectl pressure why cart-0

  # The whole record
  kubectl pressure why cart-0 -n shop -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.why(c.Context(), args[0], node) },
	}
	o.addOutputFlag(c, allFormats)
	c.Flags().StringVar(&node, "node", "", "The node that the pod ran on, if that is known. Others are not asked.")
	_ = c.RegisterFlagCompletionFunc("node", o.completeNodes)
	c.ValidArgsFunction = o.completePods
	return c
}

func (o *options) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	namespace, err := o.namespace()
	cluster, err2 := o.connect(o)
	if len(args) > 0 || err != nil || err2 != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := cluster.CoreV1().Pods(namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (o *options) why(ctx context.Context, pod, node string) error {
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	cluster, err := o.connect(o)
	if err != nil {
		return err
	}
	query := namespace + "/" + pod
	var now *currentPod
	if isUID(pod) {
		query = pod
	} else {
		now = cluster.current(ctx, namespace, pod)
	}
	best, failed, err := cluster.find(ctx, query, node, now)
	if err != nil {
		return err
	}
	for _, err := range failed {
		fmt.Fprintln(o.ErrOut, "warning:", plainLines(err.Error()))
	}
	if best == nil {
		err := fmt.Errorf("no record of the pod %s on the nodes that were asked", plain(query))
		if slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, errNoPage) }) {
			return fmt.Errorf("%w, and not all could be asked", err)
		}
		return exitError{ExitNotFound, err}
	}
	if now != nil && ((best.Pod.UID != "" && best.Pod.UID != now.UID) || best.Node != now.Node) {
		best.Now = now
	}
	best.document, best.Suggestions = documentOf(answerKind), suggestions(best)
	if isTable, wide := o.isTable(); isTable {
		return o.explain(best, wide)
	}
	return o.write(best)
}

// isUID reports whether a text is a UID as the API server makes them.
func isUID(text string) bool {
	groups := strings.Split(text, "-")
	lengths := []int{8, 4, 4, 4, 12}
	if len(groups) != len(lengths) {
		return false
	}
	for i, g := range groups {
		if len(g) != lengths[i] || strings.Trim(g, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}

// current returns the pod that has a name now, nil if there is none.
func (c *cluster) current(ctx context.Context, namespace, name string) *currentPod {
	pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return &currentPod{UID: pod.UID, Node: pod.Spec.NodeName}
}

// find asks the node of the flag, or the one that the pod is on now. If that one did not stop it, all are asked: a pod
// of the same name may have been evicted from another one, and this one be its successor.
func (c *cluster) find(
	ctx context.Context, query, node string, now *currentPod,
) (best *answer, failed []error, err error) {
	first := node
	if first == "" && now != nil {
		first = now.Node
	}
	if first != "" {
		nodes, err := c.nodes(ctx, first)
		switch {
		case err == nil:
			best, failed = c.answers(ctx, nodes, query)
			if node != "" || (best != nil && best.wasStopped()) {
				return best, failed, nil
			}
		case node != "" || !apierrors.IsNotFound(err): // The Node of a pod may be gone before the pod is.
			return nil, nil, err
		}
	}
	nodes, err := c.nodes(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	best, failed = c.answers(ctx, nodes, query)
	return best, failed, nil
}

// answers returns the newest answer of the nodes. Nodes without a log do not answer; that is an error only if no other
// node has an answer.
func (c *cluster) answers(ctx context.Context, nodes []nodeInfo, query string) (best *answer, failed []error) {
	list, errs := make([]*answer, len(nodes)), make([]error, len(nodes))
	each(nodes, func(i int, n *nodeInfo) { list[i], errs[i] = c.answer(ctx, n, query) })
	without := 0
	var noPage error
	for i, a := range list {
		switch {
		case errors.Is(errs[i], errNoPage):
			without, noPage = without+1, errs[i]
		case errs[i] != nil:
			failed = append(failed, errs[i])
		}
		if a != nil && (best == nil || a.better(best)) {
			best = a
		}
	}
	if best == nil && without > 0 {
		failed = append(failed, fmt.Errorf("%d of %d nodes have no decision log; %w", without, len(nodes), noPage))
	}
	return best, failed
}

func (a *answer) better(other *answer) bool {
	if a.wasStopped() != other.wasStopped() {
		return a.wasStopped()
	}
	return a.at.After(other.at)
}

// answer asks a node; nil if it has no record of the pod.
func (c *cluster) answer(ctx context.Context, n *nodeInfo, query string) (*answer, error) {
	var list debugv1alpha1.PressureDecisionList
	if err := c.page(ctx, n, "decisions", map[string]string{"pod": query, "limit": "10000"}, &list); err != nil {
		return nil, err
	}
	a := &answer{Node: n.Name}
	is := func(p *debugv1alpha1.PressurePod) bool {
		return string(p.UID) == query || p.Namespace+"/"+p.Name == query
	}
	a.decideOn(list.Items, is)
	preemption, pod := preemptionOf(list.Preemptions, is)
	newest, refused := time.Time{}, time.Time{}
	if n := len(list.Admissions); n > 0 {
		refused = list.Admissions[n-1].Time
		newest = refused
	}
	// What a dry run would have done is an answer only if nothing was done.
	onlyDryRun := a.Decision != nil && a.victim().DryRun
	if !onlyDryRun && a.at.After(newest) {
		newest = a.at
	}
	// A pod that was evicted shortly before ends for that reason; the preemption only waits for it.
	evicted := preemption != nil && a.wasStopped() && a.Pod.UID == pod.UID && slices.Contains(preemption.Await, *pod)
	switch {
	case preemption != nil && pod.UID != preemption.UID && preemption.Time.After(newest) && !evicted:
		a.Pod, a.Decision, a.Hastened, a.Preemption, a.at = *pod, nil, nil, preemption, preemption.Time
	case a.Decision != nil && (!onlyDryRun || !refused.After(a.at)):
		return a, c.complete(ctx, n, a, list.Items)
	case len(list.Admissions) > 0:
		last := &list.Admissions[len(list.Admissions)-1]
		a.Pod, a.Decision, a.Admission, a.at = last.PressurePod, nil, last, last.Time
	case preemption != nil:
		a.Pod, a.Preemption, a.at = *pod, preemption, preemption.Time
	case len(list.Items) > 0:
		last := &list.Items[len(list.Items)-1]
		a.Considered, a.at = len(list.Items)+list.Omitted, last.Time
		a.Pod = nameOf(query)
	default:
		return nil, nil
	}
	return a, nil
}

// decideOn sets the newest decision that evicted the pod, or would have if there is none. A decision that only hastened
// an eviction is not the cause of it.
func (a *answer) decideOn(list []debugv1alpha1.PressureDecision, is func(*debugv1alpha1.PressurePod) bool) {
	rank := -1
	for i := len(list) - 1; i >= 0; i-- {
		for j := range list[i].Victims {
			v := &list[i].Victims[j]
			isOther := rank > 0 && v.UID != a.Pod.UID
			if r := rankOf(v); r > rank && is(&v.PressurePod) && !isOther {
				if rank == hastens {
					a.Hastened = a.Decision
				}
				rank, a.Pod, a.Decision, a.at = r, v.PressurePod, &list[i], list[i].Time
			}
		}
	}
}

// What a decision does to a victim, the weakest first.
const (
	inDryRun = iota
	hastens
	evicts
)

func rankOf(v *debugv1alpha1.PressureVictim) int {
	switch {
	case v.DryRun:
		return inDryRun
	case v.Hastened:
		return hastens
	}
	return evicts
}

// preemptionOf returns the newest preemption that is about a pod, and the pod: the one that needs room, or one that
// ends for it; nil if there is none.
func preemptionOf(
	list []debugv1alpha1.PressurePreemption, is func(*debugv1alpha1.PressurePod) bool,
) (*debugv1alpha1.PressurePreemption, *debugv1alpha1.PressurePod) {
	for i := len(list) - 1; i >= 0; i-- {
		p := &list[i]
		if is(&p.PressurePod) {
			return p, &p.PressurePod
		}
		for _, pods := range [][]debugv1alpha1.PressurePod{p.Stop, p.Await} {
			for j := range pods {
				if is(&pods[j]) {
					return p, &pods[j]
				}
			}
		}
	}
	return nil, nil
}

// wasStopped reports whether the node has the pod stopped by the record: it was evicted, or preempted.
func (a *answer) wasStopped() bool {
	if a.Decision != nil {
		return wasEvicted(a.Decision, a.victim())
	}
	return a.Preemption != nil && a.Preemption.UID != a.Pod.UID
}

// wasEvicted reports whether a victim of a decision was evicted, by what became of it so far: not in dry run, nor if
// the API server did not accept it, or there was nothing left to evict.
func wasEvicted(d *debugv1alpha1.PressureDecision, v *debugv1alpha1.PressureVictim) bool {
	evicted := !v.DryRun
	for i := range d.Outcomes {
		x := &d.Outcomes[i]
		if x.Pod == nil || x.Pod.UID != v.UID {
			continue
		}
		switch x.Kind {
		case "KillAccepted":
			return !v.DryRun
		case "KillBlocked", "KillWithdrawn", "KillRefused", "KillFailed", "PodGone":
			evicted = false
		}
	}
	return evicted
}

func nameOf(query string) debugv1alpha1.PressurePod {
	namespace, name, _ := strings.Cut(query, "/")
	return debugv1alpha1.PressurePod{Namespace: namespace, Name: name}
}

// complete adds the rankings of the decision, and what was tried before.
func (c *cluster) complete(
	ctx context.Context, n *nodeInfo, a *answer, list []debugv1alpha1.PressureDecision,
) error {
	full := &debugv1alpha1.PressureDecision{}
	err := c.page(ctx, n, fmt.Sprintf("decisions/%d", a.Decision.Number), nil, full)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for i := range list {
		d := &list[i]
		if acted(d) && d.Number < a.Decision.Number && a.Decision.Time.Sub(d.Time) <= before {
			a.Earlier = append(a.Earlier, *d)
		}
	}
	// If the record was dropped meanwhile, the list has the rest. If the agent was restarted meanwhile, another decision
	// may have the number.
	if err == nil && full.Time.Equal(a.Decision.Time) && victimIn(full, a.Pod.UID) != nil {
		a.Decision = full
	}
	return nil
}

// acted reports whether a decision did something, beside what it would have done in dry run.
func acted(d *debugv1alpha1.PressureDecision) bool {
	return slices.ContainsFunc(d.Victims, func(v debugv1alpha1.PressureVictim) bool { return !v.DryRun }) ||
		slices.ContainsFunc(d.Reclaims, func(r debugv1alpha1.PressureReclaim) bool { return !r.DryRun })
}

// victim returns what the decision says of the pod.
func (a *answer) victim() *debugv1alpha1.PressureVictim { return victimIn(a.Decision, a.Pod.UID) }

func victimIn(d *debugv1alpha1.PressureDecision, uid types.UID) *debugv1alpha1.PressureVictim {
	for i := range d.Victims {
		if v := &d.Victims[i]; v.UID == uid {
			return v
		}
	}
	return nil
}

// ranking returns the ranking that the pod was chosen from, and its index there; nil without one.
func (a *answer) ranking() (k *debugv1alpha1.PressureRanking, index int) {
	v := a.victim()
	for i := range a.Decision.Rankings {
		k := &a.Decision.Rankings[i]
		if v == nil || k.Signal != v.Signal || k.DryRun != v.DryRun {
			continue
		}
		j := slices.IndexFunc(k.Candidates, func(c debugv1alpha1.PressureCandidate) bool { return c.UID == a.Pod.UID })
		if j >= 0 {
			return k, j
		}
	}
	return nil, 0
}

// suggestions are what would have changed the decision.
func suggestions(a *answer) (list []string) {
	if p := a.Preemption; a.wasStopped() && p != nil {
		return []string{fmt.Sprintf("Leave room on the node for the pod %s, or give this pod a priority that is not lower.",
			podName(&p.PressurePod))}
	}
	if a.Decision == nil || a.victim() == nil {
		return nil
	}
	v := a.victim()
	if v.Cause == "limit" {
		return []string{fmt.Sprintf("Raise or remove the limit %s of the pod, or have it write less.", plain(v.Limit))}
	}
	if v.Cause == "plugin" {
		return []string{fmt.Sprintf("Look at the settings of the plugin %s; plugins.eviction.dryRun has its requests only "+
			"reported.", plain(v.Plugins))}
	}
	if k, i := a.ranking(); k != nil {
		c := &k.Candidates[i]
		if c.AboveRequest && c.Usage != nil && isBytes(k.Signal) {
			list = append(list, fmt.Sprintf("Request at least %s for the pod: pods above their requests are evicted before "+
				"others.", quantity(k.Signal, *c.Usage)))
		}
		list = append(list, fmt.Sprintf("Give the pod a priority above %d: pods of lower priority are evicted before.",
			c.Priority))
	}
	return append(list, fmt.Sprintf("See what another threshold would have done: kubectl pressure plan --node %s "+
		"--threshold %s=AMOUNT.", plain(a.Node), plain(v.Signal)))
}
