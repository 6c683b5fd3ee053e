package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sandbox stands for the name of a container in the run of a sandbox.
const Sandbox = "(sandbox)"

// Run is one life of a container or sandbox, as the runtime shows it.
type Run struct {
	ID        string
	UID       string
	Pod       string
	Container string
	// Static is whether the pod comes from a manifest: at most one pod of its
	// name runs at a time.
	Static  bool
	Running bool
	Started time.Time
	// Finished is zero if the runtime does not say.
	Finished time.Time
	// Seen is the beginning of the last look that found it running.
	Seen time.Time
}

// end is when it ran last, for certain.
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
	return fmt.Sprintf("%s of %s (%s) %.12s from %s to %s", r.Container, r.Pod, r.UID, r.ID, stamp(r.Started), stamp(r.end()))
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// Runs collects what the runtime shows over time. It is for one goroutine.
type Runs struct {
	byID  map[string]Run
	wrong []string
}

// NewRuns has seen nothing yet.
func NewRuns() *Runs { return &Runs{byID: map[string]Run{}} }

// See takes in one container or sandbox of a look at the runtime that began at
// the time given. Over tells what the API had said of the pod before that.
func (r *Runs) See(run Run, began time.Time, over func(uid string) (Over, bool)) {
	known, again := r.byID[run.ID]
	if again && run.Finished.IsZero() {
		run.Finished = known.Finished
	}
	run.Seen = known.Seen
	if run.Running {
		run.Seen = began
	}
	r.byID[run.ID] = run
	if what, ok := over(run.UID); ok && run.Running && run.Container != Sandbox && what.Since.Before(began) {
		r.wrong = append(r.wrong, fmt.Sprintf("%v runs at %s, and the pod was %s at %s", run, stamp(began), what.Why, stamp(what.Since)))
	}
}

// Get is what is known of a container or sandbox.
func (r *Runs) Get(id string) (Run, bool) {
	run, ok := r.byID[id]
	return run, ok
}

// Count is how many were seen.
func (r *Runs) Count() int { return len(r.byID) }

// Wrong is everything that ran when it should not have.
func (r *Runs) Wrong() []string {
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

// overlaps are the pairs that ran at the same time; of a static pod, those of
// different pods.
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
