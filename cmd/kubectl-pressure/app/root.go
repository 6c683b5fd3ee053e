// Package app is the program kubectl-pressure.
//
//	root      flags, commands, exit codes
//	client    requests to nodes, through the API server or directly
//	stock     what can be known of a node with a stock kubelet
//	status    status: how close nodes are to their thresholds
//	why       why: what became of a pod, and why
//	explain   why in sentences
//	rank      rank: who would be evicted next
//	watch     watch, trace: records as they are made, or saved to a file
//	plan      plan: what would have been evicted with other settings
//	rules     plan: the settings
//	svg       plan: the picture
//	output    table, wide, json, yaml, jsonpath
//	text      amounts, times and names for people
//
// What nodes send is data: names and texts of it are shown as text, whatever characters they have.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
)

// Streams are the standard streams.
type Streams = genericiooptions.IOStreams

// Exit codes.
const (
	// ExitError: the command has failed.
	ExitError = 1
	// ExitPressure: with --exit-code, a hard threshold of a node is met.
	ExitPressure = 2
	// ExitNotFound: no node has a record of the pod.
	ExitNotFound = 3
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	error
}

// Run runs a command and returns the exit code of the process.
func Run(ctx context.Context, args []string, streams Streams) int {
	command := NewCommand(streams) //nolint:contextcheck // Commands get the context when they are executed.
	command.SetArgs(args)
	return exitCode(command.ExecuteContext(ctx), streams.ErrOut)
}

// exitCode writes an error and returns its exit code.
func exitCode(err error, w io.Writer) int {
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(w, "error:", plainLines(text))
	}
	if exit := (exitError{}); errors.As(err, &exit) {
		return exit.code
	}
	return ExitError
}

// options are what all commands share.
type options struct {
	Streams
	config *genericclioptions.ConfigFlags
	direct directOptions
	output string
	// connect is replaced in tests.
	connect func(*options) (*cluster, error)
}

// NewCommand returns the command with its subcommands.
func NewCommand(streams Streams) *cobra.Command {
	o := &options{Streams: streams, config: genericclioptions.NewConfigFlags(true), connect: connect}
	return o.command()
}

func (o *options) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "kubectl-pressure",
		Short: "Why pods were evicted, and how close nodes are to their eviction thresholds",
		Long: `Why pods were evicted, how close nodes are to their eviction thresholds, and what other thresholds would do.

It asks nodes through the API server. That needs the right to nodes/proxy, which includes running commands in every pod
of the node. With --direct it asks the port of the node, with a short-lived token of a ServiceAccount that may
read nodes/pods and nothing else (config/rbac/pressure-reader.yaml); a node never gets your own credentials.

Exit codes: 0, 1 for an error, 2 with status --exit-code if a hard threshold is met, 3 if no record of a pod is found.`,
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pressure"},
	}
	c.SetIn(o.In)
	c.SetOut(o.Out)
	c.SetErr(o.ErrOut)
	o.config.AddFlags(c.PersistentFlags())
	o.direct.addFlags(c.PersistentFlags())
	c.AddCommand(o.statusCommand(), o.whyCommand(), o.rankCommand(), o.watchCommand(), o.traceCommand(), o.planCommand())
	return c
}

// jsonpathFormat begins an output format that continues with a template.
const jsonpathFormat = "jsonpath="

// allFormats are the output formats of commands that print one value.
var allFormats = []string{"table", "wide", "json", "yaml", jsonpathFormat}

// addOutputFlag adds the flag --output, which is checked before the command asks anything.
func (o *options) addOutputFlag(c *cobra.Command, formats []string) {
	list := strings.Join(formats, ", ")
	if slices.Contains(formats, jsonpathFormat) {
		list += "TEMPLATE"
	}
	c.Flags().StringVarP(&o.output, "output", "o", "table", "Output format: "+list+".")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats,
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	c.PreRunE = func(*cobra.Command, []string) error {
		isThis := func(f string) bool {
			return o.output == f || (f == jsonpathFormat && strings.HasPrefix(o.output, f))
		}
		if !slices.ContainsFunc(formats, isThis) {
			return fmt.Errorf("--output %q: must be one of %s", o.output, list)
		}
		if template, ok := strings.CutPrefix(o.output, jsonpathFormat); ok {
			_, err := parsePath(template)
			return err
		}
		return nil
	}
}

// namespace returns the namespace of pods.
func (o *options) namespace() (string, error) {
	name, _, err := o.config.ToRawKubeConfigLoader().Namespace()
	return name, err
}

// completeNodes completes names of nodes.
func (o *options) completeNodes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := o.connect(o)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	nodes, err := cluster.nodes(c.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// cluster is the API server and its nodes.
type cluster struct {
	kubernetes.Interface
	// ask requests a page of a node.
	ask asker
}

// asker requests a page below /debug/pressure of a node.
type asker interface {
	// open returns the body of the response. An error that the node does not have the page is errNoPage.
	open(ctx context.Context, node *nodeInfo, page string, parameters map[string]string) (io.ReadCloser, error)
}
