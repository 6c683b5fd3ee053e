package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Config is what a Publisher works with. All fields are required.
type Config struct {
	// Client should send each request once: see NewClient.
	Client dynamic.Interface
	// NodeName is the name of the Node, and of the object.
	NodeName types.NodeName
	// NodeUID returns the UID of the Node, false as long as it is not known. The object is not created before. It is
	// called by the goroutine of Run, and must be fast.
	NodeUID func() (types.UID, bool)
	// Options are those at the start. They must be those of the configuration: when the object is not to be published,
	// what an earlier run of the agent has published is removed.
	Options Options
	// Record is the path of the file that has the taints of the object that are the agent's. Its directory is created.
	Record   string
	Clock    clock.WithTicker
	Recorder Recorder
	// Node is what events are about.
	Node *v1.ObjectReference
}

// Recorder records events.
type Recorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFmt string, args ...any)
}

// Options are the settings of a Publisher that may change.
type Options struct {
	// Enabled: the object is published. When it is not, what the agent has published is removed, and the object stays.
	Enabled bool
	// Sustained is the time from one write to the next when there are more than five. It must be positive.
	Sustained time.Duration
	// Labels are labels of the object beside those that plugins report. They win.
	Labels map[string]string
}

func (o Options) equal(p Options) bool {
	return o.Enabled == p.Enabled && o.Sustained == p.Sustained && maps.Equal(o.Labels, p.Labels)
}

// Object is what is reported of the CustomNodeResource.
type Object struct {
	// Fields are those of a merge.Result. Fields of other kinds are ignored. They must not be modified. If there are none,
	// what the agent has published is removed, and the object stays.
	Fields []merge.Field
	// Unconfirmed: some of the fields are of answers of an earlier run of the agent, which their plugins have not
	// confirmed, or such answers may be missing. Then what the agent has published stays, except for what Confirmed
	// replaces, the fields of all other answers: see reporter.Merged.
	Unconfirmed bool
	Confirmed   []merge.Field
	// Answered is when the newest answer of a plugin was given that is in the fields; zero if that is not known.
	Answered time.Time
}

// ObjectOf returns what a merge has of the CustomNodeResource.
func ObjectOf(m *reporter.Merged) Object {
	o := Object{Fields: m.Result.Fields, Answered: m.Since}
	if m.Confirmed != nil {
		o.Unconfirmed, o.Confirmed = true, m.Confirmed.Fields
	}
	return o
}

// State is what a Publisher does, for people.
type State struct {
	Enabled bool
	// Given: Set was called. Nothing is published before.
	Given bool
	// UID and ResourceVersion are those of the object as it was seen last. Absent: the API server has none.
	UID             types.UID
	ResourceVersion string
	Absent          bool
	// Pending: the object differs from what is reported, since PendingSince; an attempt that succeeds resets that.
	// OldestUnpublished is when the oldest answer was given that is not published, zero if there is none.
	Pending           bool
	OldestUnpublished time.Time
	PendingSince      time.Time
	// LastWrite is when the API server last accepted a change, Writes how many it has accepted.
	LastWrite time.Time
	Writes    int64
	// LastError is that of the last attempt, empty if it succeeded. Failures is the number of failed attempts in a row.
	LastError   string
	LastErrorAt time.Time
	Failures    int
	// NoKind: the API server does not have the kind. Forbidden: it gives the agent no right. Both are tried again each
	// five minutes.
	NoKind, Forbidden bool
	// NextAttempt is when the object is written next, zero if nothing is to be written.
	NextAttempt time.Time
	// Taints are the taints of the object that are recorded as the agent's, as key:effect:qosLevel.
	Taints []string
}

