package server

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// writePlugins writes the list as tables: the plugins, and below them what they report and request. A table without
// rows is left out. Times are relative to that of the list.
func writePlugins(w io.Writer, l debugv1alpha1.PluginList) error {
	t := newTable(w, "NAME", "TYPE", "SOCKET", "ENABLED", "DRY RUN", "REGISTERED", "FAILURES", "SUSPENDED", "LATENCY",
		"ANSWERED", "THRESHOLD", "CANDIDATES", "PODS", "TOP PODS", "ASKED", "WAITING", "IN FLIGHT", "EVICTED", "DROPPED",
		"LAST ERROR")
	for i := range l.Plugins {
		t.row(pluginCells(&l.Plugins[i], l.Time)...)
	}
	if err := t.end(l.Omitted); err != nil {
		return err
	}
	for _, section := range []struct {
		title   string
		columns []string
		rows    [][]string
	}{
		{
			"Thresholds that are met",
			[]string{"PLUGIN", "SCOPE", "TYPE", "OBSERVED", "OPERATOR", "TARGET", "GRACE", "MET FOR", "MISSING", "CONFIRMED"},
			thresholdRows(l.Plugins),
		},
		{
			"Requested evictions",
			[]string{"NAMESPACE", "NAME", "UID", "PLUGINS", "SCOPE", "FORCED", "GRACE", "FOR", "KILLER", "STATE", "REASON"},
			requestRows(l.Requests, l.Time),
		},
		{
			"Soft eviction notices",
			[]string{"NAMESPACE", "NAME", "UID", "PLUGINS", "SCOPE", "GRACE", "FOR", "REASON"},
			noticeRows(l.Notices, l.Time),
		},
		{
			"Conditions", []string{"TARGET", "NAME", "STATUS", "EFFECTS", "PLUGINS", "LAST MET"},
			conditionRows(l.Conditions, l.Time),
		},
		{"Refused conditions", []string{"PLUGIN", "NAME", "REASON"}, refusedConditionRows(l.Plugins)},
		{
			"Reporter plugins",
			[]string{"NAME", "SOCKET", "ENABLED", "ACTIVE", "REGISTERED", "FAILURES", "SUSPENDED", "LATENCY", "STREAM",
				"ANSWERED", "UNCONFIRMED FOR", "RESTORED", "LAST ERROR"},
			reporterRows(l.Reporters, l.Time),
		},
		{"Refused answers and fields", []string{"PLUGIN", "KIND", "FIELD", "REASON"}, refusedReportRows(l.Reporters)},
		{
			"Reported objects",
			[]string{"KIND", "PUBLISHED", "FIELDS", "CONFLICTS", "WRITES", "WRITTEN", "PENDING FOR", "OVERDUE", "LAST ERROR"},
			objectRows(l.Objects, l.Time),
		},
		{"Reported fields", []string{"KIND", "PATH", "BYTES", "PLUGINS"}, reportedFieldRows(l.Objects)},
		{"Conflicting reports", []string{"KIND", "PATH", "USED", "IGNORED"}, conflictRows(l.Objects)},
		{"Refused registrations", []string{"WHEN", "TYPE", "NAME", "SOCKET", "REASON"}, refusedRows(l.Refused, l.Time)},
	} {
		if err := writeSection(w, section.title, section.columns, section.rows); err != nil {
			return err
		}
	}
	return nil
}

func writeSection(w io.Writer, title string, columns []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := fmt.Fprintf(w, "\n%s:\n", title); err != nil {
		return err
	}
	t := newTable(w, columns...)
	for _, cells := range rows {
		t.row(cells...)
	}
	return t.end(0)
}

func pluginCells(p *debugv1alpha1.Plugin, now time.Time) []string {
	socket := plain(p.Socket)
	if p.InTree {
		socket = "in tree"
	}
	h := &p.Health
	cells := []string{
		plain(p.Name), plain(p.Type), socket, strconv.FormatBool(p.Enabled), strconv.FormatBool(p.DryRun),
		ago(p.Registered, now), strconv.Itoa(h.Failures), suspended(h, now), seconds(h.LatencySeconds),
	}
	if a := p.LastAnswer; a != nil {
		cells = append(cells, ago(a.Time, now), a.ThresholdType, strconv.Itoa(a.Candidates), strconv.Itoa(a.Pods),
			strconv.Itoa(a.TopPods))
	} else {
		cells = append(cells, make([]string, 5)...)
	}
	return append(cells, strconv.Itoa(p.Pods.Asked), strconv.Itoa(p.Pods.Waiting), strconv.Itoa(p.Pods.InFlight),
		strconv.FormatInt(p.Pods.Evicted, 10), dropped(p.Pods.Dropped), lastError(h, now))
}

