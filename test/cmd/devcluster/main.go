// Command devcluster runs a cluster of one real node on this machine, with the
// kubelet of this repository. The Makefile calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// dev is one call of the command.
type dev struct {
	root string
	// kubelet is the path of a kubelet that replaces the repository's.
	kubelet string
	// cgroupRoot is the parent of the pods' cgroup, "" for the root.
	cgroupRoot string
	// only is the name of the cluster to stop, "" for all.
	only   string
	layout cluster.Layout
}

var commands = map[string]struct {
	help string
	run  func(dev, context.Context) error
}{
	"run":   {"build what is missing, start the cluster, or bring its kubelet up to date", dev.runCluster},
	"demo":  {"put the node under memory pressure and tell what happens", dev.runDemo},
	"stop":  {"stop the cluster and remove every trace of it", dev.stopCluster},
	"build": {"build all parts and images, start nothing", dev.buildAll},
	"check": {"say whether this machine can run the cluster", dev.check},
}

func main() {
	kubelet := flag.String("kubelet", os.Getenv("PLIMSOLL_KUBELET"),
		"run this kubelet `binary` instead of building the repository's")
	cgroupRoot := flag.String("cgroup-root", os.Getenv("PLIMSOLL_CGROUP_ROOT"),
		"keep the pods in this control `group`, to run beside another kubelet")
	only := flag.String("only", "", "stop only the cluster of this `name`: "+strings.Join(cluster.Names, " or "))
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() != 1 || commands[flag.Arg(0)].run == nil {
		usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runCommand(ctx, flag.Arg(0), dev{kubelet: *kubelet, cgroupRoot: *cgroupRoot, only: *only}); err != nil {
		fmt.Fprintf(os.Stderr, "\ndevcluster %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, name string, d dev) error {
	root, err := cluster.FindRoot(".")
	if err != nil {
		return err
	}
	d.root, d.layout = root, cluster.NewLayout(root, cluster.DevName)
	return commands[name].run(d, ctx)
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: devcluster [flags] command\n\ncommands:\n")
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

// check never starts anything.
func (d dev) check(context.Context) error {
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	fmt.Println("This machine can run a node.")
	return nil
}

func (d dev) buildAll(ctx context.Context) error {
	builder := build.Builder{Root: d.root, Out: d.layout.Bin, Log: os.Stdout}
	return builder.All(ctx, d.layout.Images, d.kubelet == "")
}

func (d dev) config() cluster.Config {
	kubelet := d.kubelet
	if kubelet == "" {
		kubelet = d.layout.Program("kubelet")
	}
	return cluster.Config{Layout: d.layout, Kubelet: kubelet, CgroupRoot: d.cgroupRoot, Log: os.Stdout}
}

func (d dev) stopCluster(ctx context.Context) error {
	names := cluster.Names
	if d.only != "" {
		names = []string{d.only}
	}
	for _, name := range names {
		if err := cluster.Clean(ctx, cluster.NewLayout(d.root, name), os.Stdout); err != nil {
			return err
		}
	}
	fmt.Printf("Nothing of a cluster is left. Logs stay in %s.\n", strings.TrimSuffix(d.layout.Logs, "/"))
	return nil
}
