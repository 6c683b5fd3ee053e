package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// Agent is the agent that the program runs. Run blocks until ctx ends, and returns an error if the agent fails.
type Agent interface {
	Run(ctx context.Context) error
}

// Program is one invocation of the command.
type Program struct {
	// Args are the command line without the program's name.
	Args           []string
	Stdout, Stderr io.Writer
	// New creates the agent; it must not start anything.
	New func(context.Context, kubelet.Dependencies) (Agent, error)
}

// Run executes the command line and returns the exit code: 0 after success or a signal, 1 otherwise. Feature gates and
// logging are global, so it may be called once in a process.
func (p Program) Run(ctx context.Context) int {
	defer logs.FlushLogs()
	err := p.run(ctx)
	var failed *runtimeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		klog.FromContext(ctx).Error(failed.err, "Kubelet failed")
	default:
		fmt.Fprintf(p.Stderr, "Error: %v\n", err)
	}
	return 1
}

// runtimeError is an error of an agent with valid settings. It is logged, because logging is set up by then; errors of
// settings are written to standard error.
type runtimeError struct{ err error }

func (e *runtimeError) Error() string { return e.err.Error() }

func (p Program) run(ctx context.Context) error {
	// Metrics of OpenTelemetry that nothing reads would grow without bound (opentelemetry-go-contrib issue 5190).
	otel.SetMeterProvider(noop.NewMeterProvider())
	gates, err := processGates()
	if err != nil {
		return err
	}
	line, err := parseCommandLine(p.Args)
	if err != nil {
		return err
	}
	if line.help() {
		return printHelp(p.Stdout, line.flagSet)
	}
	if printed := printVersion(p.Stdout, line.version()); printed {
		return nil
	}
	settings, err := line.settings(ctx, gates)
	if err != nil {
		return err
	}
	if err := settings.Validate(); err != nil {
		return err
	}
	if err := settings.readPressure(); err != nil {
		return fmt.Errorf("pressure configuration: %w", err)
	}
	if err := checkVersion(version.Get()); err != nil {
		return err
	}
	if err := settings.startLogging(); err != nil {
		return err
	}
	settings.logSettings(ctx)
	gates.AddMetrics()
	if err := (&process{settings: settings, newAgent: p.New}).run(ctx); err != nil {
		return &runtimeError{err}
	}
	return nil
}

// UntilSignal returns a context that SIGTERM or SIGINT ends. A second signal calls now. The returned function stops the
// handling of signals.
func UntilSignal(parent context.Context, now func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		for range 2 {
			if _, open := <-signals; !open {
				return
			}
			if ctx.Err() != nil {
				now()
				return
			}
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}
