package eviction

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// Sink receives each round after its decision was carried out, and each result of a decision after its round.
//
// All calls of one sink are made by one goroutine, which begins with the first entry, in the order of events; ctx
// carries the logger and is not cancelled before the last call. A sink should return at once. While it blocks, up to
// 256 entries are queued and further ones are dropped; if it panics, the entry is lost. Neither delays decisions, kills
// or other sinks.
type Sink interface {
	// Name is a label of metrics and a key in log lines.
	Name() string
	Round(ctx context.Context, r *Round)
	Result(ctx context.Context, r *Result)
}

// roundFilter is implemented by sinks that do nothing for most rounds, so that their goroutines are not woken up for
// these. The goroutine that decides calls NeedsRound before it queues a round: it must not block, and whatever it keeps
// of r.State it must copy.
type roundFilter interface {
	NeedsRound(r *Round) bool
}

// OnConditionTrue returns a sink that calls f when a node condition has become True.
func OnConditionTrue(name string, f func()) Sink { return roundSink{name, (*Round).ConditionBegan, f} }

// OnRelief returns a sink that calls f when pods that wait may be admitted: a hard threshold is no longer met, or a
// node condition has ended.
func OnRelief(name string, f func()) Sink { return roundSink{name, (*Round).Relieved, f} }

// roundSink calls a function for each round that matches.
type roundSink struct {
	name    string
	matches func(*Round) bool
	call    func()
}

func (s roundSink) Name() string                    { return s.name }
func (s roundSink) NeedsRound(r *Round) bool        { return s.matches(r) }
func (s roundSink) Round(context.Context, *Round)   { s.call() }
func (s roundSink) Result(context.Context, *Result) {}

// sinkQueue is the number of entries that may be queued for a sink.
const sinkQueue = 256

// sinks delivers rounds and results to all sinks.
type sinks struct {
	workers []*sinkWorker
	// interested are the workers that need the round that is delivered.
	interested []*sinkWorker
	stop       chan struct{}
	running    sync.WaitGroup

	mu sync.Mutex
	// held begins with the first hold that is not over. All holds and entries since then follow it.
	held []heldEntry
}

// heldEntry is an entry for some sinks, or the beginning of a hold.
type heldEntry struct {
	to    []*sinkWorker
	entry sinkEntry
	hold  *hold
}

// hold keeps what follows it from the sinks until it is over.
type hold struct{ over bool }

// heldEntries is the greatest number of entries that are held, so that they fit into the queue of each sink.
const heldEntries = sinkQueue / 2

func newSinks(list ...Sink) *sinks {
	s := &sinks{stop: make(chan struct{})}
	for _, sink := range list {
		filter, _ := sink.(roundFilter)
		s.workers = append(s.workers, &sinkWorker{sink: sink, filter: filter, entries: make(chan sinkEntry, sinkQueue)})
	}
	return s
}

// start begins to deliver queued entries to the sinks. A sink that gets none has no goroutine.
func (s *sinks) start(ctx context.Context) {
	ctx = klog.NewContext(context.WithoutCancel(ctx), klog.FromContext(ctx))
	for _, w := range s.workers {
		w.begins(func() { s.running.Go(func() { w.run(ctx, s.stop) }) })
	}
}

// close ends the goroutines of the sinks after they have handled all queued entries. The returned channel is closed
// then.
func (s *sinks) close() <-chan struct{} {
	for _, w := range s.workers {
		w.begins(nil)
	}
	close(s.stop)
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	return done
}

// round and result return at once. They may be called before start and after close. The state before the decision is
// large, and no sink needs most rounds: it is copied only for a round that one needs.
func (s *sinks) round(ctx context.Context, r *Round, before *policy.State) {
	r.State = before
	s.interested = s.interested[:0]
	for _, w := range s.workers {
		if w.filter == nil || w.filter.NeedsRound(r) {
			s.interested = append(s.interested, w)
		}
	}
	if r.State = nil; len(s.interested) > 0 {
		r.State = new(*before)
	}
	s.deliver(ctx, s.interested, sinkEntry{round: r})
}

func (s *sinks) result(ctx context.Context, r *Result) {
	s.deliver(ctx, s.workers, sinkEntry{result: r})
}

// deliver offers an entry to sinks, after those that are held.
func (s *sinks) deliver(ctx context.Context, to []*sinkWorker, e sinkEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 {
		offer(ctx, to, e)
		return
	}
	s.held = append(s.held, heldEntry{to: slices.Clone(to), entry: e})
	if len(s.held) > heldEntries {
		s.deliverHeld(ctx, func(*hold) bool { return true })
	}
}

// hold keeps entries from the sinks until release is called. What sinks do, such as writing logs, takes CPUs from what
// must be done before.
func (s *sinks) hold() *hold {
	h := &hold{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, heldEntry{hold: h})
	return h
}

// release ends a hold. What follows another hold that is not over waits for that.
func (s *sinks) release(ctx context.Context, h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.over = true
	s.deliverHeld(ctx, func(h *hold) bool { return h.over })
}

// deliverHeld delivers what is held, up to the first hold that is not over. The caller holds the lock.
func (s *sinks) deliverHeld(ctx context.Context, over func(*hold) bool) {
	for i, e := range s.held {
		if e.hold == nil {
			offer(ctx, e.to, e.entry)
		} else if !over(e.hold) {
			s.held = s.held[i:]
			return
		}
	}
	s.held = nil
}

func offer(ctx context.Context, to []*sinkWorker, e sinkEntry) {
	for _, w := range to {
		w.offer(ctx, e)
	}
}

// sinkEntry is a round or a result.
type sinkEntry struct {
	round  *Round
	result *Result
}

// sinkWorker is a sink with its queue.
type sinkWorker struct {
	sink Sink
	// filter is nil if the sink receives every round.
	filter  roundFilter
	entries chan sinkEntry

	mu sync.Mutex
	// losing: the last entry was dropped.
	losing bool
	// begin starts the goroutine. It is nil before start, once it was called, and after close.
	begin func()
}

// begins sets what starts the goroutine with the next entry, or now if there is one.
func (w *sinkWorker) begins(begin func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begin = begin
	if len(w.entries) > 0 {
		w.beginLocked()
	}
}

func (w *sinkWorker) beginLocked() {
	if w.begin != nil {
		w.begin()
		w.begin = nil
	}
}

// offer queues an entry, or drops it if the queue is full. It logs the first of successive entries that are dropped.
func (w *sinkWorker) offer(ctx context.Context, e sinkEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.entries <- e:
		w.losing = false
		w.beginLocked()
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

// drain handles the entries that are queued.
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
