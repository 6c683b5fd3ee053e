package server

import (
	"fmt"
	"io"
	"strconv"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

var podColumns = []string{
	"NAMESPACE", "NAME", "UID", "STATIC", "PHASE", "FOR", "DOING", "WAITS FOR", "CAUSE", "GRACE", "DEADLINE IN",
	"HASTENED", "WAITERS", "STUCK", "LAST ERROR",
}

// writePodWorkers writes the workers as a table. Times are relative to that of the list.
func writePodWorkers(w io.Writer, l debugv1alpha1.PodWorkerList) error {
	t := newTable(w, podColumns...)
	for _, v := range l.Workers {
		t.row(append(workerCells(v, l.Time), errorCell(v.LastError, l.Time))...)
	}
	return t.end(l.Omitted)
}

func workerCells(v debugv1alpha1.PodWorker, now time.Time) []string {
	cells := []string{
		plain(v.Namespace), plain(v.Name), plain(string(v.UID)), strconv.FormatBool(v.Static), v.Phase,
		age(phaseBegan(v.Since), now), v.Operation, v.WaitsFor,
	}
	t := v.Termination
	if t == nil {
		return append(cells, make([]string, 6)...)
	}
	deadline := ""
	if !t.Deadline.IsZero() {
		deadline = t.Deadline.Sub(now).Round(time.Second).String()
	}
	return append(cells, t.Cause, (time.Duration(t.GraceSeconds) * time.Second).String(), deadline,
		strconv.FormatBool(t.Hastened), strconv.Itoa(t.Waiters), strconv.FormatBool(t.Stuck))
}

// phaseBegan returns the time at which the present phase began, which is the last one that is set.
func phaseBegan(s debugv1alpha1.PodWorkerTimes) time.Time {
	for _, t := range []time.Time{s.Finished, s.Terminated, s.Requested, s.Started} {
		if !t.IsZero() {
			return t
		}
	}
	return s.Seen
}

func errorCell(e *debugv1alpha1.OperationError, now time.Time) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s ago, %d in a row: %s", age(e.Time, now), e.Failures, plain(e.Message))
}
