package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// unpreparer hands the devices of a pod's resource claims back to their drivers.
type unpreparer interface {
	UnprepareDynamicResources(ctx context.Context, pod *v1.Pod) error
}

// unprepareResources gives dynamic resources back.
type unprepareResources struct{ claims unpreparer }

func (unprepareResources) Name() string { return "unprepare dynamic resources" }

func (s unprepareResources) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	return proceed, s.claims.UnprepareDynamicResources(ctx, p.Pod)
}
