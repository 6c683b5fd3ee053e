package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// The kinds of what commands write as JSON or YAML. Their apiVersion is that of the pages of nodes.
const (
	nodeStatusKind     = "NodePressureStatus"
	nodeStatusListKind = "NodePressureStatusList"
	answerKind         = "PodPressureAnswer"
)

// document says what a value is that a command writes.
type document struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

func documentOf(kind string) document { return document{debugv1alpha1.PressureAPIVersion, kind} }

// nodeStatus is the status of a node, as far as it is known.
type nodeStatus struct {
	document
	Node string `json:"node"`
	// Agent is plimsoll, stock (no decision log), or unknown if the node could not be asked.
	Agent string `json:"agent"`
	// Conditions are the pressure conditions of the Node that are True.
	Conditions []string `json:"conditions"`
	Ready      string   `json:"ready"`
	Error      string   `json:"error,omitempty"`

	Status *debugv1alpha1.PressureStatus `json:"status,omitempty"`
	// StockSignals are those of a stock node, as far as they are known.
	StockSignals []debugv1alpha1.PressureSignal `json:"stockSignals,omitempty"`
}

func (s *nodeStatus) signals() []debugv1alpha1.PressureSignal {
	if s.Status != nil {
		return s.Status.Signals
	}
	return s.StockSignals
}

type statusList struct {
	document
	Items []nodeStatus `json:"items"`
}

func (o *options) statusCommand() *cobra.Command {
	var exitCode bool
	c := &cobra.Command{
		Use:   "status [NODE]",
		Short: "How close nodes are to their eviction thresholds",
		Example: `  # All nodes, each with the signal that is closest to its threshold
  kubectl pressure status

  # All signals of one node, with the state of the clocks of thresholds
  kubectl pressure status node-1 -o wide

  # In a script: exits with 2 while a hard threshold is met
  kubectl pressure status node-1 --exit-code >/dev/null || echo "under pressure, or unknown"

  # Without the right to nodes/proxy
  kubectl pressure status --direct`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			list, err := o.statuses(c.Context(), slices.Concat(args, []string{""})[0], nil)
			if err != nil {
				return err
			}
			if err := o.showStatus(list, len(args) == 1); err != nil {
				return err
			}
			return exitOf(list, exitCode)
		},
	}
	o.addOutputFlag(c, allFormats)
	c.Flags().BoolVar(&exitCode, "exit-code", false, "Exit with 2 if a hard threshold of a node is met.")
	return c
}

// statuses asks one node or all.
func (o *options) statuses(ctx context.Context, name string, parameters map[string]string) (*statusList, error) {
	cluster, err := o.connect(o)
	if err != nil {
		return nil, err
	}
	nodes, err := cluster.nodes(ctx, name)
	if err != nil {
		return nil, err
	}
	list := &statusList{document: documentOf(nodeStatusListKind), Items: make([]nodeStatus, len(nodes))}
	each(nodes, func(i int, n *nodeInfo) {
		s := nodeStatus{Node: n.Name, Agent: "plimsoll", Conditions: []string{}, Ready: "Unknown"}
		for _, c := range n.Status.Conditions {
			if strings.HasSuffix(string(c.Type), "Pressure") && c.Status == v1.ConditionTrue {
				s.Conditions = append(s.Conditions, string(c.Type))
			}
			if c.Type == v1.NodeReady {
				s.Ready = string(c.Status)
			}
		}
		status := &debugv1alpha1.PressureStatus{}
		switch err := cluster.page(ctx, n, "status", parameters, status); {
		case errors.Is(err, errNoPage):
			s.Agent, s.StockSignals = "stock", cluster.stockSignals(ctx, n)
		case err != nil:
			s.Agent, s.Error = "unknown", err.Error()
		default:
			s.Status = status
		}
		list.Items[i] = s
	})
	return list, nil
}

