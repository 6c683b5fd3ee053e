package podsync

import "context"

type progressKey struct{}

// WithProgress returns a context under which each step of a phase says its name to tell before it begins, for those who look at a pod
// worker from outside. tell must not block.
func WithProgress(ctx context.Context, tell func(step string)) context.Context {
	return context.WithValue(ctx, progressKey{}, tell)
}

// TellProgress says which step begins, if somebody wants to know.
func TellProgress(ctx context.Context, step string) {
	if tell, ok := ctx.Value(progressKey{}).(func(string)); ok {
		tell(step)
	}
}
