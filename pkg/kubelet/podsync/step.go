package podsync

import (
	"context"
	"fmt"
)

// verdict is how a phase goes on after a step that did not fail.
type verdict uint8

const (
	// proceed goes on with the next step.
	proceed verdict = iota
	// settled ends the phase without an error: there is nothing more to do this time.
	settled
)

// step is one thing a phase does for a pod. Steps of one phase run one after another in the goroutine of the pod's worker; steps
// of different pods run at the same time, so a step keeps nothing about a pod in itself. Every step may be run again for the
// same pod at any time, after a success as well as after a failure, and then only does what is still missing.
type step[P any] interface {
	// Name says what the step does; it is the context of its errors.
	Name() string
	// Run does it. What later steps need goes into pass, which belongs to this run of the phase alone. After an error no later
	// step is run, and the worker begins the phase anew with its first step.
	Run(ctx context.Context, pass P) (verdict, error)
}

// run does the steps in order until one fails or has settled the phase.
func run[P any](ctx context.Context, steps []step[P], pass P) error {
	for _, s := range steps {
		TellProgress(ctx, s.Name())
		v, err := s.Run(ctx, pass)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
		if v == settled {
			return nil
		}
	}
	return nil
}

// when returns the step if the condition holds, and else one that does nothing. It keeps a list of steps readable in which some
// depend on a feature gate or a setting.
func when[P any](condition bool, s step[P]) step[P] {
	if condition {
		return s
	}
	return skipped[P]{s}
}

// skipped stands for a step that is switched off.
type skipped[P any] struct{ step[P] }

func (skipped[P]) Run(context.Context, P) (verdict, error) { return proceed, nil }
