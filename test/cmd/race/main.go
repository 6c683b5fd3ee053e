// Command race measures who is first when a pod fills memory: the kubelet, or the OOM killer in the cgroup of all pods.
// It runs a part of a matrix on a cluster of its own, adds a line of JSON for each run to a file, and goes on where it
// was interrupted. See package test/race.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/race"
)

// options are the command line.
type options struct {
	kubelets, kinds, caches, headrooms, rates string

	count     int
	crossings crossings
	rest      time.Duration
	timeout   time.Duration
	results   string
	kubelet   string
	machine   bool
	cells     string
	table     string
	plot      string
}

func main() {
	var o options
	// What is linked has flags of its own, which are not for this program.
	flags := flag.NewFlagSet("race", flag.ExitOnError)
	flags.StringVar(&o.kubelets, "kubelets", "ours,stock,stock-notify",
		"`list` of "+strings.Join(race.Kubelets(), ", "))
	flags.StringVar(&o.kinds, "kinds", race.BestEffort, "`list` of hogs: "+strings.Join(race.Kinds(), ", "))
	flags.StringVar(&o.caches, "caches", "cold,warm", "`list` of cold, warm")
	flags.StringVar(&o.headrooms, "headrooms", "100", "`list` of thresholds in MiB")
	flags.StringVar(&o.rates, "rates", "20,50,100,400,1000,2000", "`list` of rates in MiB per second")
	flags.IntVar(&o.count, "count", 1, "how many runs each cell is to have")
	flags.DurationVar(&o.rest, "rest", 6*time.Second, "how long hogs rest before they grow")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Hour, "begin no run after this time")
	flags.StringVar(&o.results, "results", "", "the `file` of results instead of _output/race/results.jsonl")
	flags.StringVar(&o.kubelet, "kubelet", os.Getenv("PLIMSOLL_KUBELET"),
		"run this kubelet `binary` instead of building the repository's")
	o.crossings.define(flags)
	flags.BoolVar(&o.machine, "machine", false, "run them in a virtual machine with systemd and cgroup v2")
	flags.StringVar(&o.cells, "cells", "",
		"run each cell of this `file` once, build nothing, and write the results to the output")
	flags.StringVar(&o.table, "table", "", "run nothing, write the table of the results to this `file`, - for the output")
	flags.StringVar(&o.plot, "plot", "", "run nothing, write the plot of the results (SVG) to this `file`")
	_ = flags.Parse(os.Args[1:]) // exits if that fails
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.main(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nrace: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) main(ctx context.Context) error {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return err
	}
	if o.results == "" {
		o.results = filepath.Join(root, cluster.OutputDir, "race", "results.jsonl")
	}
	if o.table != "" || o.plot != "" {
		return o.report()
	}
	if o.crossings.count > 0 {
		return o.measureCrossings(ctx, root)
	}
	if o.cells != "" {
		return o.runCells(ctx, root)
	}
	matrix, err := o.matrix()
	switch {
	case err != nil:
		return err
	case o.machine:
		return o.runInMachine(ctx, root, matrix.Cells())
	}
	return o.run(ctx, root, matrix.Cells())
}

func (o *options) matrix() (m race.Matrix, err error) {
	if m.Kubelets, err = race.Names(o.kubelets, race.Kubelets()); err != nil {
		return m, fmt.Errorf("-kubelets: %w", err)
	}
	if m.Kinds, err = race.Names(o.kinds, race.Kinds()); err != nil {
		return m, fmt.Errorf("-kinds: %w", err)
	}
	if m.Caches, err = race.Names(o.caches, []string{race.Cold, race.Warm}); err != nil {
		return m, fmt.Errorf("-caches: %w", err)
	}
	if m.Headrooms, err = race.Numbers(o.headrooms); err != nil {
		return m, fmt.Errorf("-headrooms: %w", err)
	}
	if m.Rates, err = race.Numbers(o.rates); err != nil {
		return m, fmt.Errorf("-rates: %w", err)
	}
	return m, nil
}
