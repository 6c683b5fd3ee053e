package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/taints"
)

const (
	// taintCheckPeriod is how often the taints of the Node are compared with the conditions.
	taintCheckPeriod = 10 * time.Second
	// minTaintInterval is the minimum time between two comparisons.
	minTaintInterval = time.Second
	// firstTaintBackOff is the time until the next attempt after the first error. It is doubled with each.
	firstTaintBackOff = time.Second
	maxTaintBackOff   = time.Minute
	// maxTaintTries is the maximum number of attempts without a pause; the attempts after the first follow conflicts.
	maxTaintTries = 5
	// failuresBeforeEvent is the number of errors in a row after which there is an event, about 15 s after the first. An
	// error that will not pass by itself is reported at once.
	failuresBeforeEvent = 5

	eventTaintsUnavailable = "EvictionPluginTaintsUnavailable"
)

// errOtherNode: the API server that the kubeconfig file leads to has another Node of this name.
var errOtherNode = errors.New("the API server of the kubeconfig file for taints has another Node of the same name")

// TaintWriterConfig is the configuration of a TaintWriter. All fields are required.
type TaintWriterConfig struct {
	View *View
	// File is the path of the record of the taints that the agent has added (paths.Layout.PluginTaints).
	File string
	// Kubeconfig returns the path of a kubeconfig file with an identity that may change the taints of this Node; "" for
	// none. It is called by one goroutine, before each attempt.
	Kubeconfig func() string
	// PluginTaints returns the conditions of eviction plugins that are True, with the effects of their taints. Known is
	// false as long as conditions of an earlier run of the agent may be missing; see Updater.Restored. It is called every
	// 10 s and after each call of Changed, by one goroutine, and must be fast.
	PluginTaints func() (list []taints.Condition, known bool)
	Recorder     Recorder
}

// TaintWriter writes the taints of conditions of eviction plugins to the Node. It has an identity of its own: the
// admission plugin NodeRestriction rejects a patch with which a kubelet, that is a user system:node:<name> of the group
// system:nodes, changes the taints of its own Node, so that it cannot attract pods that should not run there
// (plugin/pkg/admission/noderestriction/admission.go of Kubernetes v1.36, admitNode). A kubelet may set taints only
// when it creates its Node.
type TaintWriter struct {
	config  TaintWriterConfig
	clients taintClients
	changed chan struct{}

	// The goroutine of Run alone uses what follows.

	// record is what the file has.
	record taints.Record
	// seen is the Node in the last answer of the API server, nil if there was none or the lister has a newer one.
	seen   *v1.Node
	seenAt time.Time
	// failures is the number of errors in a row.
	failures int
	// reported is the last problem that was reported by an event, "" after a write that has succeeded.
	reported string
}

// NewTaintWriter returns a writer. It accesses neither the disk nor the API server.
func NewTaintWriter(config TaintWriterConfig) *TaintWriter {
	registerTaintMetrics()
	return &TaintWriter{
		config: config, clients: &kubeconfigClients{node: config.View.Name()}, changed: make(chan struct{}, 1),
	}
}

// Changed requests that the taints are compared with the conditions at once, and not within 10 s. It does not block,
// and may be called by any goroutine at any time; a call before Run takes effect in Run. It is also for a kubeconfig
// file, or effects, that have changed in the configuration.
func (w *TaintWriter) Changed() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Run writes taints until ctx ends. It compares the Node of the lister with the conditions after each call of Changed
// and every 10 s, and sends requests only if they differ. In standalone mode it only waits for ctx. It must be called
// once.
func (w *TaintWriter) Run(ctx context.Context) {
	if w.config.View.standalone() {
		<-ctx.Done()
		return
	}
	if !w.awaitRecord(ctx) {
		return
	}
	for ctx.Err() == nil {
		delay, urgent := taintCheckPeriod, func() bool { return true }
		if err := w.synchronize(ctx); err != nil && ctx.Err() == nil {
			delay, urgent = w.failed(ctx, err), func() bool { return w.clients.differ(w.config.Kubeconfig()) }
		} else {
			w.failures = 0
		}
		first := min(delay, minTaintInterval)
		if pause(ctx, first) {
			w.wait(ctx, delay-first, urgent)
		}
	}
}

