package podsync

import (
	"context"
	"fmt"
)

// stepResult determines how a phase continues after a step without an error.
type stepResult uint8

const (
	// nextStep continues with the next step.
	nextStep stepResult = iota
	// endPhase ends the phase without an error.
	endPhase
)

// step is one operation of a phase. The steps of one phase are executed one after another in the goroutine of the pod's
// worker; those of different pods are executed concurrently, so a step has no state of a pod. Each step may be executed
// again for the same pod at any time, also after a success, and then does only what is missing.
type step[P any] interface {
	// Name describes the step; it is the context of its errors.
	Name() string
	// Run executes the step. Its results for later steps go into pass, which exists for one execution of the phase. After
	// an error no later step is executed, and the worker begins the phase again with the first step.
	Run(ctx context.Context, pass P) (stepResult, error)
}

// run executes the steps in order until one fails or ends the phase.
func run[P any](ctx context.Context, steps []step[P], pass P) error {
	for _, s := range steps {
		ReportProgress(ctx, s.Name())
		v, err := s.Run(ctx, pass)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
		if v == endPhase {
			return nil
		}
	}
	return nil
}

// when returns the step if the condition holds, else a step without effect. It keeps lists of steps readable if some
// depend on a feature gate or a setting.
func when[P any](condition bool, s step[P]) step[P] {
	if condition {
		return s
	}
	return skipped[P]{s}
}

// skipped replaces a step that is disabled.
type skipped[P any] struct{ step[P] }

func (skipped[P]) Run(context.Context, P) (stepResult, error) { return nextStep, nil }

// Names of the steps that may block, as ReportProgress passes them.
const (
	StepRunContainers      = "run containers"
	StepAwaitVolumes       = "await volumes"
	StepKillContainers     = "kill containers"
	StepVerifyStopped      = "verify that containers have stopped"
	StepUnprepareResources = "unprepare dynamic resources"
	StepAwaitUnmount       = "await unmount"
	StepAwaitVolumePaths   = "await removal of volume paths"
	StepDestroyCgroup      = "destroy cgroup"
)

type progressKey struct{}

// WithProgress returns a context for the methods of Syncer. Each step calls report with its name before it begins.
// report must not block.
func WithProgress(ctx context.Context, report func(step string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// ReportProgress calls the function that was passed to WithProgress, if there is one.
func ReportProgress(ctx context.Context, step string) {
	if report, ok := ctx.Value(progressKey{}).(func(string)); ok {
		report(step)
	}
}
