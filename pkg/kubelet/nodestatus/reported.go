package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/reported"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// reportedSettle is how long changes are collected before the Node is written.
	reportedSettle = time.Second
	// paceCheck is the longest time until a write that waits for its pace applies a shorter Reported.Sustained.
	paceCheck = 5 * time.Second
	// noNodePeriod is the time between two attempts before there is a Node.
	noNodePeriod = time.Second
	// maxReportedTries is the maximum number of attempts without a pause; those after the first follow conflicts.
	maxReportedTries = 5
	// reportedFieldManager is that of all that is published for reporter plugins.
	reportedFieldManager = "plimsoll-reporter"

	eventReportedRefused        = "ReporterNodeFieldsRefused"
	eventReportedUnrecorded     = "ReporterNodeFieldsUnrecorded"
	eventReportedRecordRejected = "ReporterNodeRecordRejected"
)

// Reported is what reporter plugins report of the Node: labels, annotations and extended resources. An Updater writes
// them with requests of their own, so that an API server that refuses them accepts the status nevertheless.
type Reported struct {
	// Content returns what plugins report. Known is false as long as answers of an earlier run of the agent may be missing
	// in it; then everything stays on the Node as it is. If nothing is to be published it returns nothing, and known: what
	// is there is then removed. It is called by one goroutine, must be fast, and what it returns must not be modified
	// afterwards. Nil means that the Updater writes nothing for plugins; what an earlier run has written stays.
	Content func() (content ReportedContent, known bool)
	// Sustained returns the time between two writes after the first five. It is called before each write.
	Sustained func() time.Duration
	// File is the path of the record of what the agent has written (paths.Layout.ReportedNode).
	File string
	// Synchronized is called after each comparison of the Node with what plugins report, by one goroutine. It may be nil.
	Synchronized func(ReportedSync)
}

// ReportedContent is what plugins report of the Node.
type ReportedContent struct {
	merge.Node
	// Confirmed is what plugins have reported since the start of the agent; nil if that is all. The rest of Node is that
	// of an earlier run: it may be older than what the Node has, so that it is written only where it is missing, and where
	// the agent has not removed it. Nothing is removed while Confirmed is not nil: answers may be missing.
	Confirmed *merge.Node
}

// ReportedSync is the result of a comparison of the Node with what plugins report.
type ReportedSync struct {
	// Content was compared. After an Err of nil the Node has it.
	Content ReportedContent
	// Requests is the number of write requests that were sent, 0 if the Node had the content already.
	Requests int
	Err      error
	At       time.Time
}

// reportedFields is the state of an Updater for fields of plugins.
type reportedFields struct {
	changed chan struct{}
	// devices are the resources of device plugins, as of the last status that was computed.
	devices atomic.Pointer[map[string]bool]
	record  reportedRecord

	// The goroutine of RunReported alone uses what follows.

	pace reported.Pace
	// content is what was last taken for publication; nil before the first time.
	content *ReportedContent
	// told is the last problem that there was an event about, "" after success.
	told string
}

// reportedRecord is the record of fields on disk, and in memory.
type reportedRecord struct {
	// save replaces the file.
	save   func(reported.Record) error
	mu     sync.Mutex
	loaded bool
	// value is what the file has.
	value reported.Record
}

// ReportedChanged requests that what plugins report is compared with the Node within about a second. It does not block,
// and may be called by any goroutine at any time; a call before RunReported takes effect in it. It is also for a change
// of what Reported.Content returns as known, and for changes of the configuration.
func (u *Updater) ReportedChanged() {
	select {
	case u.fields.changed <- struct{}{}:
	default:
	}
}

// RunReported writes what plugins report until ctx ends: after each call of ReportedChanged, and when the Node of the
// lister differs, which is checked as often as the status is computed. It must be called once at most, beside Run, and
// not without Reported.Content.
func (u *Updater) RunReported(ctx context.Context) {
	check := time.NewTicker(max(u.cfg.Reporting.UpdateFrequency, time.Second))
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-check.C:
			if u.fields.content == nil {
				u.ReportedChanged()
			} else {
				u.synchronizeReported(ctx)
			}
		case <-u.fields.changed:
			if u.takeReported(ctx) {
				u.synchronizeReported(ctx)
			}
		}
	}
}

// takeReported takes what plugins report for publication, when changes have settled and the pace allows the write. It
// returns false if that is not known, or has not changed.
func (u *Updater) takeReported(ctx context.Context) bool {
	if !pause(ctx, reportedSettle) || !u.reportedDiffers() {
		return false
	}
	for {
		wait := u.fields.pace.Wait(time.Now(), u.cfg.Reported.Sustained())
		if wait == 0 {
			break
		}
		if !pause(ctx, min(wait, paceCheck)) {
			return false
		}
	}
	u.fields.pace.Take(time.Now(), u.cfg.Reported.Sustained())
	return u.refreshReported()
}

