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
	stock, err := o.stockRounds(ours)
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

// stockRounds returns the suites for the stock kubelet. In a machine there are two rounds, since the time-outs of the
// specs do not allow for emulation: a spec counts if it passes in both.
func (o options) stockRounds(ours conformance.Suite) ([]conformance.Suite, error) {
	stock, err := ours.Stock()
	if err != nil || !o.machine {
		return []conformance.Suite{stock}, err
	}
	var rounds []conformance.Suite
	for round := range 2 {
		suite, err := stock.InMachine(round + 1)
		if err != nil {
			return nil, err
		}
		rounds = append(rounds, suite)
	}
	return rounds, nil
}

func (o options) runSuites(ctx context.Context, stock []conformance.Suite, ours conformance.Suite) error {
	if o.stock == "run" || o.stock == "only" {
		for _, round := range stock {
			if _, err := perform(ctx, round); err != nil {
				return err
			}
		}
	}
	if o.stock == "only" {
		return nil
	}
	stockResults, err := keptStock(stock)
	if err != nil {
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
func (o options) showKept(stock []conformance.Suite, ours conformance.Suite) error {
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

// keptStock returns what has passed with stock in each of these rounds: by the results of earlier runs on this machine,
// and if there are none, by those of the repository. Of a round in a virtual machine, which runs in parts on several
// days, both count together.
func keptStock(rounds []conformance.Suite) (conformance.Results, error) {
	var kept []conformance.Results
	for _, round := range rounds {
		results, err := round.Kept()
		if err != nil {
			return nil, err
		}
		if round.Machine != nil || len(results) == 0 {
			results.Merge(round.Known())
		}
		kept = append(kept, results)
	}
	return conformance.InEach(kept), nil
}

// keepStock writes the specs that passed with stock into the repository. Those of a virtual machine are added to what
// is there.
func keepStock(rounds []conformance.Suite) error {
	for _, round := range rounds {
		results, err := round.Kept()
		if err != nil {
			return err
		}
		before := round.Known()
		if round.Machine != nil {
			results.Merge(before)
		}
		file, count, err := round.WriteKnown(results)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d specs passed with stock, there were %d before.\n", file, count, len(before))
	}
	return nil
}