// wait waits for a duration, or until urgent returns true, which is called after each call of Changed and every 10 s.
func (w *TaintWriter) wait(ctx context.Context, d time.Duration, urgent func() bool) {
	end := time.NewTimer(d)
	defer end.Stop()
	check := time.NewTicker(taintCheckPeriod)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-w.changed:
		case <-check.C:
		}
		if urgent() {
			return
		}
	}
}

// synchronize changes the taints of the Node until they are as they should be.
func (w *TaintWriter) synchronize(ctx context.Context) error {
	node, err := w.newestNode(ctx)
	if err != nil {
		klog.FromContext(ctx).V(4).Info("There is no Node whose taints could be changed", "err", err)
		return nil
	}
	// fresh: the Node is an answer of the API server in this round.
	fresh := false
	for range maxTaintTries {
		list, known := w.config.PluginTaints()
		d := taints.Decide(taints.Input{
			Node: node.Spec.Taints, Conditions: list, Known: known, Record: w.record.Of(node.UID),
		})
		anew := w.record.NodeUID != node.UID && len(w.record.Taints) > 0
		forgets := anew || len(d.Forgotten) > 0
		switch {
		case !d.Changed() && !forgets:
			return nil
		case forgets && !fresh:
			node, err = w.read(ctx)
		default:
			node, err = w.write(ctx, node, &d)
		}
		if err != nil {
			return err
		}
		fresh = true
	}
	return fmt.Errorf("the Node was changed by others in each of %d attempts to change its taints", maxTaintTries)
}

// newestNode returns the Node of the lister, or the last answer of the API server if that is newer. If the lister lags
// for long, it may have lost its watch, or the API server was restored from a backup; then the Node is read.
func (w *TaintWriter) newestNode(ctx context.Context) (*v1.Node, error) {
	listed, err := w.config.View.Lookup(ctx)
	if err != nil {
		return nil, err
	}
	if w.seen == nil || newerNode(ctx, listed, w.seen) == listed || listed.ResourceVersion == w.seen.ResourceVersion {
		w.seen = nil
		return listed, nil
	}
	if time.Since(w.seenAt) > maxOwnWriteAge {
		if node, err := w.read(ctx); err == nil {
			return node, nil
		}
	}
	return w.seen, nil
}

// read reads the Node from the API server of the kubeconfig file. It is an error if that has another Node than the
// lister: the file is that of another cluster, or the lister does not have a Node yet that was created again.
func (w *TaintWriter) read(ctx context.Context) (*v1.Node, error) {
	api, err := w.clients.client(w.config.Kubeconfig())
	if err != nil {
		return nil, unavailable(err)
	}
	node, err := api.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the Node to change its taints: %w", err)
	}
	if listed, err := w.config.View.Lookup(ctx); err == nil && listed.UID != node.UID {
		return nil, fmt.Errorf("%w: UID %s, that of this kubelet has %s", errOtherNode, node.UID, listed.UID)
	}
	w.seen, w.seenAt = node, time.Now()
	return node, nil
}

// write stores the record, and then changes the Node from which the decision was made. It returns the Node of the API
// server afterwards; after a conflict that is not changed.
//
// A request that the API server has rejected has added nothing, so that the record before it is stored again: otherwise
// a taint that somebody else adds later would count as the agent's. After other errors the Node may have been changed.
//
// If the record cannot be stored, taints are removed and none are added: those that are removed are recorded.
func (w *TaintWriter) write(ctx context.Context, node *v1.Node, d *taints.Decision) (*v1.Node, error) {
	api, err := w.clients.client(w.config.Kubeconfig())
	if err != nil {
		return nil, unavailable(err)
	}
	before := taints.Record{NodeUID: node.UID, Taints: w.record.Of(node.UID)}
	var unrecorded error
	if err := w.saveRecord(taints.Record{NodeUID: node.UID, Taints: d.Record}); err != nil {
		unrecorded = &taintError{taintsUnrecorded, err}
		d = d.Removal()
	}
	if !d.Changed() {
		return node, unrecorded
	}
	body, err := taintPatch(node, d.Taints)
	if err != nil {
		return nil, err
	}
	updated, err := api.patch(ctx, body)
	if err == nil {
		klog.FromContext(ctx).Info("Changed taints of the node", "node", klog.KObj(node), "added", d.Added,
			"removed", d.Removed)
		taintWrites.WithLabelValues(taintsWritten).Inc()
		w.seen, w.seenAt = updated, time.Now()
		if unrecorded == nil {
			w.reported = ""
		}
		return updated, unrecorded
	}
	if rejected(err) {
		if err := w.saveRecord(before); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to store the record of taints again", "path", w.config.File)
		}
	}
	if apierrors.IsConflict(err) {
		taintWrites.WithLabelValues(taintsConflict).Inc()
		return w.read(ctx)
	}
	return nil, fmt.Errorf("change the taints of the Node: %w", err)
}

