package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/race/crossing"
	"github.com/plimsoll-project/plimsoll/test/vm"
)

// crossings are the flags that measure the time from the crossing of a threshold to the fence.
type crossings struct {
	count, pods int
	rate        int64
	// observer is the program of crossing.BuildObserver, "" to compile it. simplest is whether it sets the fences.
	observer string
	simplest bool
	// smallPages is whether the hogs grow without huge pages.
	smallPages bool
}

// observerProgram is the name of the program of crossing.BuildObserver.
const observerProgram = "observer"

func (c *crossings) define(flags *flag.FlagSet) {
	flags.IntVar(&c.count, "crossings", 0,
		"start no cluster, measure this `often` the time from the crossing of a threshold to the fence")
	flags.IntVar(&c.pods, "crossing-pods", 110, "`number` of other pods meanwhile")
	flags.Int64Var(&c.rate, "crossing-rate", 400, "`growth` of the hog meanwhile, in MiB per second")
	flags.BoolVar(&c.smallPages, "crossing-small-pages", false,
		"have the hog grow by pages of 4 KiB, and not by huge pages, which come 20 ms apart at 100 MiB per second")
	flags.BoolVar(&c.simplest, "observer", false,
		"have the simplest C program set these fences instead of the eviction manager, to compare")
	flags.StringVar(&c.observer, "observer-program", "", "use this C `program`, and compile none")
}

// measureCrossings prints how long the fence takes after the crossing of a threshold.
func (o *options) measureCrossings(ctx context.Context, root string) error {
	layout := cluster.NewLayout(root, cluster.TestName)
	guest, err := cluster.ReadGuest()
	if err != nil {
		return err
	}
	if guest == nil {
		builder := build.Builder{Root: root, Out: layout.Bin, Log: os.Stdout}
		if err := builder.Build(ctx, []build.Part{build.Hog()}); err != nil {
			return err
		}
	}
	if o.crossings.observer == "" {
		o.crossings.observer = filepath.Join(layout.Bin, observerProgram)
		if err := crossing.BuildObserver(ctx, o.crossings.observer); err != nil {
			return err
		}
	}
	if o.machine {
		return o.crossingsInMachine(ctx, root)
	}
	list, err := crossing.Measure(ctx, crossing.Config{
		Hog: layout.Program("hog"), Observer: o.crossings.observer, Simplest: o.crossings.simplest,
		Pods: o.crossings.pods, Crossings: o.crossings.count, Memory: 2048, Headroom: 100, Distance: 200,
		Rate: o.crossings.rate, SmallPages: o.crossings.smallPages, Rest: o.rest, Log: os.Stdout,
	})
	if len(list) > 1 {
		// Where this runs in an emulated machine, code is translated when it first runs, which takes long.
		fmt.Printf("the first, not counted below: %v\n", list[0])
		list = list[1:]
	}
	var fenced, ended []time.Duration
	for _, c := range list {
		if c.Fenced != nil {
			fenced = append(fenced, *c.Fenced)
		}
		ended = append(ended, c.Ended)
	}
	fmt.Printf("%d of %d fenced\n", len(fenced), len(list))
	printTimes("crossing to fence", fenced)
	printTimes("crossing to end", ended)
	return err
}

// crossingsInMachine measures in a virtual machine.
func (o *options) crossingsInMachine(ctx context.Context, root string) error {
	layout := vm.NewLayout(root)
	image, err := o.buildMachine(ctx, layout)
	if err != nil {
		return err
	}
	observer, err := os.ReadFile(o.crossings.observer)
	if err != nil {
		return err
	}
	program := vm.Program{
		Name: build.Race().Name, Out: os.Stdout, Alone: true,
		Arguments: []string{
			fmt.Sprintf("-crossings=%d", o.crossings.count), fmt.Sprintf("-crossing-pods=%d", o.crossings.pods),
			fmt.Sprintf("-crossing-rate=%d", o.crossings.rate), fmt.Sprintf("-observer=%t", o.crossings.simplest),
			fmt.Sprintf("-crossing-small-pages=%t", o.crossings.smallPages), "-observer-program=./" + observerProgram,
			"-rest=" + o.rest.String(),
		},
		Files: map[string][]byte{observerProgram: observer},
	}
	return vm.RunProgram(ctx, vm.Config{Layout: layout, Log: os.Stdout}, image, program)
}

func printTimes(what string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { // By nearest rank: of less than 100, p99 is the maximum.
		return times[(len(times)*percent+99)/100-1].Round(100 * time.Microsecond)
	}
	fmt.Printf("%s: p50 %v, p99 %v, maximum %v\n", what, at(50), at(99), at(100))
}