// suspended returns how long calls are suspended, empty if they are not.
func suspended(h *debugv1alpha1.PluginHealth, now time.Time) string {
	if h.SuspendedUntil.IsZero() {
		return ""
	}
	return h.SuspendedUntil.Sub(now).Round(time.Second).String()
}

func lastError(h *debugv1alpha1.PluginHealth, now time.Time) string {
	if h.LastError == "" || h.LastErrorTime.IsZero() {
		return plain(h.LastError)
	}
	return ago(h.LastErrorTime, now) + ": " + plain(h.LastError)
}

// dropped lists how often pods were dropped for each reason, in the order of reasons.
func dropped(counts map[string]int64) string {
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		list = append(list, fmt.Sprintf("%s=%d", plain(reason), counts[reason]))
	}
	return strings.Join(list, ",")
}

func thresholdRows(plugins []debugv1alpha1.Plugin) (rows [][]string) {
	for i := range plugins {
		for _, t := range plugins[i].Thresholds {
			rows = append(rows, []string{
				plain(plugins[i].Name), plain(t.Scope), t.Type, number(t.Observed), t.Operator, number(t.Target),
				seconds(t.GraceSeconds), seconds(t.MetSeconds), strconv.Itoa(t.Missing), strconv.FormatBool(t.Confirmed),
			})
		}
	}
	return rows
}

func requestRows(requests []debugv1alpha1.PluginRequest, now time.Time) (rows [][]string) {
	for i := range requests {
		r, grace := &requests[i], ""
		if r.GraceSeconds != nil {
			grace = seconds(float64(*r.GraceSeconds))
		}
		rows = append(rows, []string{
			plain(r.Namespace), plain(r.Name), plain(string(r.UID)), names(r.Plugins), plain(r.Scope),
			strconv.FormatBool(r.Forced), grace, age(r.Since, now), r.Killer, r.State, plain(r.Reason),
		})
	}
	return rows
}

func noticeRows(notices []debugv1alpha1.PluginNotice, now time.Time) (rows [][]string) {
	for i := range notices {
		n := &notices[i]
		rows = append(rows, []string{
			plain(n.Namespace), plain(n.Name), plain(string(n.UID)), names(n.Plugins), plain(n.Scope),
			seconds(float64(n.GraceSeconds)), age(n.Since, now), plain(n.Reason),
		})
	}
	return rows
}

func conditionRows(conditions []debugv1alpha1.PluginCondition, now time.Time) (rows [][]string) {
	for i := range conditions {
		c, status := &conditions[i], "False"
		if c.True {
			status = "True"
		}
		rows = append(rows, []string{
			c.Target, plain(c.Name), status, strings.Join(c.Effects, ","), names(c.Plugins), ago(c.LastMet, now),
		})
	}
	return rows
}

func refusedConditionRows(plugins []debugv1alpha1.Plugin) (rows [][]string) {
	for i := range plugins {
		for _, c := range plugins[i].RefusedConditions {
			rows = append(rows, []string{plain(plugins[i].Name), plain(c.Name), plain(c.Reason)})
		}
	}
	return rows
}

func refusedRows(refused []debugv1alpha1.RefusedRegistration, now time.Time) (rows [][]string) {
	for _, r := range refused {
		rows = append(rows, []string{ago(r.Time, now), plain(r.Type), plain(r.Name), plain(r.Socket), plain(r.Reason)})
	}
	return rows
}

// names joins the names of plugins.
func names(plugins []string) string {
	list := make([]string, 0, len(plugins))
	for _, p := range plugins {
		list = append(list, plain(p))
	}
	return strings.Join(list, ",")
}

// ago returns how long ago t was, empty if it is not set.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return age(t, now) + " ago"
}

// seconds formats a number of seconds to milliseconds. Plugins may send more than a Duration can be.
func seconds(s float64) string {
	if s >= math.MaxInt64/float64(time.Second) {
		return number(debugv1alpha1.Number(s)) + "s"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func number(n debugv1alpha1.Number) string { return strconv.FormatFloat(float64(n), 'g', 6, 64) }