func (u *Updater) reportedDiffers() bool {
	content, known := u.cfg.Reported.Content()
	return known && (u.fields.content == nil || !equalContent(&content, u.fields.content))
}

// refreshReported takes what plugins report now, and returns false if that is not known.
func (u *Updater) refreshReported() bool {
	content, known := u.cfg.Reported.Content()
	if known {
		u.fields.content = &content
	}
	return known
}

func equalContent(a, b *ReportedContent) bool {
	return equalNodes(&a.Node, &b.Node) && (a.Confirmed == nil) == (b.Confirmed == nil) &&
		(a.Confirmed == nil || equalNodes(a.Confirmed, b.Confirmed))
}

func equalNodes(a, b *merge.Node) bool {
	x, errX := reported.Of(a)
	y, errY := reported.Of(b)
	return errX == nil && errY == nil && maps.Equal(x, y)
}

// input returns what is decided on, without what the Node has.
func (c *ReportedContent) input() (in reported.Input, err error) {
	if in.Reported, err = reported.Of(&c.Node); err != nil || c.Confirmed == nil {
		return in, err
	}
	confirmed, err := reported.Of(c.Confirmed)
	if err != nil {
		return in, err
	}
	in.Incomplete, in.Unconfirmed = true, map[reported.Field]bool{}
	for field, value := range in.Reported {
		if other, there := confirmed[field]; !there || other != value {
			in.Unconfirmed[field] = true
		}
	}
	return in, nil
}

// synchronizeReported compares and writes until that has succeeded once. After an error it waits, and continues with
// what plugins report then.
func (u *Updater) synchronizeReported(ctx context.Context) {
	failures := 0
	for {
		requests, err := u.writeReported(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNoNode) {
			klog.FromContext(ctx).V(4).Info("Fields of reporter plugins cannot be written to the node yet", "err", err)
			if !pause(ctx, noNodePeriod) {
				return
			}
			u.refreshReported()
			continue
		}
		if u.cfg.Reported.Synchronized != nil {
			u.cfg.Reported.Synchronized(ReportedSync{*u.fields.content, requests, err, time.Now()})
		}
		if err == nil {
			u.fields.told = ""
			return
		}
		failures++
		u.reportedFailed(ctx, err)
		if !u.pauseAfter(ctx, err, reported.BackOff(failures, err, rand.Float64())) {
			return
		}
		u.refreshReported()
	}
}

// pauseAfter waits after an error, and returns false if ctx ends first. If the API server has refused the content, or
// it cannot be recorded, other content may succeed: when it changes, the pause ends as soon as the next write is due.
func (u *Updater) pauseAfter(ctx context.Context, err error, d time.Duration) bool {
	if !refusedContent(err) && !errors.Is(err, errUnrecorded) {
		return pause(ctx, d)
	}
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-over.C:
			return true
		case <-u.fields.changed:
			if u.reportedDiffers() {
				return pause(ctx, min(d, reportedSettle+u.cfg.Reported.Sustained()))
			}
		}
	}
}

// refusedContent reports whether the same content would be refused again.
func refusedContent(err error) bool { return reported.Refused(err) || errors.Is(err, errTooMany) }

// reportedFailed reports an error: those that somebody has to solve by an event, once until they are solved.
func (u *Updater) reportedFailed(ctx context.Context, err error) {
	var problem string
	switch {
	case errors.Is(err, errUnrecorded):
		problem = eventReportedUnrecorded
	case refusedContent(err):
		problem = eventReportedRefused
	default:
		klog.FromContext(ctx).Error(err, "Failed to write fields of reporter plugins to the node, will retry")
		return
	}
	if u.fields.told == problem {
		klog.FromContext(ctx).V(2).Info("Fields of reporter plugins can still not be written to the node", "err", err)
		return
	}
	u.fields.told = problem
	klog.FromContext(ctx).Error(err, "Fields of reporter plugins cannot be written to the node")
	u.cfg.Recorder.Eventf(u.Ref(), v1.EventTypeWarning, problem,
		"Labels, annotations or extended resources of reporter plugins cannot be written to the Node: %v", err)
}

var (
	// errUnrecorded: fields were not added because the record could not be stored.
	errUnrecorded = errors.New("the record of fields of reporter plugins cannot be stored, new fields are not written")
	errTooMany    = errors.New("too many fields")
	errNoNode     = errors.New("there is no Node, or its status was not computed yet")
)

