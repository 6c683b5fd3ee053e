//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/cluster"
)

const (
	// oursKey is that of what the plugin reports of each part of the object, appliedKey and theirsPrefix are those of what
	// the other writers write.
	oursKey, appliedKey, theirsPrefix = "ours", "applied", reportedDomain + "theirs-"
	// theirTaints is how many taints the other writer has. It replaces the oldest one each time.
	theirTaints = 10
)

// ours are the answers of a plugin that reports a number in labels, spec, taints and status of the object.
func ours(n int) string {
	const content = `[{"group": "node.katalyst.kubewharf.io", "version": "v1alpha1", "kind": "CustomNodeResource",
		"fields": [
		{"type": "Metadata", "name": "Labels", "value": {"%[1]s%[2]s": "%[3]d"}},
		{"type": "Spec", "name": "NodeResourceProperties", "value": [
			{"propertyName": "%[2]s", "propertyQuantity": "%[3]d"}]},
		{"type": "Spec", "name": "Taints", "value": [
			{"key": "%[1]s%[2]s", "value": "%[3]d", "effect": "NoSchedule", "qosLevel": "reclaimed_cores"}]},
		{"type": "Status", "name": "Resources", "value": {"capacity": {"%[1]s%[2]s": "%[3]d"}}}]}]`
	return always(fmt.Sprintf(content, reportedDomain, oursKey, n))
}

// oursOf returns the numbers that the object has, in the order of labels, properties, taints and resources; absent is
// empty.
func oursOf(object *nodev1alpha1.CustomNodeResource) (values [4]string) {
	values[0] = object.Labels[reportedDomain+oursKey]
	for _, p := range object.Spec.NodeResourceProperties {
		if p.PropertyName == oursKey && p.PropertyQuantity != nil {
			values[1] = p.PropertyQuantity.String()
		}
	}
	for _, taint := range object.Spec.Taints {
		if taint.Key == reportedDomain+oursKey {
			values[2] = taint.Value
		}
	}
	if capacity := object.Status.Resources.Capacity; capacity != nil {
		if q, has := (*capacity)[v1.ResourceName(reportedDomain+oursKey)]; has {
			values[3] = q.String()
		}
	}
	return values
}

// oursAre is nil if all parts of the object have the number, or none for "".
func (s *space) oursAre(want string) func(context.Context) error {
	return func(ctx context.Context) error {
		object, err := s.reported(ctx)
		if err == nil && oursOf(object) != [4]string{want, want, want, want} {
			err = fmt.Errorf("the object has %q, want %q in all parts", oursOf(object), want)
		}
		return err
	}
}

// otherWriters has two others write the object at full speed, while a plugin reports another number each second: one by
// server-side apply, one by merge patches of taints and conditions, as Katalyst's controllers do. Each of them writes
// 50 times, in soak a thousand times. No version of the object is without a value of any of them, or has an older one
// than before.
func (s *space) otherWriters() {
	writes := 50
	if soak() {
		writes = 1000
	}
	p := s.startReporter("katalyst-taints", "%s", ours(0))
	s.eventually(reporterTimeout, s.oursAre("0"))
	end, stop := s.observed(), p.counting(1, ours)
	began := time.Now()
	client := s.reporterUser("")
	patcher := &theirs{client: client, taints: map[string]string{}}
	patched := make(chan error, 1)
	go func() { patched <- patcher.patch(s.ctx, writes) }()
	applied := applyTheirs(s.ctx, client, writes)
	s.must(errors.Join(applied, <-patched))
	s.t.Logf("%d writes of each of the others in %v, %d conflicts of theirs", writes,
		time.Since(began).Round(time.Second), patcher.conflicts)
	last := strconv.Itoa(stop())
	began = time.Now()
	s.eventually(reporterTimeout, s.oursAre(last))
	s.t.Logf("all parts have the last number, %s, %v after the last write of the others", last,
		time.Since(began).Round(10*time.Millisecond))
	versions, _, err := end()
	s.must(err)
	s.checkWriters(versions, writes)
	s.must(p.replace(`{"serve": true, "poll": []}`))
	s.eventually(reporterTimeout, s.oursAre(""))
	object, err := s.reported(s.ctx)
	s.must(errors.Join(err, patcher.lost(object)))
	s.expect("annotation that was applied", object.Annotations[reportedDomain+appliedKey], strconv.Itoa(writes))
}