// Publisher publishes the CustomNodeResource. It is safe for concurrent use.
type Publisher struct {
	config Config
	client dynamic.ResourceInterface
	wake   chan struct{}

	mu      sync.Mutex
	options Options
	given   bool
	content *content
	// unpublished is when the oldest answer was given that is not published, zero if there is none.
	unpublished time.Time
	// later is the same for what was given after the last call of want.
	later    time.Time
	observed []observation
	state    State

	// The goroutine of Run alone uses what follows.

	pace   pace
	record record
	// recordLoaded: the record is that of the file. Before that, no taint is changed.
	recordLoaded bool
	// known: live is the object as it was seen last, nil if there was none.
	known bool
	live  *unstructured.Unstructured
	// applied is what was applied last of each part, and what the object had afterwards.
	applied  map[string]applied
	failures int
	// notBefore is the earliest time of the next attempt, after an error.
	notBefore time.Time
	// refusedContent is the content that the API server has refused, or that could not be recorded on disk; nil if none.
	// Other content may be tried from retryOther on.
	refusedContent *content
	retryOther     time.Time
	// reported is the problem that an event was last sent for.
	reported problem
	// stopWatch ends the watch, nil if there is none.
	stopWatch func()
}

// New returns a publisher. It accesses neither the disk nor the API server before Run.
func New(config Config) (*Publisher, error) {
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"Client", config.Client == nil}, {"NodeName", config.NodeName == ""}, {"NodeUID", config.NodeUID == nil},
		{"Record", config.Record == ""}, {"Clock", config.Clock == nil}, {"Recorder", config.Recorder == nil},
		{"Node", config.Node == nil},
	} {
		if field.missing {
			return nil, fmt.Errorf("publisher of the CustomNodeResource: %s is missing", field.name)
		}
	}
	if config.Options.Sustained <= 0 {
		return nil, errors.New("publisher of the CustomNodeResource: sustained must be positive")
	}
	return &Publisher{
		config: config, client: config.Client.Resource(Resource), wake: make(chan struct{}, 1),
		options: config.Options, content: &content{}, applied: map[string]applied{},
		pace: pace{sustained: config.Options.Sustained},
	}, nil
}

// Resource is the resource of CustomNodeResources.
var Resource = node.GroupVersionKind.GroupVersion().WithResource("customnoderesources")

// Set replaces what is published. It does not block; what was not published yet is not published any more. It must not
// be called before the answers of an earlier run of the agent are restored, since what is not in the object given is
// removed.
func (p *Publisher) Set(object Object) {
	c := contentOf(&object)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given && p.content.equal(c) {
		return
	}
	p.content, p.given = c, true
	if p.unpublished.IsZero() {
		p.unpublished = object.Answered
	}
	if p.later.IsZero() {
		p.later = object.Answered
	}
	p.notify()
}

// SetOptions replaces the options. It does not block.
func (p *Publisher) SetOptions(o Options) {
	if o.Sustained <= 0 {
		o.Sustained = time.Second
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !o.equal(p.options) {
		if o.Enabled != p.options.Enabled {
			p.unpublished, p.later = time.Time{}, time.Time{} // answers of before are not late
		}
		p.options = Options{o.Enabled, o.Sustained, maps.Clone(o.Labels)}
		p.notify()
	}
}

// State returns the state of now.
func (p *Publisher) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.Enabled, s.Given, s.OldestUnpublished = p.options.Enabled, p.given, p.unpublished
	s.Taints = slices.Clone(s.Taints)
	return s
}

// notify wakes the goroutine of Run.
func (p *Publisher) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wanted is what should be published, at one time.
type wanted struct {
	options Options
	// reported is what is reported, content what the object should have: see hold.
	reported, content *content
	// active: the object should have what is reported. Otherwise it should have nothing of the agent.
	active bool
	// known is false as long as nothing was given, and the options do not turn the publisher off.
	known bool
}

func (p *Publisher) want() wanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := wanted{options: p.options, content: p.content, known: p.given || !p.options.Enabled}
	p.later = time.Time{}
	w.active = p.given && p.options.Enabled && !p.content.empty()
	if p.options.Enabled && p.content.confirmed != nil && p.content.empty() {
		w.known = false // answers of an earlier run may be missing, and what it has published stays
	}
	if !w.active {
		w.content = &content{}
	}
	w.reported = w.content
	return w
}