// writeReported writes the fields that the Node should have, until it has them. It returns the number of write
// requests.
func (u *Updater) writeReported(ctx context.Context) (requests int, err error) {
	in, err := u.fields.content.input()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errTooMany, err)
	}
	if err := u.loadReportedRecord(ctx); err != nil {
		return 0, err
	}
	node, err := u.Lookup(ctx)
	if err != nil || u.fields.devices.Load() == nil {
		return 0, errors.Join(errNoNode, err)
	}
	node = u.lockedNewest(ctx, node)
	for fresh := false; ; fresh = true {
		record := u.reportedRecord()
		in.Node, in.Devices = reported.OfNode(node), u.devices()
		in.Record, in.Recorded = record.Of(node.UID), record.NodeUID == node.UID
		d := reported.Decide(in)
		forgets := len(d.Forgotten) > 0 || record.NodeUID != node.UID && len(record.Fields) > 0
		switch {
		case !d.Changed() && !forgets:
			return requests, nil
		case forgets && !fresh:
			node, err = u.readReported(ctx)
		case !d.Changed():
			u.forgetReported(ctx, reported.Record{NodeUID: node.UID, Fields: d.Record})
			return requests, nil
		case requests == maxReportedTries:
			return requests, fmt.Errorf("the Node was changed by others in each of %d attempts", requests)
		default:
			requests++
			node, err = u.patchReported(ctx, node, &d)
		}
		if err != nil {
			return requests, err
		}
	}
}

// forgetReported stores a record with fewer fields. If that fails, the next comparison does it: the fields that are too
// many in the record are not on the Node.
func (u *Updater) forgetReported(ctx context.Context, record reported.Record) {
	if err := u.saveReportedRecord(record); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to record that fields of reporter plugins have gone, will retry")
	}
}

func (u *Updater) readReported(ctx context.Context) (*v1.Node, error) {
	node, err := u.cfg.Heartbeat.CoreV1().Nodes().Get(ctx, string(u.Name()), metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the Node to write fields of reporter plugins: %w", err)
	}
	return node, nil
}

// patchReported stores the record, and then patches the Node from which the decision was made. It returns the Node of
// the API server afterwards; after a conflict that is not changed.
//
// A request that the API server has rejected has written nothing, so that the record before it is stored again:
// otherwise a field that somebody else adds later would count as the agent's. After other errors the Node may have been
// changed. If the record cannot be stored, fields that are not recorded yet are not written.
func (u *Updater) patchReported(ctx context.Context, node *v1.Node, d *reported.Decision) (*v1.Node, error) {
	before := reported.Record{NodeUID: node.UID, Fields: u.reportedRecord().Of(node.UID)}
	unrecorded := u.saveReportedRecord(reported.Record{NodeUID: node.UID, Fields: d.Record})
	if unrecorded != nil {
		all := len(d.Set)
		if d = d.Within(before.Fields); len(d.Set) == all {
			unrecorded = nil // the record has too many fields, and none is missing
		}
		if !d.Changed() {
			return nil, unrecorded
		}
	}
	body, err := reportedPatch(node, d)
	if err != nil {
		return nil, err
	}
	updated, err := u.cfg.Heartbeat.CoreV1().Nodes().Patch(ctx, string(u.Name()), types.StrategicMergePatchType, body,
		metav1.PatchOptions{FieldManager: reportedFieldManager}, "status")
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Wrote fields of reporter plugins to the node", "node", klog.KObj(node),
			"set", len(d.Set), "removed", len(d.Removed))
		u.wrote(ctx, updated)
		return updated, unrecorded
	}
	if reported.Rejected(err) && unrecorded == nil {
		if err := u.saveReportedRecord(before); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to store the record of fields of reporter plugins again")
		}
	}
	if apierrors.IsConflict(err) {
		return u.readReported(ctx)
	}
	return nil, fmt.Errorf("write fields of reporter plugins to the Node: %w", err)
}

// wrote keeps the answer to a write, if it is newer than the last one.
func (u *Updater) wrote(ctx context.Context, updated *v1.Node) {
	u.writing.Lock()
	defer u.writing.Unlock()
	if own := u.own.node; own == nil || own.UID != updated.UID || newerNode(ctx, updated, own) == updated {
		u.own = ownWrite{node: updated, at: u.cfg.Clock.Now()}
	}
}

// reportedPatch returns a strategic merge patch of the fields, which has an effect on this version of this Node only.
func reportedPatch(node *v1.Node, d *reported.Decision) ([]byte, error) {
	entriesOf := map[reported.Kind]map[string]any{}
	set := func(f reported.Field, value any) {
		if entriesOf[f.Kind] == nil {
			entriesOf[f.Kind] = map[string]any{}
		}
		entriesOf[f.Kind][f.Key] = value
	}
	for f, value := range d.Set {
		if f.IsResource() {
			quantity, err := resource.ParseQuantity(value)
			if err != nil {
				return nil, fmt.Errorf("%s of the extended resource %s: %w", f.Kind, f.Key, err)
			}
			set(f, quantity)
			continue
		}
		set(f, value)
	}
	for _, f := range d.Removed {
		set(f, nil)
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	for kind, entries := range entriesOf {
		if kind == reported.Label || kind == reported.Annotation {
			metadata[string(kind)] = entries
			continue
		}
		if patch["status"] == nil {
			patch["status"] = map[string]any{}
		}
		patch["status"].(map[string]any)[string(kind)] = entries
	}
	return json.Marshal(patch)
}
