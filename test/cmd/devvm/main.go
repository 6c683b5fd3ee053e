// Command devvm runs a virtual machine as a node of a cluster of its own, with the kubelet of this repository under
// systemd. The Makefile calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

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
	"stop": {"stop the machine and remove every trace of it but its image", dev.stop},
}

func main() {
	stock := flag.Bool("stock", false, "start the node with the stock kubelet")
	layout := flag.String("cgroups", os.Getenv("PLIMSOLL_VM_CGROUPS"),
		"`layout` of control groups: systemd (the default), cgroupfs, or cgroup-root")
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() != 1 || commands[flag.Arg(0)].run == nil {
		usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runCommand(ctx, flag.Arg(0), *stock, *layout); err != nil {
		fmt.Fprintf(os.Stderr, "\ndevvm %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, name string, stock bool, layout string) error {
	cgroups, err := vm.ParseCgroups(layout)
	if err != nil {
		return err
	}
	root, err := cluster.FindRoot(".")
	if err != nil {
		return err
	}
	return commands[name].run(dev{layout: vm.NewLayout(root), stock: stock, cgroups: cgroups}, ctx)
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
