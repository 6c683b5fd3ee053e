package app

import (
	"fmt"
	"io"
	"sync"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// registerGates makes the logging feature gates known, which must be before the first flag is defined: their names are
// in the help text. It also keeps OpenTelemetry's unused metrics from growing for ever (opentelemetry-go-contrib issue
// 5190).
var registerGates = sync.OnceValue(func() error {
	otel.SetMeterProvider(noop.NewMeterProvider())
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		return fmt.Errorf("register logging feature gates: %w", err)
	}
	return nil
})

// commandLine is a parsed command line. Config holds defaults and flags, no files.
type commandLine struct {
	args    []string
	flagSet *pflag.FlagSet
	flags   *options.KubeletFlags
	config  *kubeletconfig.KubeletConfiguration
}

// parseCommandLine reads flags. Flags of libraries are parsed into the libraries, and so only once.
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

// overrule writes the flags over a configuration that came from files, so that flags win. Feature gates are merged by
// name. Flags that are not part of the configuration have been parsed before, and some add up when they are parsed
// twice: they are parsed into nothing here. Kubernetes issue 56171 tells why flags must win.
func (l *commandLine) overrule(config *kubeletconfig.KubeletConfiguration) error {
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