// Run publishes until ctx ends. It must be called once. When it ends, the object stays as it is.
func (p *Publisher) Run(ctx context.Context) {
	defer p.follow(ctx, false)
	options := p.want().options
	for ctx.Err() == nil {
		w := p.want()
		if !w.options.equal(options) {
			// The new configuration may solve the problem: it is tried at once.
			options, p.failures, p.notBefore, p.reported = w.options, 0, time.Time{}, noProblem
		}
		p.observe()
		p.pace.setSustained(w.options.Sustained, p.now())
		at, pending := p.next(ctx, &w)
		p.publishState(at, pending)
		if pending && !p.now().Before(at) {
			p.attempt(ctx, &w)
			continue
		}
		p.sleep(ctx, at, pending)
	}
}

func (p *Publisher) now() time.Time { return p.config.Clock.Now() }

// sleep waits until the time of the next attempt, if there is one, or until something changes.
func (p *Publisher) sleep(ctx context.Context, at time.Time, pending bool) {
	var due <-chan time.Time
	if pending {
		timer := p.config.Clock.NewTimer(at.Sub(p.now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-p.wake:
	}
}

// next returns when the next attempt is, false if there is nothing to do.
func (p *Publisher) next(ctx context.Context, w *wanted) (at time.Time, pending bool) {
	now := p.now()
	if at = p.due(w); !p.pace.changed.IsZero() && now.Before(at) {
		return at, true // compared when it is time
	}
	if !p.pending(ctx, w) {
		p.pace.unchanged()
		p.settled()
		return time.Time{}, false
	}
	p.pace.change(now)
	return p.due(w), true
}

// due returns when changes may be written.
func (p *Publisher) due(w *wanted) time.Time {
	at, allowed := p.pace.due(p.known && p.live == nil), p.notBefore
	if p.refusedContent != nil && p.refusedContent != w.reported && p.retryOther.Before(allowed) {
		allowed = p.retryOther
	}
	if allowed.After(at) {
		return allowed
	}
	return at
}

// pending reports whether the object may differ from what should be published.
func (p *Publisher) pending(ctx context.Context, w *wanted) bool {
	if !w.known {
		return false
	}
	if !w.active && !p.publishedBefore(ctx) {
		return false
	}
	return !p.known || len(p.differences(w)) > 0
}

// hold makes the object keep what is not confirmed.
func (p *Publisher) hold(w *wanted) {
	if p.live != nil {
		w.content = w.reported.held(p.live, p.record.of(p.live.GetUID()))
	}
}

// settled is called when the object is as it should be.
func (p *Publisher) settled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unpublished = p.later
}

// published is called after an attempt that has succeeded.
func (p *Publisher) published(w *wanted, begun *writes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.unpublished.IsZero() && w.active && begun.accepted > 0 {
		reporter.ObserveWritten(objectLabel, p.now().Sub(p.unpublished))
	}
	p.unpublished, p.state.PendingSince = p.later, time.Time{}
}

// publishState updates the state that others read.
func (p *Publisher) publishState(at time.Time, pending bool) {
	var taints []string
	for _, t := range p.record.Taints {
		taints = append(taints, t.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	s.UID, s.ResourceVersion, s.Absent = "", "", p.known && p.live == nil
	if p.live != nil {
		s.UID, s.ResourceVersion = p.live.GetUID(), p.live.GetResourceVersion()
	}
	switch {
	case !pending:
		s.PendingSince = time.Time{}
	case s.PendingSince.IsZero():
		s.PendingSince = p.now()
	}
	s.Pending, s.NextAttempt, s.Failures, s.Taints = pending, at, p.failures, taints
	s.NoKind, s.Forbidden = p.reported == noKind, p.reported == forbidden
}

// equal reports whether two contents are the same.
func (c *content) equal(d *content) bool {
	return maps.EqualFunc(c.fields, d.fields, bytes.Equal) && (c.confirmed == nil) == (d.confirmed == nil) &&
		maps.EqualFunc(c.confirmed, d.confirmed, bytes.Equal)
}

// random returns a number from 0 to 1.
func random() float64 { return rand.Float64() } //nolint:gosec // spreads requests over time, and decides nothing else
