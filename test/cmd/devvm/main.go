// Command devvm runs a virtual machine as a node of a cluster of its own, with the kubelet of this repository under
// systemd. The Makefile calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/vm"
)

// dev is one call of the command.
type dev struct {
	layout cluster.Layout
	// stock starts the node with the stock kubelet.
	stock bool
	// cgroups is how the node's control groups are laid out.
	cgroups vm.Cgroups
	// tests selects node tests, and again also those that have a result.
	tests *regexp.Regexp
	again bool
}

var commands = map[string]struct {
	help string
	run  func(dev, context.Context) error
}{
	"run": {"build what is missing, boot a machine anew, and leave it running", dev.runNode},
	"build": {"build all parts and the image of the machine, start nothing", func(d dev, ctx context.Context) error {
		_, err := d.build(ctx)
		return err
	}},
	"test":  {"run the node tests (test/e2e_node) in a machine, as far as they have no result", dev.test},
	"table": {"print the results of the node tests", dev.table},
	"keep": {"add the results of the node tests to the repository's, and write docs/node-tests.md",
		func(d dev, _ context.Context) error { return vm.Keep(d.layout) }},
	"stop": {"stop the machine and remove every trace of it but its image", dev.stop},
}

func main() {
	stock := flag.Bool("stock", false, "start the node with the stock kubelet")
	layout := flag.String("cgroups", os.Getenv("PLIMSOLL_VM_CGROUPS"),
		"`layout` of control groups: systemd (the default), cgroupfs, or cgroup-root")
	tests := flag.String("run", ".", "`regexp` that selects node tests")
	again := flag.Bool("again", false, "also run node tests that have passed already")
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() != 1 || commands[flag.Arg(0)].run == nil {
		usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := dev{stock: *stock, again: *again}
	if err := command.run(ctx, flag.Arg(0), *layout, *tests); err != nil {
		fmt.Fprintf(os.Stderr, "\ndevvm %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// run runs the command called name for that layout of control groups and those tests.
func (d dev) run(ctx context.Context, name, layout, tests string) error {
	var err error
	if d.cgroups, err = vm.ParseCgroups(layout); err != nil {
		return err
	}
	if d.tests, err = regexp.Compile(tests); err != nil {
		return fmt.Errorf("select tests: %w", err)
	}
	root, err := cluster.FindRoot(".")
	if err != nil {
		return err
	}
	d.layout = vm.NewLayout(root)
	return commands[name].run(d, ctx)
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: devvm [flags] command\n\ncommands:\n")
	var names []string
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(os.Stderr, "  %-6s %s\n", name, commands[name].help)
	}
	fmt.Fprintln(os.Stderr, "\nflags:")
	flag.PrintDefaults()
}

func (d dev) build(ctx context.Context) (vm.Image, error) {
	return vm.Build(ctx, d.layout, os.Stdout)
}

func (d dev) stop(ctx context.Context) error {
	if err := vm.Clean(ctx, d.layout, os.Stdout); err != nil {
		return err
	}
	fmt.Printf("Nothing of a virtual machine is left but its image. Logs stay in %s.\n", d.layout.Logs)
	return nil
}

// runNode ends when the node is Ready; the machine goes on.
func (d dev) runNode(ctx context.Context) error {
	image, err := d.build(ctx)
	if err != nil {
		return err
	}
	node, err := vm.Start(ctx, vm.Config{
		Layout: d.layout, Stock: d.stock, Cgroups: d.cgroups, Log: os.Stdout, Console: os.Stdout,
	}, image)
	if err != nil {
		return err
	}
	tools, err := node.WriteTools()
	if err != nil {
		return err
	}
	fmt.Printf(hints, tools, filepath.Join(d.layout.Logs, "console.log"))
	return nil
}

// test runs the tests that have no result, and prints the table.
func (d dev) test(ctx context.Context) error {
	image, err := d.build(ctx)
	if err != nil {
		return err
	}
	if err := vm.BuildSuite(ctx, d.layout, os.Stdout); err != nil {
		return err
	}
	results, err := vm.ReadResults(d.layout, d.cgroups, d.stock)
	if err != nil {
		return err
	}
	tests, err := vm.NodeTests(d.layout.Root, d.tests)
	if err != nil {
		return err
	}
	open := tests
	if !d.again {
		open = results.Open(tests)
	}
	if len(open) > 0 {
		var tree string
		if tree, err = treeOfToday(ctx, d.layout.Root); err != nil {
			return err
		}
		add := func(result vm.TestResult) error {
			result.Tree = tree
			return results.Add(result)
		}
		config := vm.Config{Layout: d.layout, Stock: d.stock, Cgroups: d.cgroups, Log: os.Stdout}
		err = vm.RunSuite(ctx, config, image, vm.Suite{Tests: open, Result: add, Parallel: 2})
	}
	if bad := results.WriteTable(os.Stdout, tests); bad > 0 {
		err = errors.Join(err, fmt.Errorf("%d tests have not passed", bad))
	}
	return err
}

// treeOfToday is the commit of the tree at root, with a + if files have changed since, and the day.
func treeOfToday(ctx context.Context, root string) (string, error) {
	git := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--abbrev=7", "--exclude=*", "--dirty=+")
	commit, err := git.Output()
	if err != nil {
		return "", fmt.Errorf("commit of the tree: %w", err)
	}
	return strings.TrimSpace(string(commit)) + ", " + time.Now().UTC().Format(time.DateOnly), nil
}

func (d dev) table(context.Context) error {
	results, err := vm.ReadResults(d.layout, d.cgroups, d.stock)
	if err != nil {
		return err
	}
	tests, err := vm.NodeTests(d.layout.Root, d.tests)
	if err != nil {
		return err
	}
	results.WriteTable(os.Stdout, tests)
	return nil
}

const hints = `
The node runs in a virtual machine, which goes on. Try next:
  %[1]s/kubectl get nodes -o wide          # from the network of the machine
  %[1]s/node                               # a shell in the machine
  %[1]s/node systemctl status kubelet
  %[1]s/node journalctl -f -u kubelet
  PATH=%[1]s:$PATH                         # both without their folder
  make stop                                      # removes every trace but the image

The console is in %[2]s
`
