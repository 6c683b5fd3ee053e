package main

import (
	"context"
	"fmt"
	"os"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/conformance"
)

func run(ctx context.Context, o options) error {
	ours, err := o.ours()
	if err != nil {
		return err
	}
	stock, err := ours.Stock()
	if err != nil {
		return err
	}
	switch {
	case o.keepStock:
		return keepStock(stock)
	case o.unselected:
		return ours.WriteUnselected(ctx)
	case o.table:
		return o.showKept(stock, ours)
	}
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	return o.runSuites(ctx, stock, ours)
}

func (o options) runSuites(ctx context.Context, stock, ours conformance.Suite) error {
	var stockResults conformance.Results
	var err error
	switch o.stock {
	case "run", "only":
		stockResults, err = perform(ctx, stock)
	case "kept":
		stockResults, err = keptStock(stock)
	default:
		return fmt.Errorf("-stock is %q, allowed are run, kept and only", o.stock)
	}
	if err != nil || o.stock == "only" {
		return err
	}
	results, err := perform(ctx, ours)
	if err != nil {
		return err
	}
	return o.compare(stockResults.Only(results.Has), results)
}

func perform(ctx context.Context, suite conformance.Suite) (conformance.Results, error) {
	if err := suite.Prepare(ctx); err != nil {
		return nil, err
	}
	return suite.Run(ctx)
}

// showKept compares the results of earlier runs of the selection.
func (o options) showKept(stock, ours conformance.Suite) error {
	stockResults, err := keptStock(stock)
	if err != nil {
		return err
	}
	results, err := ours.Kept()
	if err != nil {
		return err
	}
	chosen, err := ours.Chooser()
	if err != nil {
		return err
	}
	return o.compare(stockResults.Only(chosen), results.Only(chosen))
}

// compare prints the table. It fails if too few specs pass.
func (o options) compare(stock, ours conformance.Results) error {
	comparison := conformance.Compare(stock, ours)
	comparison.Write(os.Stdout, ours)
	if percent := comparison.Percent(); percent < o.least {
		return fmt.Errorf("%.1f %% of what passes with stock passed, that is less than %g %%", percent, o.least)
	}
	return nil
}

// keptStock returns the results of earlier runs on this machine, or if there are none those of the repository.
func keptStock(stock conformance.Suite) (conformance.Results, error) {
	results, err := stock.Kept()
	if err == nil && len(results) == 0 {
		results = conformance.KnownStock(stock.Name)
	}
	return results, err
}

// keepStock writes the specs that passed with stock into the repository.
func keepStock(stock conformance.Suite) error {
	results, err := stock.Kept()
	if err != nil {
		return err
	}
	file, count, err := conformance.WriteKnown(stock.Root, stock.Name, results)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d specs passed with stock, there were %d before.\n", file, count,
		len(conformance.KnownStock(stock.Name)))
	return nil
}
