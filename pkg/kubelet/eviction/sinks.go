package eviction

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"k8s.io/klog/v2"
)

// Sink receives each round after its decision was carried out, and each result of a decision after it. The calls come
// from one goroutine of the sink's own, in the order in which things happened; ctx carries the logger and is not
// cancelled before the last call. A sink should return at once. One that blocks loses what comes meanwhile, beyond a
// queue of 256 entries; one that panics loses the entry. Neither delays decisions, kills or other sinks.
type Sink interface {
	// Name is a label of metrics and a key of log lines.
	Name() string
	Round(ctx context.Context, r *Round)
	Result(ctx context.Context, r *Result)
}

// OnConditionTrue is a sink that calls f when a node condition has become True.
func OnConditionTrue(name string, f func()) Sink { return roundSink{name, (*Round).Began, f} }

// OnRelief is a sink that calls f when a hard threshold is met no longer or a node condition has ended, so that pods
// that wait may be admitted.
func OnRelief(name string, f func()) Sink { return roundSink{name, (*Round).Relieved, f} }

// roundSink calls a function for each round that matches.
type roundSink struct {
	name    string
	matches func(*Round) bool
	call    func()
}

func (s roundSink) Name() string                    { return s.name }
func (s roundSink) Result(context.Context, *Result) {}
func (s roundSink) Round(_ context.Context, r *Round) {
	if s.matches(r) {
		s.call()
	}
}

// sinkQueue is how many entries may wait for a sink.
const sinkQueue = 256

// sinks hands rounds and results to all sinks.
type sinks struct {
	workers []*sinkWorker
	stop    chan struct{}
	running sync.WaitGroup
}

func newSinks(list ...Sink) *sinks {
	s := &sinks{stop: make(chan struct{})}
	for _, sink := range list {
		s.workers = append(s.workers, &sinkWorker{sink: sink, entries: make(chan sinkEntry, sinkQueue)})
	}
	return s
}

// start begins to hand on what is delivered.
func (s *sinks) start(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, w := range s.workers {
		s.running.Go(func() { w.run(ctx, s.stop) })
	}
}

// close lets the sinks handle what waits for them. The channel that it returns is closed when they have.
func (s *sinks) close() <-chan struct{} {
	close(s.stop)
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	return done
}

// round and result return at once. They may be called before start and after close.
func (s *sinks) round(ctx context.Context, r *Round)   { s.deliver(ctx, sinkEntry{round: r}) }
func (s *sinks) result(ctx context.Context, r *Result) { s.deliver(ctx, sinkEntry{result: r}) }

func (s *sinks) deliver(ctx context.Context, e sinkEntry) {
	for _, w := range s.workers {
		w.offer(ctx, e)
	}
}

// sinkEntry is a round or a result.
type sinkEntry struct {
	round  *Round
	result *Result
}

// sinkWorker is one sink with what waits for it.
type sinkWorker struct {
	sink    Sink
	entries chan sinkEntry

	mu sync.Mutex
	// losing: the last entry found no place.
	losing bool
}

// offer queues an entry, or drops it when the queue is full. It reports the first of several that are dropped.
func (w *sinkWorker) offer(ctx context.Context, e sinkEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.entries <- e:
		w.losing = false
	default:
		sinkFailures.WithLabelValues(w.sink.Name(), "full").Inc()
		if !w.losing {
			klog.FromContext(ctx).Error(nil, "Eviction manager: sink is too slow, entries are dropped", "sink", w.sink.Name())
		}
		w.losing = true
	}
}

func (w *sinkWorker) run(ctx context.Context, stop <-chan struct{}) {
	for {
		select {
		case e := <-w.entries:
			w.handle(ctx, e)
		case <-stop:
			w.drain(ctx)
			return
		}
	}
}

// drain handles what waits.
func (w *sinkWorker) drain(ctx context.Context) {
	for {
		select {
		case e := <-w.entries:
			w.handle(ctx, e)
		default:
			return
		}
	}
}

func (w *sinkWorker) handle(ctx context.Context, e sinkEntry) {
	defer func() {
		if p := recover(); p != nil {
			sinkFailures.WithLabelValues(w.sink.Name(), "panic").Inc()
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", p), "Eviction manager: sink panicked", "sink", w.sink.Name(),
				"stack", string(debug.Stack()))
		}
	}()
	if e.round != nil {
		w.sink.Round(ctx, e.round)
	}
	if e.result != nil {
		w.sink.Result(ctx, e.result)
	}
}
