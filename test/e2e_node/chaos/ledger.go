package chaos

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Outage is a time in which a process of the node did not run.
type Outage struct {
	// Kubelet is true if the kubelet did not run, Runtime if containerd did not.
	Kubelet, Runtime bool
	From, To         time.Time
}

// OutageMargin is how long before containerd was killed, or after it ran again, a container may end whose start or end
// containerd missed, on a node that is not slow.
const OutageMargin = 15 * time.Second

// Widened returns the outages, each with some time before and after it.
func Widened(outages []Outage, margin time.Duration) []Outage {
	wide := slices.Clone(outages)
	for i := range wide {
		wide[i].From, wide[i].To = wide[i].From.Add(-margin), wide[i].To.Add(margin)
	}
	return wide
}

// MayExit is true if a kubelet that was started at from may have exited at that time: the runtime was killed while it
// started, which takes it that long, and no kubelet starts without a runtime.
func MayExit(outages []Outage, from, exited time.Time, startup time.Duration) bool {
	started := from.Add(startup)
	return !exited.After(started) && slices.ContainsFunc(outages, func(outage Outage) bool {
		return outage.Runtime && outage.To.After(from) && outage.From.Before(started)
	})
}

// Asked is what the API server accepted about one pod.
type Asked struct {
	Name    string
	UID     string
	Shape   Shape
	Created time.Time
	// Deleted is true if the API server accepted its deletion or eviction.
	Deleted bool
	// Forced is true if it may be removed from the API while its containers run.
	Forced bool
	// Filled is true if it was requested to fill its emptyDir.
	Filled bool
}

// Manifest is what the folder of static pods holds of one name.
type Manifest struct {
	Name     string
	Revision int
	Present  bool
}

// Ledger records the requests that were accepted. It is safe for concurrent use.
type Ledger struct {
	mu        sync.Mutex
	pods      map[string]*Asked
	latest    map[string]*Asked
	manifests map[string]Manifest
	outages   []Outage
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{pods: map[string]*Asked{}, latest: map[string]*Asked{}, manifests: map[string]Manifest{}}
}

// Created records a pod that the API server accepted.
func (l *Ledger) Created(asked Asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[asked.UID], l.latest[asked.Name] = &asked, &asked
}

// Named returns the pod that was created last under that name.
func (l *Ledger) Named(name string) (Asked, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked := l.latest[name]; asked != nil {
		return *asked, true
	}
	return Asked{}, false
}

// MarkForced records, before the request, that the pod may be removed from the API at once.
func (l *Ledger) MarkForced(uid string) { l.change(uid, func(a *Asked) { a.Forced = true }) }

// MarkDeleted records that a deletion or eviction was accepted.
func (l *Ledger) MarkDeleted(uid string) { l.change(uid, func(a *Asked) { a.Deleted = true }) }

// MarkFilled records that the pod was requested to fill its emptyDir.
func (l *Ledger) MarkFilled(uid string) { l.change(uid, func(a *Asked) { a.Filled = true }) }

func (l *Ledger) change(uid string, how func(*Asked)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked := l.pods[uid]; asked != nil {
		how(asked)
	}
}

// IsForced returns whether the pod may be removed from the API while its containers run.
func (l *Ledger) IsForced(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked := l.pods[uid]
	return asked != nil && asked.Forced
}

// Wrote records a manifest, or its removal.
func (l *Ledger) Wrote(manifest Manifest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.manifests[manifest.Name] = manifest
}

// Outage records a time without a process of the node.
func (l *Ledger) Outage(outage Outage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages = append(l.outages, outage)
}

// Outages returns all of them, in the order of their beginning.
func (l *Ledger) Outages() []Outage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.outages), func(a, b Outage) int { return a.From.Compare(b.From) })
}

// Expected returns all pods that were ever created, by name and then by UID.
func (l *Ledger) Expected() []Asked {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Asked
	for _, asked := range l.pods {
		all = append(all, *asked)
	}
	slices.SortFunc(all, func(a, b Asked) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.UID, b.UID)
	})
	return all
}

// Manifests returns the latest state of the manifest of each static pod, by name.
func (l *Ledger) Manifests() []Manifest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Manifest
	for _, manifest := range l.manifests {
		all = append(all, manifest)
	}
	slices.SortFunc(all, func(a, b Manifest) int { return strings.Compare(a.Name, b.Name) })
	return all
}
