package server

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

var podColumns = []string{
	"NAMESPACE", "NAME", "UID", "STATIC", "PHASE", "FOR", "DOING", "WAITS FOR", "CAUSE", "GRACE", "DEADLINE IN",
	"HASTENED", "WAITERS", "STUCK", "LAST ERROR",
}

// writeTable writes the workers for people. Times are relative to that of the listing.
func writeTable(w io.Writer, l podworkers.Listing) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells []string) {
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row(podColumns)
	for _, v := range l.Workers {
		row(append(workerCells(v, l.Time), errorCell(v.LastError, l.Time)))
	}
	if l.Omitted > 0 {
		fmt.Fprintf(table, "and %d more\n", l.Omitted)
	}
	return table.Flush()
}

func workerCells(v podworkers.View, now time.Time) []string {
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

// phaseBegan is when the present phase did: the last time that is set.
func phaseBegan(s podworkers.Since) time.Time {
	for _, t := range []time.Time{s.Finished, s.Terminated, s.Requested, s.Started} {
		if !t.IsZero() {
			return t
		}
	}
	return s.Seen
}

func errorCell(e *podworkers.ErrorView, now time.Time) string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s ago, %d in a row: %s", age(e.Time, now), e.Failures, plain(e.Message))
}

func age(t, now time.Time) string { return now.Sub(t).Round(time.Second).String() }

// plain keeps what a client or a runtime has named from breaking the table or the terminal.
func plain(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
