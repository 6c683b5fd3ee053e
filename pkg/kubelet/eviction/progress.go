package eviction

import (
	"context"
	"sync"
	"time"
)

// WithAnswers returns a context with which RuntimeAnswered calls the function.
func WithAnswers(ctx context.Context, answered func()) context.Context {
	return context.WithValue(ctx, answersKey{}, answered)
}

// RuntimeAnswered records that the container runtime has answered a request that was made with ctx. It matters for the
// contexts that Collector.Collect gets and does nothing for others. It may be called from any goroutine.
func RuntimeAnswered(ctx context.Context) {
	if answered, ok := ctx.Value(answersKey{}).(func()); ok {
		answered()
	}
}

type answersKey struct{}

// progress records the answers of the container runtime to a collection. The goroutines of the collection write it, the
// loop reads it.
type progress struct {
	now func() time.Time

	mu sync.Mutex
	// last is the time of the last answer, or the beginning of the collection; longest is the longest time without one.
	last    time.Time
	longest time.Duration
}

func (p *progress) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.longest = now, 0
}

func (p *progress) answered() {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = max(p.longest, now.Sub(p.last))
	p.last = now
}

func (p *progress) view() (last time.Time, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.longest
}