// taintPatch returns a JSON merge patch of all taints, which has an effect on this version of this Node only: another
// cluster may have the same version of another one. A strategic merge patch replaces the list as a whole as well: it
// has no merge key.
func taintPatch(node *v1.Node, list []v1.Taint) ([]byte, error) {
	type metadata struct {
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	}
	type spec struct {
		// Taints is null if there are none, which removes the field.
		Taints []v1.Taint `json:"taints"`
	}
	return json.Marshal(struct {
		Metadata metadata `json:"metadata"`
		Spec     spec     `json:"spec"`
	}{metadata{node.UID, node.ResourceVersion}, spec{list}})
}

// taintError is an error with its value of the label result.
type taintError struct {
	result string
	error
}

func (e *taintError) Unwrap() error { return e.error }

func unavailable(err error) error { return &taintError{taintsUnavailable, err} }

// rejected reports whether an error is an answer of the API server by which the Node was certainly not changed. A
// time-out of the server itself is none.
func rejected(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500
}

// refused reports whether a repetition of the request can have no other result until somebody changes something.
func refused(err error) bool {
	return rejected(err) && !apierrors.IsConflict(err) && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err)
}

// failed reports an error, and returns the time until the next attempt.
func (w *TaintWriter) failed(ctx context.Context, err error) time.Duration {
	result := taintsError
	var known *taintError
	if errors.As(err, &known) {
		result = known.result
	} else if refused(err) {
		result = taintsRefused
	}
	taintWrites.WithLabelValues(result).Inc()
	w.failures++
	if result == taintsUnavailable || result == taintsRefused || w.failures >= failuresBeforeEvent {
		w.report(ctx, result, err)
	} else {
		klog.FromContext(ctx).Error(err, "Failed to change taints of the node, will retry")
	}
	if result == taintsUnavailable {
		return maxTaintBackOff
	}
	return taintBackOff(w.failures, err, rand.Float64())
}

// report sends an event about a problem that somebody has to solve, once until the problem is another one or solved.
func (w *TaintWriter) report(ctx context.Context, problem string, err error) {
	if w.reported == problem {
		klog.FromContext(ctx).V(2).Info("Taints of the node can still not be changed", "err", err)
		return
	}
	w.reported = problem
	klog.FromContext(ctx).Error(err, "Taints of the node cannot be changed, conditions of eviction plugins have none")
	w.config.Recorder.Eventf(w.config.View.Ref(), v1.EventTypeWarning, eventTaintsUnavailable,
		"Taints of the Node cannot be changed, so that those of conditions of eviction plugins are missing or stay: %v", err)
}

// taintBackOff returns the time after a number of errors in a row: 1 s, doubled with each error up to a minute, or
// what the API server asks for, up to a minute as well. Up to a fifth is subtracted at random (0 to 1), so that the
// agents of many nodes do not repeat their requests at the same time.
func taintBackOff(failures int, err error, random float64) time.Duration {
	d := firstTaintBackOff
	for range failures - 1 {
		if d = 2 * d; d >= maxTaintBackOff {
			break
		}
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		d = max(d, time.Duration(seconds)*time.Second)
	}
	d = min(d, maxTaintBackOff)
	return d - time.Duration(random*float64(d)/5)
}
