package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
	"github.com/plimsoll-project/plimsoll/test/race"
	"github.com/plimsoll-project/plimsoll/test/vm"
)

// run carries out what remains of the cells.
func (o *options) run(ctx context.Context, root string, cells []race.Cell) error {
	runner := race.Runner{OurKubelet: o.kubelet, Rest: o.rest, Log: os.Stdout}
	if err := o.build(ctx, root, &runner, cells); err != nil {
		return err
	}
	version := kit.CgroupsV1
	if util.IsCgroup2UnifiedMode() {
		version = kit.CgroupsV2
	}
	remaining, err := o.remaining(&runner, cells, version)
	if err != nil || len(remaining) == 0 {
		return err
	}
	config := cluster.Config{Layout: cluster.NewLayout(root, cluster.TestName)}
	return o.races(ctx, config, runner, remaining, func(run *race.Run) error { return race.Append(o.results, run) })
}

// runCells carries out the runs of a file, with the programs that are there.
func (o *options) runCells(ctx context.Context, root string) error {
	data, err := os.ReadFile(o.cells)
	if err != nil {
		return fmt.Errorf("-cells: %w", err)
	}
	var cells []race.Cell
	if err := json.Unmarshal(data, &cells); err != nil {
		return fmt.Errorf("-cells: %s: %w", o.cells, err)
	}
	config := cluster.Config{Layout: cluster.NewLayout(root, cluster.TestName)}
	if config.Guest, err = cluster.ReadGuest(); err != nil {
		return err
	}
	stock := config.Layout.Program(build.StockKubelet().Name)
	runner := race.Runner{
		OurKubelet: o.kubelet, StockKubelet: stock, Rest: o.rest, Virtual: config.Guest != nil, Log: os.Stderr,
	}
	results := json.NewEncoder(os.Stdout)
	return o.races(ctx, config, runner, cells, func(run *race.Run) error { return results.Encode(run) })
}

// races carries out the runs one after the other, on a cluster of its own.
func (o *options) races(ctx context.Context, config cluster.Config, runner race.Runner, list []race.Cell,
	record func(*race.Run) error,
) (err error) {
	config.Kubelet, config.CgroupRoot, config.Log = runner.OurKubelet, os.Getenv("PLIMSOLL_CGROUP_ROOT"), runner.Log
	began := time.Now()
	if runner.Cluster, err = cluster.Start(ctx, config); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Cluster.Stop(context.WithoutCancel(ctx))) }()
	for i, c := range list {
		if ctx.Err() != nil || time.Since(began) > o.timeout {
			return fmt.Errorf("%d of %d runs are done, the same command goes on", i, len(list))
		}
		run, err := runner.Race(ctx, c)
		if err != nil {
			return err
		}
		if err := record(run); err != nil {
			return err
		}
		fmt.Fprintf(runner.Log, "%3d/%d %s\n", i+1, len(list), run.Line())
	}
	return nil
}

// cellsFile is the file with the runs, in the working directory of the program in the machine.
const cellsFile = "cells.json"

// runInMachine carries out what remains of the cells in a virtual machine.
func (o *options) runInMachine(ctx context.Context, root string, cells []race.Cell) error {
	layout := vm.NewLayout(root)
	image, err := o.buildMachine(ctx, layout)
	if err != nil {
		return err
	}
	runner := race.Runner{
		OurKubelet: layout.Program(build.Kubelet().Name), StockKubelet: layout.Program(build.StockKubelet().Name),
	}
	remaining, err := o.remaining(&runner, cells, kit.CgroupsV2)
	if err != nil || len(remaining) == 0 {
		return err
	}
	list, err := json.Marshal(remaining)
	if err != nil {
		return fmt.Errorf("encode runs: %w", err)
	}
	results, out := io.Pipe()
	var recording errgroup.Group
	recording.Go(func() error { return o.record(results) })
	err = vm.RunProgram(ctx, vm.Config{Layout: layout, Log: os.Stdout}, image, vm.Program{
		Name: build.Race().Name, Out: out, Files: map[string][]byte{cellsFile: list},
		Arguments: []string{"-cells", cellsFile, "-rest", o.rest.String(), "-timeout", o.timeout.String()},
	})
	return errors.Join(err, out.Close(), recording.Wait())
}

// buildMachine builds what a machine needs that runs this program.
func (o *options) buildMachine(ctx context.Context, layout cluster.Layout) (vm.Image, error) {
	image, err := vm.Build(ctx, layout, os.Stdout)
	if err != nil {
		return image, err
	}
	builder := build.Builder{Root: layout.Root, Out: layout.Bin, Log: os.Stdout}
	return image, builder.Build(ctx, []build.Part{build.Race(), build.KatalystPlugin()})
}

// record adds results to the file as they come.
func (o *options) record(results *io.PipeReader) (err error) {
	defer func() { _ = results.CloseWithError(err) }() // Nothing else is read.
	decoder := json.NewDecoder(results)
	for {
		var run race.Run
		if err := decoder.Decode(&run); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read results: %w", err)
		}
		if err := race.Append(o.results, &run); err != nil {
			return err
		}
	}
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

// remaining returns the cells of the runs that are still to be done on that version of cgroups, in order.
func (o *options) remaining(runner *race.Runner, cells []race.Cell, version string) ([]race.Cell, error) {
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
	remaining := race.Remaining(cells, runs, version, programs, o.count)
	var list []race.Cell
	for _, c := range cells {
		for range remaining[c] {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		fmt.Println("All runs are done.")
	}
	return list, nil
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
