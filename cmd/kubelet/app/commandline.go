package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// commandLine is a parsed command line. Config holds defaults and flags, no files.
type commandLine struct {
	args    []string
	flagSet *pflag.FlagSet
	flags   *options.KubeletFlags
	config  *kubeletconfig.KubeletConfiguration
}

// parseCommandLine parses flags. Flags of libraries are parsed into variables of the libraries, so it may be called
// once.
func parseCommandLine(args []string) (*commandLine, error) {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, fmt.Errorf("default configuration: %w", err)
	}
	line := &commandLine{args: args, flagSet: newFlagSet(), flags: options.NewKubeletFlags(), config: config}
	line.flags.AddFlags(line.flagSet)
	options.AddKubeletConfigFlags(line.flagSet, config)
	options.AddGlobalFlags(line.flagSet)
	line.flagSet.BoolP("help", "h", false, "help for "+server.ComponentKubelet)
	if err := line.flagSet.Parse(args); err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	if rest := line.flagSet.Args(); len(rest) > 0 {
		return nil, fmt.Errorf("command line: unknown command %q; this program takes flags only", rest[0])
	}
	return line, nil
}

func newFlagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet(server.ComponentKubelet, pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	fs.SortFlags = true
	fs.Usage = func() {}
	return fs
}

func (l *commandLine) help() bool { return l.flagSet.Lookup("help").Value.String() == "true" }

func (l *commandLine) version() string { return l.flagSet.Lookup("version").Value.String() }

// applyFlags applies the flags to a configuration that was read from files, so that flags take precedence (Kubernetes
// issue 56171). It merges feature gates by name. Flags that are not part of the configuration were parsed before, and
// some would accumulate: here they are parsed without effect.
func (l *commandLine) applyFlags(config *kubeletconfig.KubeletConfiguration) error {
	fs := newFlagSet()
	fs.SetOutput(io.Discard) // deprecation warnings have been printed the first time
	globals := newFlagSet()
	options.AddGlobalFlags(globals)
	globals.BoolP("help", "h", false, "")
	globals.VisitAll(func(f *pflag.Flag) {
		fs.VarPF(cliflag.NoOp{}, f.Name, f.Shorthand, f.Usage).NoOptDefVal = f.NoOptDefVal
	})
	options.NewKubeletFlags().AddFlags(fs)
	options.AddKubeletConfigFlags(fs, config)

	fromFiles := config.FeatureGates
	if err := fs.Parse(l.args); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	for gate, enabled := range fromFiles {
		if _, set := config.FeatureGates[gate]; !set {
			config.FeatureGates[gate] = enabled
		}
	}
	return nil
}

const description = `
kubelet (Plimsoll) is the node agent of Kubernetes: it runs the pods that are bound to its node, probes them,
reports their status to the API server, and evicts pods when the node runs out of a resource.

Pods come from the API server (--kubeconfig) and, as static pods, from a directory or a URL; without --kubeconfig
the agent runs static pods only. Settings come from --config, --config-dir and flags, which take precedence.`

func printHelp(w io.Writer, fs *pflag.FlagSet) error {
	_, err := fmt.Fprintf(w, "%s\n\nUsage:\n  kubelet [flags]\n\nFlags:\n%s", strings.TrimSpace(description),
		fs.FlagUsagesWrapped(2))
	return err
}
