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
	Node       string                            `json:"node"`
	Pod        debugv1alpha1.PressurePod         `json:"pod"`
	Decision   *debugv1alpha1.PressureDecision   `json:"decision,omitempty"`
	Earlier    []debugv1alpha1.PressureDecision  `json:"earlier,omitempty"`
	Admission  *debugv1alpha1.PressureAdmission  `json:"admission,omitempty"`
	Preemption *debugv1alpha1.PressurePreemption `json:"preemption,omitempty"`
	Considered int                               `json:"considered,omitempty"`
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
		return exitError{ExitNotFound, fmt.Errorf("no record of the pod %s on the nodes that were asked", plain(query))}
	}
	if now != nil && ((best.Pod.UID != "" && best.Pod.UID != now.UID) || best.Node != now.Node) {
		best.Now = now
	}
	best.Suggestions = suggestions(best)
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

// find asks the node of the flag, or the one that the pod is on now. If that one did not evict it, all are asked: a pod
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
		if err != nil {
			return nil, nil, err
		}
		best, failed = c.answers(ctx, nodes, query)
		if node != "" || (best != nil && best.Decision != nil) {
			return best, failed, nil
		}
	}
	nodes, err := c.nodes(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	best, failed = c.answers(ctx, nodes, query)
	return best, failed, nil
}

// answers returns the newest answer of the nodes. Nodes without a log do not answer.
func (c *cluster) answers(ctx context.Context, nodes []nodeInfo, query string) (best *answer, failed []error) {
	list, errs := make([]*answer, len(nodes)), make([]error, len(nodes))
	each(nodes, func(i int, n *nodeInfo) { list[i], errs[i] = c.answer(ctx, n, query) })
	for i, a := range list {
		if errs[i] != nil && !errors.Is(errs[i], errNoPage) {
			failed = append(failed, errs[i])
		}
		if a != nil && (best == nil || a.better(best)) {
			best = a
		}
	}
	return best, failed
}

func (a *answer) better(other *answer) bool {
	if (a.Decision == nil) != (other.Decision == nil) {
		return a.Decision != nil
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
	for i := len(list.Items) - 1; i >= 0 && a.Decision == nil; i-- {
		d := &list.Items[i]
		for j := range d.Victims {
			if is(&d.Victims[j].PressurePod) && (!d.Victims[j].DryRun || a.Pod.UID == "") {
				a.Pod, a.at = d.Victims[j].PressurePod, d.Time
				a.Decision = d
			}
		}
	}
	switch {
	case a.Decision != nil:
		return a, c.complete(ctx, n, a, list.Items)
	case len(list.Admissions) > 0:
		last := &list.Admissions[len(list.Admissions)-1]
		a.Pod, a.Admission, a.at = last.PressurePod, last, last.Time
	case len(list.Preemptions) > 0:
		last := &list.Preemptions[len(list.Preemptions)-1]
		a.Pod, a.Preemption, a.at = last.PressurePod, last, last.Time
	case len(list.Items) > 0:
		last := &list.Items[len(list.Items)-1]
		a.Considered, a.at = len(list.Items)+list.Omitted, last.Time
		a.Pod = nameOf(query)
	default:
		return nil, nil
	}
	return a, nil
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
	if apierrors.IsNotFound(err) {
		return nil // Dropped meanwhile: the list has the rest.
	}
	if err != nil {
		return err
	}
	for i := range list {
		d := &list[i]
		acted := len(d.Victims) > 0 || len(d.Reclaims) > 0
		if acted && d.Number < full.Number && full.Time.Sub(d.Time) <= before {
			a.Earlier = append(a.Earlier, *d)
		}
	}
	a.Decision = full
	return nil
}

// victim returns what the decision says of the pod.
func (a *answer) victim() *debugv1alpha1.PressureVictim {
	for i := range a.Decision.Victims {
		if v := &a.Decision.Victims[i]; v.UID == a.Pod.UID {
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
