// Package conformance runs the upstream suites, unmodified, against a kubelet, and compares the results with those of
// the stock kubelet. An interrupted run is resumed: specs that passed are not run again.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// Suite runs a selection of upstream specs against one kubelet.
type Suite struct {
	Selection
	// Shard is the part of the selection that is run; the zero value is all of it.
	Shard Shard
	// Anew removes the results of the same specs from earlier runs first.
	Anew bool
	// Root is the repository, Dir the directory of the files of all runs.
	Root string
	Dir  string
	// Machine has the node suite run in a virtual machine with systemd and cgroup v2; nil for this machine. See
	// InMachine.
	Machine *Machine
	// Kubelet is the binary under test, Party the name of the directory of its results.
	Kubelet string
	Party   string
	Log     io.Writer
}

// Stock returns the suite for the stock kubelet. The name of its results has what they depend on: the release and the
// machine.
func (s Suite) Stock() (Suite, error) {
	facts, err := machineFacts()
	if err != nil {
		return s, err
	}
	s.Kubelet, s.Party = s.layout().Program(build.StockKubelet().Name), "stock-"+build.KubernetesVersion+"-"+facts
	return s, nil
}

// Prepare builds everything that Run needs.
func (s Suite) Prepare(ctx context.Context) error {
	layout := s.layout()
	builder := build.Builder{Root: s.Root, Out: layout.Bin, Log: s.Log}
	if err := builder.All(ctx, layout.Images, s.Kubelet == layout.Program("kubelet")); err != nil {
		return err
	}
	parts := build.ConformanceParts()
	if s.Kubelet == layout.Program(build.StockKubelet().Name) {
		parts = append(parts, build.StockKubelet())
	}
	if err := errors.Join(builder.Build(ctx, parts), s.build(ctx)); err != nil {
		return err
	}
	nonewprivs := builder.Path("nonewprivs")
	if err := os.Chmod(nonewprivs, 0o755|os.ModeSetuid); err != nil {
		return fmt.Errorf("set user on execution: %w", err)
	}
	images := images{builder: builder, dir: s.mirror(), userland: filepath.Join(s.Dir, "userland"), log: s.Log}
	return errors.Join(images.write(ctx), s.Machine.prepare(ctx, s))
}

// build builds the upstream suite.
func (s Suite) build(ctx context.Context) error {
	builder := build.Builder{Root: s.Root, Out: s.layout().Bin, Log: s.Log}
	return builder.Build(ctx, []build.Part{s.upstream().part()})
}

// Run runs what has not passed yet and returns the results of all specs of the shard. A spec without a state did not
// run.
func (s Suite) Run(ctx context.Context) (Results, error) {
	specs, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	groups := s.Shard.of(groupsOf(specs))
	if s.Anew {
		if err := s.forget(groups); err != nil {
			return nil, err
		}
	}
	results, err := s.Kept()
	if err != nil {
		return nil, err
	}
	left := remaining(groups, results)
	all, todo := count(groups), count(left)
	fmt.Fprintf(s.Log, "%s with %s: %d specs, %d of them passed already. Log: %s\n",
		s.title(), s.Kubelet, all, all-todo, s.file("suite.log"))
	if todo > 0 {
		err = s.runAll(ctx, left, results)
	}
	return results.of(groups), err
}

// runAll starts what the suite needs, runs the specs, and stops it again.
func (s Suite) runAll(ctx context.Context, groups []group, results Results) error {
	start := s.startHere
	if s.Machine != nil {
		start = s.startMachine
	}
	where, err := start(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.runBatches(ctx, where, groups, results), where.stop(context.WithoutCancel(ctx)))
}

func (s Suite) runBatches(ctx context.Context, where place, groups []group, results Results) error {
	size, done := batch, 0
	if s.Machine != nil {
		size = machineBatch
	}
	for _, chunk := range batches(groups, size) {
		start := time.Now()
		specs, err := s.ginkgo(ctx, where, chunk)
		good, recordErr := s.record(results, specs)
		if err := errors.Join(err, recordErr); err != nil {
			return err
		}
		done += len(chunk)
		fmt.Fprintf(s.Log, "  %d of %d: %d of these %d passed, %s\n",
			done, count(groups), good, len(chunk), time.Since(start).Round(time.Second))
	}
	return nil
}

// title describes what is run.
func (s Suite) title() string {
	if s.Shard == (Shard{}) {
		return "Suite " + s.Name
	}
	return fmt.Sprintf("Suite %s, part %s,", s.Name, s.Shard)
}

func (s Suite) layout() cluster.Layout { return cluster.NewLayout(s.Root, cluster.TestName) }

func (s Suite) mirror() string { return filepath.Join(s.Dir, "images") }