// checkWriters checks that no version of the object lacks a value that the one before it had, or has an older one.
func (s *space) checkWriters(versions []seenObject, writes int) {
	s.t.Helper()
	newest, oursSeen := map[string]int{}, map[string]bool{}
	for _, seen := range versions {
		object, err := decodedOf(seen)
		s.must(err)
		values := map[string]string{appliedKey: object.Annotations[reportedDomain+appliedKey]}
		for i, value := range oursOf(object) {
			values[fmt.Sprint("ours of part ", i)] = value
			oursSeen[fmt.Sprint(i, " ", value)] = true
		}
		for _, taint := range object.Spec.Taints {
			if strings.HasPrefix(taint.Key, theirsPrefix) {
				values[taint.Key] = taint.Value
			}
		}
		for _, c := range object.Status.Conditions {
			values["condition "+string(c.Type)] = c.Reason
		}
		for what := range maps.Keys(newest) {
			if values[what] == "" {
				s.t.Errorf("version %s has no %s any more", seen.GetResourceVersion(), what)
			}
		}
		for what, value := range values {
			n, err := strconv.Atoi(value)
			if value != "" && (err != nil || n < newest[what]) {
				s.t.Errorf("version %s: %s is %q after %d", seen.GetResourceVersion(), what, value, newest[what])
			}
			if value != "" {
				newest[what] = max(newest[what], n)
			}
		}
	}
	s.t.Logf("%d versions were seen, %d values of ours in four parts", len(versions), len(oursSeen))
	if len(versions) < 2*writes {
		s.t.Errorf("%d versions were seen, fewer than the writes of the others", len(versions))
	}
}

// applyTheirs applies an annotation so many times, a greater number each time, without force.
func applyTheirs(ctx context.Context, client dynamic.ResourceInterface, writes int) error {
	for n := 1; n <= writes; n++ {
		body := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q, "annotations": {%q: "%d"}}}`,
			nodev1alpha1.GroupVersionKind.GroupVersion(), nodev1alpha1.GroupVersionKind.Kind, cluster.NodeName,
			reportedDomain+appliedKey, n)
		_, err := client.Patch(ctx, cluster.NodeName, types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "other-applier"})
		if err != nil {
			return fmt.Errorf("apply %d: %w", n, err)
		}
	}
	return nil
}

// theirs is a writer of taints and conditions, and what it has written.
type theirs struct {
	client    dynamic.ResourceInterface
	taints    map[string]string
	condition string
	conflicts int
}

// lost returns an error if the object lacks what was written last.
func (w *theirs) lost(object *nodev1alpha1.CustomNodeResource) error {
	found := map[string]string{}
	for _, taint := range object.Spec.Taints {
		if strings.HasPrefix(taint.Key, theirsPrefix) {
			found[taint.Key] = taint.Value
		}
	}
	if !maps.Equal(found, w.taints) {
		return fmt.Errorf("version %s has the taints %v, want %v", object.ResourceVersion, found, w.taints)
	}
	var conditions []string
	for _, c := range object.Status.Conditions {
		conditions = append(conditions, c.Reason)
	}
	if w.condition != "" && !slices.Equal(conditions, []string{w.condition}) {
		return fmt.Errorf("version %s has the conditions %q, want %q", object.ResourceVersion, conditions, w.condition)
	}
	return nil
}

// patch writes so many times. A merge patch of a list replaces it, so that a controller changes what it has read, and
// tries again after a conflict. Before each write the last one must still be there.
func (w *theirs) patch(ctx context.Context, writes int) error {
	for n := 1; n <= writes; n++ {
		if err := w.again(func() error { return w.patchTaints(ctx, n) }); err != nil {
			return fmt.Errorf("taint %d: %w", n, err)
		}
		condition := nodev1alpha1.CNRCondition{
			Type: nodev1alpha1.CNRAgentReady, Status: v1.ConditionTrue, Reason: strconv.Itoa(n),
		}
		patch := merged("", "status", "conditions", []nodev1alpha1.CNRCondition{condition})
		if err := w.again(func() error {
			_, err := w.client.Patch(ctx, cluster.NodeName, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			return err
		}); err != nil {
			return fmt.Errorf("condition %d: %w", n, err)
		}
		w.condition = strconv.Itoa(n)
	}
	return nil
}

// again repeats a request that meets a conflict.
func (w *theirs) again(request func() error) error {
	for {
		err := request()
		if !apierrors.IsConflict(err) {
			return err
		}
		w.conflicts++
	}
}

// patchTaints replaces one of its taints, or adds one.
func (w *theirs) patchTaints(ctx context.Context, n int) error {
	got, err := w.client.Get(ctx, cluster.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object, err := decodeReported(got)
	if err == nil {
		err = w.lost(object)
	}
	if err != nil {
		return err
	}
	key, value := theirsPrefix+strconv.Itoa(n%theirTaints), strconv.Itoa(n)
	list := slices.DeleteFunc(object.Spec.Taints, func(t nodev1alpha1.Taint) bool { return t.Key == key })
	list = append(list, nodev1alpha1.Taint{QoSLevel: "shared_cores", Taint: v1.Taint{
		Key: key, Value: value, Effect: v1.TaintEffectNoSchedule,
	}})
	_, err = w.client.Patch(ctx, cluster.NodeName, types.MergePatchType,
		merged(object.ResourceVersion, "spec", "taints", list), metav1.PatchOptions{FieldManager: "other-patcher"})
	if err == nil {
		w.taints[key] = value
	}
	return err
}

// merged is a merge patch of a list of the object.
func merged(version, part, field string, list any) []byte {
	patch := map[string]any{part: map[string]any{field: list}}
	if version != "" {
		patch["metadata"] = map[string]any{"resourceVersion": version}
	}
	return encoded(patch)
}
