package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sandbox is the name of the container in the Run of a sandbox.
const Sandbox = "(sandbox)"

// Run is one instance of a container or sandbox, as the runtime shows it.
type Run struct {
	ID        string
	UID       string
	Pod       string
	Container string
	// Static is true for a static pod: at most one of its name runs at a time.
	Static  bool
	Running bool
	Started time.Time
	// Finished is zero if the runtime does not report it.
	Finished time.Time
	// Seen is when the last observation began that found it running.
	Seen time.Time
}

// end returns the last time at which it certainly ran.
func (r Run) end() time.Time {
	if !r.Finished.IsZero() {
		return r.Finished
	}
	return r.Seen
}

func (r Run) overlaps(other Run) bool {
	return r.Started.Before(other.end()) && other.Started.Before(r.end())
}

func (r Run) String() string {
	return fmt.Sprintf("%s of %s (%s) %.12s from %s to %s",
		r.Container, r.Pod, r.UID, r.ID, stamp(r.Started), stamp(r.end()))
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Runs collects what the runtime shows over time. It is not safe for concurrent use.
type Runs struct {
	byID  map[string]Run
	wrong []string
}

// NewRuns returns a Runs without observations.
func NewRuns() *Runs { return &Runs{byID: map[string]Run{}} }

// See adds one container or sandbox of an observation of the runtime that began at the given time. Function ended
// returns what the API had shown of the pod before that.
func (r *Runs) See(run Run, began time.Time, ended func(uid string) (Ended, bool)) {
	known, again := r.byID[run.ID]
	if again && run.Finished.IsZero() {
		run.Finished = known.Finished
	}
	run.Seen = known.Seen
	if run.Running {
		run.Seen = began
	}
	r.byID[run.ID] = run
	if what, ok := ended(run.UID); ok && run.Running && run.Container != Sandbox && what.Since.Before(began) {
		r.wrong = append(r.wrong,
			fmt.Sprintf("%v runs at %s, and the pod was %s at %s", run, stamp(began), what.Why, stamp(what.Since)))
	}
}

// Get returns the last observation of a container or sandbox.
func (r *Runs) Get(id string) (Run, bool) {
	run, ok := r.byID[id]
	return run, ok
}

// Count returns the number of containers and sandboxes that were seen.
func (r *Runs) Count() int { return len(r.byID) }

// Violations returns every container and sandbox that ran when it must not.
func (r *Runs) Violations() []string {
	wrong := slices.Compact(slices.Sorted(slices.Values(r.wrong)))
	groups := map[string][]Run{}
	for _, run := range r.byID {
		if run.Seen.IsZero() && run.Finished.IsZero() {
			continue
		}
		same := run.UID + "/" + run.Container
		groups[same] = append(groups[same], run)
		if run.Static {
			groups["static pod "+run.Pod] = append(groups["static pod "+run.Pod], run)
		}
	}
	for key, runs := range groups {
		wrong = append(wrong, overlaps(runs, strings.HasPrefix(key, "static pod "))...)
	}
	slices.Sort(wrong)
	return wrong
}

// overlaps returns the pairs that ran at the same time. With ofPods these are only pairs of different pods.
func overlaps(runs []Run, ofPods bool) []string {
	var found []string
	slices.SortFunc(runs, func(a, b Run) int { return strings.Compare(a.ID, b.ID) })
	for i, a := range runs {
		for _, b := range runs[i+1:] {
			if a.overlaps(b) && (!ofPods || a.UID != b.UID) {
				found = append(found, fmt.Sprintf("ran at once: %v and %v", a, b))
			}
		}
	}
	return found
}
