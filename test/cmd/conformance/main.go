// Command conformance runs parts of the upstream suites, unmodified, against the kubelet of this repository, with
// -stock against the stock kubelet too, and compares. An interrupted run is resumed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/conformance"
)

// options are the command line.
type options struct {
	suite   string
	focus   string
	skip    string
	shard   string
	procs   int
	kubelet string
	// stock is "run", "kept" or "only": whether stock is run.
	stock      string
	machine    bool
	least      float64
	anew       bool
	table      bool
	keepStock  bool
	unselected bool
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "nodeconformance", "which `part` of the suites")
	flag.StringVar(&o.focus, "focus", "",
		"instead of the part's own, a `regexp` of the names to run; nothing is left out that another part runs")
	flag.StringVar(&o.skip, "skip", "", "instead of the part's own, a `regexp` of the names to leave out")
	flag.StringVar(&o.shard, "shard", "",
		"run only `i/n`, the i-th of n shares, on a machine of its own perhaps; its results are kept in "+
			"results-iofn.json, and all such files in one folder are read together")
	flag.IntVar(&o.procs, "procs", 0, "instead of the part's own, how many specs run at the same time")
	flag.StringVar(&o.kubelet, "kubelet", os.Getenv("PLIMSOLL_KUBELET"),
		"test this kubelet `binary` instead of the repository's")
	flag.StringVar(&o.stock, "stock", "kept",
		"`how` to get the results of the stock kubelet: run, kept (from an earlier run or the repository), or only (run "+
			"stock and nothing else)")
	flag.BoolVar(&o.machine, "machine", false,
		"run parts for nodes in a virtual machine with systemd and cgroup v2, and stock twice")
	flag.Float64Var(&o.least, "least", 100, "`percent` of the specs that pass with stock that must pass")
	flag.BoolVar(&o.anew, "anew", false, "forget the results of earlier runs of what is run")
	flag.BoolVar(&o.table, "table", false, "run nothing, compare what is kept")
	flag.BoolVar(&o.keepStock, "keep-stock", false,
		"run nothing, write what passed with stock to test/conformance/stock, to be committed")
	flag.BoolVar(&o.unselected, "unselected", false,
		"run nothing, write which specs no part has, and why, to test/conformance/unselected")
	flag.Usage = usage
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "\nconformance: %v\n", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "Parts of the suites:")
	for _, s := range conformance.Selections() {
		fmt.Fprintf(os.Stderr, "  %-16s %s\n", s.Name, s.About)
	}
	flag.PrintDefaults()
}

// ours returns the suite for the kubelet under test.
func (o options) ours() (conformance.Suite, error) {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return conformance.Suite{}, err
	}
	selection, err := o.selection()
	if err != nil {
		return conformance.Suite{}, err
	}
	shard, err := conformance.ParseShard(o.shard)
	if err != nil {
		return conformance.Suite{}, fmt.Errorf("-shard: %w", err)
	}
	suite := conformance.Suite{
		Selection: selection, Shard: shard, Anew: o.anew, Root: root,
		Dir:     filepath.Join(root, cluster.OutputDir, "conformance"),
		Kubelet: o.kubelet, Party: "ours", Log: os.Stdout,
	}
	if suite.Kubelet == "" {
		suite.Kubelet = cluster.NewLayout(root, cluster.TestName).Program("kubelet")
	}
	if o.machine {
		return suite.InMachine(1)
	}
	return suite, nil
}

// selection returns the named part, changed as the command line says.
func (o options) selection() (conformance.Selection, error) {
	selection, err := conformance.SelectionByName(o.suite)
	if err != nil {
		return selection, fmt.Errorf("-suite: %w", err)
	}
	if o.focus != "" {
		selection.Focus, selection.Without = o.focus, nil
	}
	if o.skip != "" {
		selection.Skip = o.skip
	}
	if o.procs > 0 {
		selection.Procs = o.procs
	}
	if _, err := selection.Chooser(); err != nil {
		return selection, err
	}
	return selection, nil
}
