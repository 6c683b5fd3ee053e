package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// maxEvent bounds the line of an event, in bytes.
const maxEvent = 8 << 20

func (o *options) watchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "watch [NODE]",
		Short: "Decisions about pressure as they are made",
		Example: `  # Of all nodes
  kubectl pressure watch

  # Of one node, as JSON lines
  kubectl pressure watch node-1 -o json`,
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error { return o.watch(c.Context(), append(args, "")[0]) },
	}
	o.addOutputFlag(c, []string{"table", "json"})
	return c
}

func (o *options) watch(ctx context.Context, name string) error {
	cluster, err := o.connect(o)
	if err != nil {
		return err
	}
	nodes, err := cluster.nodes(ctx, name)
	if err != nil {
		return err
	}
	var (
		work sync.WaitGroup
		mu   sync.Mutex
		errs = make([]error, len(nodes))
	)
	for i := range nodes {
		work.Go(func() {
			var shown []string
			errs[i] = cluster.watch(ctx, &nodes[i], func(name string, data []byte) {
				mu.Lock()
				defer mu.Unlock()
				shown = o.showEvent(nodes[i].Name, name, data, shown)
			})
			if len(nodes) > 1 && ctx.Err() == nil {
				// Others are watched on: an error at the end would come too late.
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(o.ErrOut, "warning: not watched any more:", plainLines(errs[i].Error()))
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// watch calls f for each event of a node. It returns an error when the stream ends, unless ctx has.
func (c *cluster) watch(ctx context.Context, n *nodeInfo, f func(name string, data []byte)) error {
	body, err := c.ask.open(ctx, n, "watch", nil)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	defer body.Close()
	err = events(body, f)
	if err == nil {
		err = errors.New("the stream has ended")
	}
	return fmt.Errorf("node %s: %w", n.Name, err)
}

// events reads server-sent events.
func events(r io.Reader, f func(name string, data []byte)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	name, data := "", []byte(nil)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case len(line) == 0 && data != nil:
			f(name, data)
			name, data = "", nil
		case bytes.HasPrefix(line, []byte("event: ")):
			name = string(line[len("event: "):])
		case bytes.HasPrefix(line, []byte("data: ")):
			data = bytes.Clone(line[len("data: "):])
		}
	}
	return lines.Err()
}

// showEvent shows an event. shown are the lines of the last decision of the node: those are not repeated. It returns
// those of this one.
func (o *options) showEvent(node, name string, data []byte, shown []string) []string {
	if o.output == "json" {
		text, err := json.Marshal(map[string]any{"node": node, "event": name, "object": json.RawMessage(data)})
		if err == nil {
			fmt.Fprintf(o.Out, "%s\n", escaped(text))
		}
		return nil
	}
	if name != "decision" {
		for _, line := range eventLines(name, data) {
			fmt.Fprintf(o.Out, "%s  %s\n", plain(node), line)
		}
		return shown
	}
	var d debugv1alpha1.PressureDecision
	if json.Unmarshal(data, &d) != nil || d.Heartbeat {
		return shown
	}
	lines := decisionLines(&d)
	for _, line := range lines {
		if !slices.Contains(shown, line) {
			fmt.Fprintf(o.Out, "%s  %s  #%d  %s\n", plain(node), d.Time.Local().Format("15:04:05"), d.Number, line)
		}
	}
	return lines
}

// eventLines describes an event other than a decision, each line with its time first.
func eventLines(name string, data []byte) (lines []string) {
	switch name {
	case "outcome":
		var x debugv1alpha1.PressureOutcome
		if json.Unmarshal(data, &x) != nil {
			return nil
		}
		subject := "reclaim"
		if x.Pod != nil {
			subject = podName(x.Pod)
		}
		return []string{fmt.Sprintf("%s  #%d  %s: %s %s", x.Time.Local().Format("15:04:05"), x.Decision, subject,
			plain(x.Kind), plain(strings.TrimSpace(x.Detail+" "+x.Error)))}
	case "admission":
		var a debugv1alpha1.PressureAdmission
		if json.Unmarshal(data, &a) != nil {
			return nil
		}
		return []string{fmt.Sprintf("%s  %s: %s, %s", a.Time.Local().Format("15:04:05"), podName(&a.PressurePod),
			plain(a.Outcome), plain(a.Reason))}
	case "preemption":
		var p debugv1alpha1.PressurePreemption
		if json.Unmarshal(data, &p) != nil {
			return nil
		}
		return []string{fmt.Sprintf("%s  %s: preemption of %d pods %s", p.Time.Local().Format("15:04:05"),
			podName(&p.PressurePod), len(p.Stop), plain(p.Error))}
	}
	return nil
}

// decisionLines describes a decision, without its time and number.
func decisionLines(d *debugv1alpha1.PressureDecision) (lines []string) {
	for i := range d.Needs {
		n := &d.Needs[i]
		lines = append(lines, fmt.Sprintf("%s: %s must come free: %s%s", plain(n.Signal), amount(n.Signal, n.Amount),
			plain(n.Outcome), dryRunMark(n.DryRun)))
	}
	for i := range d.Victims {
		v := &d.Victims[i]
		lines = append(lines, fmt.Sprintf("evict %s%s: %s", podName(&v.PressurePod), dryRunMark(v.DryRun), plain(v.Message)))
	}
	if g := closest(d.Signals); lines == nil && g != nil {
		lines = append(lines, fmt.Sprintf("%s: %s available", plain(g.Signal), amountOf(g.Signal, g.Available)))
	}
	if d.RuntimeSilent {
		lines = append(lines, "the container runtime does not answer")
	}
	return lines
}

// dryRunMark says that something is only reported.
func dryRunMark(dryRun bool) string {
	if dryRun {
		return " (dry run: not done)"
	}
	return ""
}

func (o *options) traceCommand() *cobra.Command {
	var since string
	c := &cobra.Command{
		Use:   "trace NODE",
		Short: "The decisions of a node with what they were made from, for plan",
		Example: `  # Everything that the node has in memory
  kubectl pressure trace node-1 > node-1.jsonl

  # The last hour
  kubectl pressure trace node-1 --since 1h > node-1.jsonl`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: o.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			body, err := o.trace(c.Context(), args[0], since)
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.Copy(o.Out, body)
			return err
		},
	}
	c.Flags().StringVar(&since, "since", "", "Only decisions since then: a duration, or a time in RFC 3339.")
	return c
}

// trace requests the trace of a node.
func (o *options) trace(ctx context.Context, name, since string) (io.ReadCloser, error) {
	cluster, err := o.connect(o)
	if err != nil {
		return nil, err
	}
	nodes, err := cluster.nodes(ctx, name)
	if err != nil {
		return nil, err
	}
	parameters := map[string]string{"trace": "true"}
	if since != "" {
		parameters["since"] = since
	}
	body, err := cluster.ask.open(ctx, &nodes[0], "decisions", parameters)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", nodes[0].Name, err)
	}
	return body, nil
}