// exitOf returns the error that sets the exit code. A node that could not be asked is an error.
func exitOf(list *statusList, wanted bool) error {
	var failed []string
	met := false
	for i := range list.Items {
		s := &list.Items[i]
		if s.Error != "" {
			failed = append(failed, s.Error)
		}
		met = met || slices.ContainsFunc(s.signals(), func(g debugv1alpha1.PressureSignal) bool { return g.Level == "met" })
	}
	switch {
	case wanted && met:
		return exitError{ExitPressure, errors.New("")}
	case len(failed) > 0:
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}

func (o *options) showStatus(list *statusList, one bool) error {
	isTable, wide := o.isTable()
	switch {
	case !isTable && one:
		list.Items[0].document = documentOf(nodeStatusKind)
		return o.write(&list.Items[0])
	case !isTable:
		return o.write(list)
	case one && (list.Items[0].signals() != nil || list.Items[0].Agent == "stock"):
		return o.showNode(&list.Items[0], wide)
	}
	columns := []string{"NODE", "AGENT", "PRESSURE", "CLOSEST", "AVAILABLE", "THRESHOLD", "HEADROOM", "TIME LEFT",
		"IN FLIGHT", "WAITING"}
	if wide {
		columns = append(columns, "GROWTH", "AGE", "DRY RUN", "PLUGINS", "DECISION")
	}
	t := newTable(o.Out, columns...)
	for i := range list.Items {
		t.row(list.Items[i].cells(wide)...)
	}
	return t.end()
}

func (s *nodeStatus) cells(wide bool) []string {
	pressure := strings.Join(s.Conditions, ",")
	g := closest(s.signals())
	if g == nil {
		g = &debugv1alpha1.PressureSignal{}
	}
	cells := []string{s.Node, s.Agent, pressure, g.Signal, amountOf(g.Signal, g.Available),
		amountOf(g.Signal, g.Threshold), amountOf(g.Signal, g.Headroom), left(g)}
	if s.Status == nil {
		return append(cells, "", "")
	}
	cells = append(cells, fmt.Sprint(len(s.Status.InFlight)), fmt.Sprint(len(s.Status.Waiting)))
	if wide {
		enabled := 0
		for _, p := range s.Status.Plugins {
			if p.Enabled {
				enabled++
			}
		}
		cells = append(cells, rate(g.GrowthPerSecond), since(s.Status.Observed, s.Status.Time),
			fmt.Sprint(len(s.Status.DryRun)), fmt.Sprint(enabled), fmt.Sprint(s.Status.Decision))
	}
	return cells
}

// left describes the time until the threshold of a signal is met.
func left(g *debugv1alpha1.PressureSignal) string {
	switch {
	case g.Blind:
		return "blind"
	case g.Level == "met":
		return "met"
	case g.SecondsToThreshold != nil:
		return short(time.Duration(math.Min(*g.SecondsToThreshold, 1e9) * float64(time.Second)))
	}
	return ""
}

// closest returns the signal that is closest to its threshold: one that is met, then the one with the least time left,
// then the one with the least headroom in relation to its capacity; nil without any.
func closest(list []debugv1alpha1.PressureSignal) *debugv1alpha1.PressureSignal {
	key := func(g *debugv1alpha1.PressureSignal) (level int, value float64) {
		switch {
		case g.Level == "met":
			return 0, 0
		case g.SecondsToThreshold != nil:
			return 1, *g.SecondsToThreshold
		case g.Headroom != nil && g.Capacity != nil && *g.Capacity > 0:
			return 2, float64(*g.Headroom) / float64(*g.Capacity)
		case g.Blind:
			return 3, 0
		}
		return 4, 0
	}
	var best *debugv1alpha1.PressureSignal
	for i := range list {
		if best == nil {
			best = &list[i]
			continue
		}
		level, value := key(&list[i])
		if bestLevel, bestValue := key(best); level < bestLevel || (level == bestLevel && value < bestValue) {
			best = &list[i]
		}
	}
	return best
}

// showNode shows all signals of one node, and what goes on there.
func (o *options) showNode(s *nodeStatus, wide bool) error {
	if s.signals() == nil {
		why := "its pages cannot be read"
		if o.direct.enabled {
			why = "with --direct its pages cannot be read, since it guards them as nodes/proxy"
		}
		o.sentence("The kubelet is stock, and %s: only its Node is known. Conditions that are True: %s.", why,
			plain(cmp.Or(strings.Join(s.Conditions, ", "), "none")))
		return nil
	}
	columns := []string{"SIGNAL", "AVAILABLE", "CAPACITY", "THRESHOLD", "HEADROOM", "GROWTH", "TIME LEFT", "AGE"}
	if wide {
		columns = append(columns, "SOURCE", "LEVEL", "ERROR")
	}
	t := newTable(o.Out, columns...)
	signals := s.signals()
	for i := range signals {
		g := &signals[i]
		age := ""
		if g.AgeSeconds > 0 {
			age = short(time.Duration(g.AgeSeconds * float64(time.Second)))
		}
		cells := []string{g.Signal, amountOf(g.Signal, g.Available), amountOf(g.Signal, g.Capacity),
			amountOf(g.Signal, g.Threshold), amountOf(g.Signal, g.Headroom), rate(g.GrowthPerSecond), left(g), age}
		if wide {
			cells = append(cells, g.Source, g.Level, g.Error)
		}
		t.row(cells...)
	}
	if err := t.end(); err != nil {
		return err
	}
	if s.Status == nil {
		o.sentence("The kubelet is stock: what it decides is not known. Conditions that are True: %s.",
			plain(cmp.Or(strings.Join(s.Conditions, ", "), "none")))
		return nil
	}
	o.showThresholds(s.Status, wide)
	for _, f := range s.Status.InFlight {
		if f.Started.IsZero() {
			o.sentence("Not cleaned up yet, without an eviction: %s, %s.", podName(&f.PressurePod), plain(f.State))
			continue
		}
		o.sentence("In flight: %s, %s since %s.", podName(&f.PressurePod), plain(f.State), since(f.Started, s.Status.Time))
	}
	for i := range s.Status.Waiting {
		fmt.Fprintf(o.Out, "Waiting for admission: %s.\n", podName(&s.Status.Waiting[i]))
	}
	for i := range s.Status.DryRun {
		fmt.Fprintf(o.Out, "Dry run: %s would be evicted.\n", podName(&s.Status.DryRun[i].PressurePod))
	}
	if s.Status.RuntimeSilent {
		fmt.Fprintln(o.Out, "The container runtime does not answer.")
	}
	return nil
}

func (o *options) showThresholds(s *debugv1alpha1.PressureStatus, wide bool) {
	for i := range s.Thresholds {
		t := &s.Thresholds[i]
		if !wide && !t.Met && !t.DryRun {
			continue
		}
		state := "is not met"
		if t.Met {
			state = "is met"
		}
		if t.GracePeriodSeconds > 0 {
			state += fmt.Sprintf(", %.0f s of its grace period of %.0f s have passed", t.GracePeriodElapsedSeconds,
				t.GracePeriodSeconds)
		}
		if t.DryRun {
			state += ", in dry run"
		}
		fmt.Fprintf(o.Out, "The %s threshold %s of %s %s.\n", strings.ToLower(plain(t.Kind)), plain(t.Value),
			plain(t.Signal), state)
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if c.True {
			fmt.Fprintf(o.Out, "%s is True since %s.\n", plain(c.Type), since(c.Since, s.Time))
		}
	}
}

// podName names a pod in a sentence.
func podName(p *debugv1alpha1.PressurePod) string {
	if p.Name == "" {
		return plain(string(p.UID))
	}
	return plain(p.Namespace) + "/" + plain(p.Name)
}
