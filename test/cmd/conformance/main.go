// Command conformance runs parts of the upstream node suite, unmodified,
// against the kubelet of this repository, and if asked to against the stock
// kubelet too, and compares. What was interrupted goes on where it was.
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
	procs   int
	kubelet string
	// stock says whether stock is run: "run", "kept" or "only".
	stock string
	least float64
	anew  bool
}

func main() {
	var o options
	flag.StringVar(&o.suite, "suite", "nodeconformance", "which `part` of the suite")
	flag.StringVar(&o.focus, "focus", "", "instead of the part's own, a `regexp` of the names to run")
	flag.StringVar(&o.skip, "skip", "", "instead of the part's own, a `regexp` of the names to leave out")
	flag.IntVar(&o.procs, "procs", 0, "instead of the part's own, how many specs run at the same time")
	flag.StringVar(&o.kubelet, "kubelet", os.Getenv("PLIMSOLL_KUBELET"), "test this kubelet `binary` instead of the repository's")
	flag.StringVar(&o.stock, "stock", "kept", "`how` to get the results of the stock kubelet: run, kept (from an earlier run or the repository), or only (run stock and nothing else)")
	flag.Float64Var(&o.least, "least", 100, "`percent` of the specs that pass with stock that must pass")
	flag.BoolVar(&o.anew, "anew", false, "forget the results of earlier runs of what is run")
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
	fmt.Fprintln(os.Stderr, "Parts of the suite:")
	for _, s := range conformance.Selections() {
		fmt.Fprintf(os.Stderr, "  %-16s %s\n", s.Name, s.About)
	}
	flag.PrintDefaults()
}

func run(ctx context.Context, o options) error {
	ours, err := o.ours()
	if err != nil {
		return err
	}
	stock, err := ours.Stock()
	if err != nil {
		return err
	}
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	var stockResults conformance.Results
	switch o.stock {
	case "run", "only":
		stockResults, err = perform(ctx, stock, o.anew)
	case "kept":
		if stockResults, err = stock.Kept(); err == nil && len(stockResults) == 0 {
			stockResults = conformance.KnownStock(o.suite)
		}
	default:
		return fmt.Errorf("-stock is %q, allowed are run, kept and only", o.stock)
	}
	if err != nil || o.stock == "only" {
		return err
	}
	results, err := perform(ctx, ours, o.anew)
	if err != nil {
		return err
	}
	comparison := conformance.Compare(stockResults, results)
	comparison.Write(os.Stdout, results)
	if percent := comparison.Percent(); percent < o.least {
		return fmt.Errorf("%.1f %% of what passes with stock passed, that is less than %g %%", percent, o.least)
	}
	return nil
}

// ours is the suite for the kubelet under test.
func (o options) ours() (conformance.Suite, error) {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return conformance.Suite{}, err
	}
	selection, err := conformance.SelectionByName(o.suite)
	if err != nil {
		return conformance.Suite{}, fmt.Errorf("-suite: %w", err)
	}
	if o.focus != "" {
		selection.Focus = o.focus
	}
	if o.skip != "" {
		selection.Skip = o.skip
	}
	if o.procs > 0 {
		selection.Procs = o.procs
	}
	suite := conformance.Suite{
		Selection: selection, Root: root, Dir: filepath.Join(root, cluster.OutputDir, "conformance"),
		Kubelet: o.kubelet, Party: "ours", Log: os.Stdout,
	}
	if suite.Kubelet == "" {
		suite.Kubelet = cluster.NewLayout(root, cluster.TestName).Program("kubelet")
	}
	return suite, nil
}

func perform(ctx context.Context, suite conformance.Suite, anew bool) (conformance.Results, error) {
	if anew {
		if err := suite.Forget(); err != nil {
			return nil, err
		}
	}
	if err := suite.Prepare(ctx); err != nil {
		return nil, err
	}
	return suite.Run(ctx)
}
