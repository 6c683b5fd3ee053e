package server

import (
	"strconv"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

func reporterRows(reporters []debugv1alpha1.Reporter, now time.Time) (rows [][]string) {
	for i := range reporters {
		r, socket, unconfirmed := &reporters[i], plain(reporters[i].Socket), ""
		if r.InTree {
			socket = "in tree"
		}
		if !r.UnconfirmedSince.IsZero() {
			unconfirmed = age(r.UnconfirmedSince, now)
		}
		stream := "closed"
		if r.Streaming {
			stream = "open"
		}
		rows = append(rows, []string{
			plain(r.Name), socket, strconv.FormatBool(r.Enabled), strconv.FormatBool(r.Active), ago(r.Registered, now),
			strconv.Itoa(r.Health.Failures), suspended(&r.Health, now), seconds(r.Health.LatencySeconds), stream,
			ago(r.Answered, now), unconfirmed, strconv.FormatBool(r.Restored), lastError(&r.Health, now),
		})
	}
	return rows
}

func refusedReportRows(reporters []debugv1alpha1.Reporter) (rows [][]string) {
	for i := range reporters {
		r := &reporters[i]
		for _, reason := range r.RefusedAnswers {
			rows = append(rows, []string{plain(r.Name), "all", "", plain(reason)})
		}
		for _, f := range r.RefusedFields {
			rows = append(rows, []string{plain(r.Name), plain(f.Kind), plain(f.Field), plain(f.Reason)})
		}
	}
	return rows
}

func objectRows(objects []debugv1alpha1.ReportedObject, now time.Time) (rows [][]string) {
	for i := range objects {
		o, pending := &objects[i], ""
		if !o.PendingSince.IsZero() {
			pending = age(o.PendingSince, now)
		}
		rows = append(rows, []string{
			o.Kind, strconv.FormatBool(o.Published), strconv.Itoa(len(o.Fields)),
			strconv.Itoa(len(o.Conflicts) + o.MoreConflicts), strconv.FormatInt(o.Writes, 10), ago(o.LastWrite, now), pending,
			strconv.FormatBool(o.Overdue), plain(o.LastError),
		})
	}
	return rows
}

func reportedFieldRows(objects []debugv1alpha1.ReportedObject) (rows [][]string) {
	for i := range objects {
		for _, f := range objects[i].Fields {
			rows = append(rows, []string{objects[i].Kind, plain(f.Path), strconv.Itoa(f.Bytes), names(f.Plugins)})
		}
	}
	return rows
}

func conflictRows(objects []debugv1alpha1.ReportedObject) (rows [][]string) {
	for i := range objects {
		for _, c := range objects[i].Conflicts {
			rows = append(rows, []string{objects[i].Kind, plain(c.Path), plain(c.Used), plain(c.Ignored)})
		}
	}
	return rows
}
