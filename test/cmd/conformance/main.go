// Command conformance runs the upstream node suite, unmodified, against the
// kubelet of this repository and compares the outcome with the stock kubelet's.
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

func main() {
	suite := conformance.Suite{Log: os.Stdout}
	flag.StringVar(&suite.Kubelet, "kubelet", os.Getenv("PLIMSOLL_KUBELET"), "test this kubelet `binary` instead of the repository's")
	flag.StringVar(&suite.Focus, "focus", `\[NodeConformance\]`, "run only specs that match this `regexp`")
	flag.StringVar(&suite.Skip, "skip", `\[Serial\]|\[Flaky\]|\[Slow\]`, "leave out specs that match this `regexp`")
	flag.IntVar(&suite.Procs, "procs", 6, "how many specs run at the same time")
	least := flag.Int("least", 100, "`percent` of the specs that pass with stock that must pass")
	anew := flag.Bool("anew", false, "forget the results of earlier runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, suite, *least, *anew); err != nil {
		fmt.Fprintf(os.Stderr, "\nconformance: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, suite conformance.Suite, least int, anew bool) error {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return err
	}
	suite.Root = root
	suite.Dir = filepath.Join(root, cluster.OutputDir, "conformance")
	if suite.Kubelet == "" {
		suite.Kubelet = cluster.NewLayout(root, cluster.TestName).Program("kubelet")
	}
	if anew {
		if err := os.RemoveAll(filepath.Join(suite.Dir, "results.json")); err != nil {
			return fmt.Errorf("forget results: %w", err)
		}
	}
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	if err := suite.Prepare(ctx); err != nil {
		return err
	}
	results, err := suite.Run(ctx)
	if err != nil {
		return err
	}
	return judge(results, least)
}

// judge compares with what passes with stock.
func judge(results conformance.Results, least int) error {
	want := conformance.StockPasses()
	missing := results.Missing(want)
	for _, name := range missing {
		state := results[name]
		if state == "" {
			state = "not run"
		}
		fmt.Printf("%s: %s\n", state, name)
	}
	good := len(want) - len(missing)
	fmt.Printf("\n%d of the %d specs that pass with the stock kubelet passed (%.1f %%).\n", good, len(want), 100*float64(good)/float64(len(want)))
	if good*100 < least*len(want) {
		return fmt.Errorf("less than %d %%", least)
	}
	return nil
}
