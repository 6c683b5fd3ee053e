package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/simulate"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// maxLine bounds a line of a trace, in bytes.
	maxLine = 64 << 20
	// progressEvery is the time between two messages about the progress.
	progressEvery = 2 * time.Second
)

// planOptions are the flags of plan.
type planOptions struct {
	ruleOptions
	traces         []string
	node, scenario string
	since          string
	spared         string
	signal         string
	svg            string
}

func (o *options) planCommand() *cobra.Command {
	p := &planOptions{}
	c := &cobra.Command{
		Use:   "plan",
		Short: "What would have been evicted with other settings",
		Long: `What would have been evicted with other settings, and when, beside what was.

The decisions of a trace are made again, by the code that decides on nodes. With the settings of the recording they are
the recorded decisions. With others, what was not recorded is assumed:

  * The node is looked at when a record was made: at each change, and once in a minute.
  * A pod that the plan evicts is gone after its grace period or killTime, the longer of both. What it uses in the
    recording is available from then on.
  * A pod that was evicted and that the plan spares uses on what it used then, or goes on growing (--spared=grow).
  * Node-level reclaim of the plan frees nothing.
  * Nothing else reacts: other pods do what was recorded, and nothing is created in place of evicted pods.`,
		Example: `  # A higher threshold for memory, on what a node remembers
  kubectl pressure plan --node node-1 --threshold memory.available=2Gi

  # Other files of settings, on a trace that was taken before, with a picture
  kubectl pressure plan --trace node-1.jsonl --config kubelet.yaml --pressure-config pressure.yaml --svg plan.svg

  # A synthetic leak
  kubectl pressure plan --scenario leak --threshold memory.available=1Gi`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.plan(c.Context(), p) },
	}
	f := c.Flags()
	f.StringArrayVar(&p.traces, "trace", nil, "A file with a trace, or of the decision log of a node (.gz); - is the "+
		"standard input. Several files are one trace, in their order.")
	f.StringVar(&p.node, "node", "", "Take the trace from this node.")
	f.StringVar(&p.since, "since", "", "With --node: only decisions since then, a duration or a time in RFC 3339.")
	f.StringVar(&p.scenario, "scenario", "", "A synthetic trace: "+strings.Join(simulate.Scenarios(), ", ")+".")
	f.StringVar(&p.spared, "spared", "hold", "What pods do that were evicted and are spared by the plan: hold or grow.")
	f.StringVar(&p.signal, "signal", "memory.available", "The signal whose course is shown by --svg and json.")
	f.StringVar(&p.svg, "svg", "", "Write a picture of the course to this file.")
	p.addFlags(f)
	o.addOutputFlag(c, allFormats)
	_ = c.RegisterFlagCompletionFunc("node", o.completeNodes)
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(simulate.Scenarios(),
		cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("spared", cobra.FixedCompletions([]string{"hold", "grow"},
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *options) plan(ctx context.Context, p *planOptions) error {
	signal, ok := snapshot.ParseSignal(p.signal)
	if !ok {
		return fmt.Errorf("--signal %q: must be one of %v", p.signal, snapshot.AllSignals())
	}
	if p.spared != "hold" && p.spared != "grow" {
		return fmt.Errorf("--spared %q: must be hold or grow", p.spared)
	}
	rules, err := p.rules()
	if err != nil {
		return err
	}
	s := simulate.New(simulate.Settings{Rules: rules, GrowSpared: p.spared == "grow", Signal: signal})
	if err := o.feed(ctx, p, s); err != nil {
		return err
	}
	r := s.Result()
	if p.svg != "" {
		if err := os.WriteFile(p.svg, drawing(r), 0o644); err != nil {
			return err
		}
	}
	if isTable, _ := o.isTable(); !isTable {
		return o.write(r)
	}
	return o.showPlan(r)
}

// feed passes the trace to the simulation.
func (o *options) feed(ctx context.Context, p *planOptions, s *simulate.Simulation) error {
	sources := 0
	for _, given := range []bool{len(p.traces) > 0, p.node != "", p.scenario != ""} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return errors.New("one of --trace, --node and --scenario is needed")
	}
	switch {
	case p.scenario != "":
		lines, err := simulate.Scenario(p.scenario)
		if err != nil {
			return err
		}
		for i := range lines {
			if err := s.Add(&lines[i]); err != nil {
				return err
			}
		}
		return nil
	case p.node != "":
		body, err := o.trace(ctx, p.node, p.since)
		if err != nil {
			return err
		}
		defer body.Close()
		return o.feedFrom(ctx, p.node, body, s)
	}
	for _, name := range p.traces {
		if err := o.feedFile(ctx, name, s); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) feedFile(ctx context.Context, name string, s *simulate.Simulation) error {
	if name == "-" {
		return o.feedFrom(ctx, "standard input", o.In, s)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.feedFrom(ctx, name, f, s)
}

// feedFrom reads a trace, compressed or not. A compressed one that was cut off is used as far as it goes: the file that
// a node is writing is one.
func (o *options) feedFrom(ctx context.Context, name string, from io.Reader, s *simulate.Simulation) error {
	r := bufio.NewReaderSize(from, 1<<20)
	if magic, err := r.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r = bufio.NewReaderSize(z, 1<<20)
	}
	var decoder trace.Decoder
	next := time.Now().Add(progressEvery)
	for number := 1; ; number++ {
		line, err := readLine(r)
		cutOff := errors.Is(err, io.ErrUnexpectedEOF)
		if cutOff {
			fmt.Fprintf(o.ErrOut, "warning: %s: cut off in line %d\n", plain(name), number)
		}
		if cutOff || err == io.EOF {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		decoded, err := decoder.Decode(line)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		if err := s.Add(&decoded); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, number, err)
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(progressEvery)
			fmt.Fprintf(o.ErrOut, "%d lines, %d decisions\n", number, s.Result().Decisions)
		}
	}
}

// readLine returns the next line that is not empty.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && len(bytes.TrimSpace(line)) > 0:
			return line, nil // The last line may have no end.
		case err != nil:
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

func (o *options) showPlan(r *simulate.Result) error {
	o.sentence("%d decisions from %s to %s.", r.Decisions, r.From.Local().Format(clock), r.To.Local().Format(clock))
	if r.Skipped > 0 {
		o.sentence("%d decisions could not be made again, since what they were made from is not in the trace.", r.Skipped)
	}
	if len(r.Different) > 0 {
		o.sentence("%d decisions are others now than they were recorded: the recording is of another version.",
			len(r.Different))
	}
	if !r.Changed {
		o.sentence("The settings are those of the recording.")
	}
	pairs := r.Pairs()
	if len(pairs) == 0 {
		o.sentence("Nothing was evicted, and nothing would have been.")
		return nil
	}
	o.sentence("")
	t := newTable(o.Out, "NAMESPACE", "NAME", "WAS EVICTED", "PLAN", "CAUSE", "OUTCOME")
	for i := range pairs {
		p := &pairs[i]
		e := p.Planned
		if e == nil {
			e = p.Recorded
		}
		cause := e.Cause
		if e.Signal != "" {
			cause = e.Signal + " " + e.Cause
		}
		if e.DryRun {
			cause += " (dry run)"
		}
		t.row(e.Namespace, e.Name, evictedAt(p.Recorded), evictedAt(p.Planned), cause, p.Outcome())
	}
	if err := t.end(); err != nil {
		return err
	}
	if !r.ExhaustedAt.IsZero() {
		o.sentence("\nPods that the plan spares would have used up the memory at %s.", r.ExhaustedAt.Local().Format(clock))
	}
	return nil
}

func evictedAt(e *simulate.Eviction) string {
	if e == nil {
		return ""
	}
	return e.Time.Local().Format(clock)
}
