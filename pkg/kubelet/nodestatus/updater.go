package nodestatus

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Updater registers the Node and updates its status. Its methods may be called concurrently.
type Updater struct {
	*View
	cfg Config
	// reported are the setters for a Node that is published, unreported those for a Node that is not: they send no events.
	reported, unreported setters
	// pressureChanged has a token if pressure conditions are to be published.
	pressureChanged chan struct{}
	restore         sync.Once
	restored        atomic.Bool

	// syncing is held during the computation of a complete status. It protects report.
	syncing sync.Mutex
	report  reportState

	// writing is held from the computation of a patch until the response. It protects own. It is locked after syncing, and
	// never held during a query of the runtime.
	writing sync.Mutex
	own     ownWrite

	// fields are those of reporter plugins.
	fields reportedFields

	// cidr is held during an update of the pod CIDR.
	cidr sync.Mutex
}

// reportState is the state of the heartbeat between two rounds.
type reportState struct {
	registered bool
	// last is when the whole status was last accepted by the API server.
	last time.Time
	// delay is added to the report frequency for the next report, so that nodes that changed at the same time report at
	// different times.
	delay time.Duration
	// random returns a value in [0, 1).
	random func() float64
}

// New returns an Updater and completes the View of cfg. It starts no goroutine. All parts whose state is reported must
// exist.
func New(cfg Config) *Updater {
	u := &Updater{View: cfg.View, cfg: cfg, pressureChanged: make(chan struct{}, 1)}
	u.fields.changed, u.fields.record.save = make(chan struct{}, 1), u.reportedFile().Save
	u.report.random = rand.Float64
	u.reported = u.newSetters(u.events())
	u.unreported = u.newSetters(noEvents())
	u.complete(func(ctx context.Context) (*v1.Node, error) { return u.newNode(ctx, u.unreported), nil })
	return u
}

// cannotReport returns true in standalone mode.
func (u *Updater) cannotReport() bool { return u.cfg.Client == nil || u.cfg.Heartbeat == nil }
