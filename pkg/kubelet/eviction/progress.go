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

// RuntimeAnswered notes that the container runtime has answered a request that was made with ctx. It matters for the
// contexts of collections of figures (Summary, Parts, PodFigures, DiskInfo, PodImages) and does nothing for others. It
// may be called from any goroutine.
func RuntimeAnswered(ctx context.Context) {
	if answered, ok := ctx.Value(answersKey{}).(func()); ok {
		answered()
	}
}

type answersKey struct{}

// progress is how a collection gets on. The collection and those who make requests for it write it, the loop reads it.
type progress struct {
	now func() time.Time

	mu sync.Mutex
	// last is when there was an answer, at first when the collection began; longest the longest time without any.
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
