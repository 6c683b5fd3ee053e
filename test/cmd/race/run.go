package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/race"
	"github.com/plimsoll-project/plimsoll/test/race/crossing"
)

// run carries out what remains of the cells.
func (o *options) run(ctx context.Context, root string, cells []race.Cell) (err error) {
	layout := cluster.NewLayout(root, cluster.TestName)
	runner := race.Runner{OurKubelet: o.kubelet, Rest: o.rest, Log: os.Stdout}
	if err := o.build(ctx, root, &runner, cells); err != nil {
		return err
	}
	remaining, err := o.remaining(&runner, cells)
	if err != nil {
		return err
	}
	if len(remaining) == 0 {
		fmt.Println("All runs are done.")
		return nil
	}
	began := time.Now()
	runner.Cluster, err = cluster.Start(ctx, cluster.Config{
		Layout: layout, Kubelet: runner.OurKubelet, CgroupRoot: os.Getenv("PLIMSOLL_CGROUP_ROOT"), Log: os.Stdout,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Cluster.Stop(context.WithoutCancel(ctx))) }()
	for i, c := range remaining {
		if ctx.Err() != nil || time.Since(began) > o.timeout {
			return fmt.Errorf("%d of %d runs are done, the same command goes on", i, len(remaining))
		}
		run, err := runner.Race(ctx, c)
		if err != nil {
			return err
		}
		if err := race.Append(o.results, run); err != nil {
			return err
		}
		fmt.Printf("%3d/%d %s\n", i+1, len(remaining), run.Line())
	}
	return nil
}

// build builds what is missing, and names the kubelets to the runner.
func (o *options) build(ctx context.Context, root string, runner *race.Runner, cells []race.Cell) error {
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	layout := cluster.NewLayout(root, cluster.TestName)
	builder := build.Builder{Root: root, Out: layout.Bin, Log: os.Stdout}
	if err := builder.All(ctx, layout.Images, o.kubelet == ""); err != nil {
		return err
	}
	if runner.OurKubelet == "" {
		runner.OurKubelet = layout.Program("kubelet")
	}
	runner.StockKubelet = layout.Program(build.StockKubelet().Name)
	for _, c := range cells {
		if strings.HasPrefix(c.Kubelet, race.Stock) {
			return builder.Build(ctx, []build.Part{build.StockKubelet()})
		}
	}
	return nil
}

// remaining returns the cells of the runs that are still to be done, in order.
func (o *options) remaining(runner *race.Runner, cells []race.Cell) ([]race.Cell, error) {
	runs, err := race.Load(o.results)
	if err != nil {
		return nil, err
	}
	programs := map[string]string{}
	for _, c := range cells {
		if programs[c.Kubelet] == "" {
			if programs[c.Kubelet], err = runner.Program(c.Kubelet); err != nil {
				return nil, err
			}
		}
	}
	remaining := race.Remaining(cells, runs, programs, o.count)
	var list []race.Cell
	for _, c := range cells {
		for range remaining[c] {
			list = append(list, c)
		}
	}
	return list, nil
}

// measureCrossings prints how long the fence takes after the crossing of a threshold.
func (o *options) measureCrossings(ctx context.Context, root string) error {
	layout := cluster.NewLayout(root, cluster.TestName)
	list, err := crossing.Measure(ctx, crossing.Config{
		Hog: layout.Program("hog"), Pods: 110, Crossings: o.crossings, Memory: 2048, Headroom: 100, Distance: 200, Rate: 400,
		Log: os.Stdout,
	})
	var fenced, ended []time.Duration
	for _, c := range list {
		if c.Fenced >= 0 {
			fenced = append(fenced, c.Fenced)
		}
		ended = append(ended, c.Ended)
	}
	fmt.Printf("%d of %d fenced\n", len(fenced), len(list))
	printTimes("crossing to fence", fenced)
	printTimes("crossing to end", ended)
	return err
}

func printTimes(what string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	at := func(percent int) time.Duration {
		return times[(len(times)-1)*percent/100].Round(100 * time.Microsecond)
	}
	fmt.Printf("%s: p50 %v, p99 %v, maximum %v\n", what, at(50), at(99), at(100))
}

// report writes the table and the plot of all results.
func (o *options) report() error {
	runs, err := race.Load(o.results)
	if err != nil {
		return err
	}
	if o.plot != "" {
		if err := os.WriteFile(o.plot, []byte(race.Plot(runs)), 0o644); err != nil {
			return err
		}
	}
	switch o.table {
	case "":
		return nil
	case "-":
		_, err := fmt.Print(race.Table(runs))
		return err
	}
	return os.WriteFile(o.table, []byte(race.Table(runs)), 0o644)
}
