//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	nodev1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// reporterConfig enables all reporter plugins, and has what they report published in both objects. Objects are
	// written each second at most, so that tests need not wait for a slower pace.
	reporterConfig = pressureHeader + `plugins:
  reporter:
    remote: ["*"]
    inTree: ["*"]
    publish: [CustomNodeResource, Node]
    period: %s
    stopGracePeriod: %s
    sustained: 1s
    nodePrefixes: [plimsoll.example]
    settings:
      pressure:
        nodeLabels: true
`
	// reportedDomain is that of labels and annotations that plugins of tests report.
	reportedDomain = "plimsoll.example/"
	// anyTime is a grace period that is longer than any test.
	anyTime = 10 * time.Minute
	// reporterTimeout is for what a reporter plugin causes.
	reporterTimeout = time.Minute
	// objectInterval is how often objects that are awaited are read.
	objectInterval = 50 * time.Millisecond
)

// reporterSettings returns the configuration of reporter plugins with that grace period. They are polled every second
// or, where times count and in soak, every 5 s, which is the default.
func reporterSettings(grace time.Duration, t testing.TB) string {
	t.Helper()
	period := inSoak(5*time.Second, time.Second)
	if _, timesCount := pluginRounds(t); timesCount {
		period = 5 * time.Second
	}
	return fmt.Sprintf(reporterConfig, period, grace)
}

// reported returns the CustomNodeResource of the node.
func (s *space) reported(ctx context.Context) (*nodev1alpha1.CustomNodeResource, error) {
	object, err := s.reporterUser("").Get(ctx, cluster.NodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decodeReported(object)
}

func decodeReported(object *unstructured.Unstructured) (*nodev1alpha1.CustomNodeResource, error) {
	decoded := &nodev1alpha1.CustomNodeResource{}
	return decoded, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded)
}

// startReporter starts a reporter plugin of Katalyst with these answers.
func (s *space) startReporter(name, format string, args ...any) *katalystPlugin {
	s.t.Helper()
	return s.startKatalystWith(name, fmt.Sprintf(format, args...), "-reporter")
}

// reports is the content of both objects with a label of the CustomNodeResource and an annotation of the Node.
func reports(key, value string) string {
	const content = `[
		{"group": "node.katalyst.kubewharf.io", "version": "v1alpha1", "kind": "CustomNodeResource", "fields": [
		{"type": "Metadata", "name": "Labels", "value": {"%[1]s%[2]s": "%[3]s"}}]},
		{"version": "v1", "kind": "Node", "fields": [
		{"type": "Metadata", "name": "Annotations", "value": {"%[1]s%[2]s": "%[3]s"}}]}]`
	return fmt.Sprintf(content, reportedDomain, key, value)
}

// published waits until both objects have the value, or none for "". It returns when both were seen with it.
func (s *space) published(key, value string, limit time.Duration) time.Time {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	for {
		err := s.publishedNow(ctx, key, value)
		if err == nil {
			return time.Now()
		}
		select {
		case <-time.After(objectInterval):
		case <-ctx.Done():
			s.t.Fatalf("%s is not %q after %v: %v", key, value, limit, err)
		}
	}
}

// publishedNow is nil if both objects have the value, or none for "".
func (s *space) publishedNow(ctx context.Context, key, value string) error {
	object, err := s.reported(ctx)
	n, nodeErr := kit.Node(ctx, s.client)
	if err := errors.Join(err, nodeErr); err != nil {
		return err
	}
	if object.Labels[reportedDomain+key] != value || n.Annotations[reportedDomain+key] != value {
		return fmt.Errorf("labels %v, annotations %v", object.Labels, n.Annotations)
	}
	return nil
}

// reporterRow returns the row of the plugin on the page /debug/plugins, nil if there is none.
func (p *katalystPlugin) reporterRow() *debugv1alpha1.Reporter {
	p.s.t.Helper()
	page := p.s.pluginPage()
	for i := range page.Reporters {
		if row := &page.Reporters[i]; row.Name == p.name && row.Active {
			return row
		}
	}
	return nil
}

// reporterRegistered waits until the reporter plugin, which serves since that time, is registered.
func (p *katalystPlugin) reporterRegistered(since time.Time) {
	p.s.t.Helper()
	p.s.eventually(reporterTimeout, func(context.Context) error {
		row := p.reporterRow()
		if row == nil || row.Registered.Before(since) {
			return fmt.Errorf("plugin %s is not registered: %+v; refused: %+v", p.name, row, p.s.pluginPage().Refused)
		}
		p.s.took("registration", row.Registered.Sub(since), 5*time.Second)
		return nil
	})
}

// writesOf returns how often this kubelet has written an object for reporter plugins.
func (s *space) writesOf(kind string) int64 {
	s.t.Helper()
	page := s.pluginPage()
	for _, object := range page.Objects {
		if object.Kind == kind {
			return object.Writes
		}
	}
	s.t.Fatalf("the page has no object %s: %+v", kind, page.Objects)
	return 0
}

// counting has the reporter plugin give the answers of numbers, beginning with first, a greater one each second.
// Function stop ends that, and returns the last number.
func (p *katalystPlugin) counting(first int, answers func(n int) string) (stop func() int) {
	ctx, cancel := context.WithCancel(p.s.ctx)
	type result struct {
		last int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for n := first; ; n++ {
			if err := p.replace(answers(n)); err != nil {
				done <- result{n, err}
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				done <- result{n, nil}
				return
			}
		}
	}()
	end := sync.OnceValue(func() result {
		cancel()
		return <-done
	})
	p.s.t.Cleanup(func() { end() })
	return func() int {
		p.s.t.Helper()
		r := end()
		p.s.must(r.err)
		return r.last
	}
}

// countedAnswers are the answers of a plugin that reports a number in key of both objects.
func countedAnswers(key string) func(n int) string {
	return func(n int) string { return always(reports(key, strconv.Itoa(n))) }
}

// always are the answers of a plugin that reports the content in polls and in its stream.
func always(content string) string {
	return fmt.Sprintf(`{"serve": true, "poll": %[1]s, "stream": %[1]s}`, content)
}

// replace replaces the answers. It may be called by any goroutine.
func (p *katalystPlugin) replace(answers string) error {
	file := p.control + ".next"
	if err := os.WriteFile(file, []byte(answers), 0o600); err != nil {
		return err
	}
	return os.Rename(file, p.control)
}

// seenObject is an object as a watch has delivered it.
type seenObject struct {
	at time.Time
	metav1.Object
}

// observed collects what watches on both objects deliver. Function stop ends the watches, and returns all versions of
// either object and an error if a watch failed.
func (s *space) observed() (stop func() (resources, nodes []seenObject, err error)) {
	s.t.Helper()
	options := metav1.ListOptions{
		FieldSelector: "metadata.name=" + cluster.NodeName,
		// Without this the API server ends a watch after half an hour to an hour.
		TimeoutSeconds: new(int64(3 * time.Hour / time.Second)),
	}
	nodeWatch, err := s.client.CoreV1().Nodes().Watch(s.ctx, options)
	s.must(err)
	objectWatch, err := s.reporterUser("").Watch(s.ctx, options)
	s.must(err)
	var stopped atomic.Bool
	objects, endObjects := collect(objectWatch, &stopped)
	nodes, endNodes := collect(nodeWatch, &stopped)
	return func() ([]seenObject, []seenObject, error) {
		stopped.Store(true)
		err := errors.Join(endObjects(), endNodes())
		return *objects, *nodes, err
	}
}

// collect collects the objects of a watch until it is ended. They may be read after end.
func collect(w watch.Interface, stopped *atomic.Bool) (list *[]seenObject, end func() error) {
	list = new([]seenObject)
	done := make(chan error, 1)
	go func() {
		var lost error
		for event := range w.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			switch {
			case stopped.Load():
			case !ok || event.Type == watch.Error:
				lost = errors.Join(lost, fmt.Errorf("watch: %v", event.Object))
			case event.Type == watch.Deleted:
				lost = errors.Join(lost, fmt.Errorf("%s was deleted", object.GetName()))
			default:
				*list = append(*list, seenObject{time.Now(), object})
			}
		}
		if !stopped.Load() {
			lost = errors.Join(lost, errors.New("the watch ended early"))
		}
		done <- lost
	}()
	return list, func() error {
		w.Stop()
		return <-done
	}
}

// neverOlder checks that each version has a number in key, in labels or annotations, which is never less than before.
func neverOlder(list []seenObject, key string, values func(metav1.Object) map[string]string) error {
	var (
		last     int
		problems []string
	)
	for _, seen := range list {
		text := values(seen.Object)[reportedDomain+key]
		n, err := strconv.Atoi(text)
		if err != nil || n < last {
			problems = append(problems, fmt.Sprintf("at %s %s of version %s is %q after %d",
				seen.at.Format(time.StampMilli), key, seen.GetResourceVersion(), text, last))
		}
		last = max(last, n)
	}
	if len(list) == 0 {
		problems = append(problems, "the watch has seen nothing")
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return nil
}

// nodeOf returns the Node that a watch has delivered.
func nodeOf(seen seenObject) *v1.Node {
	n, _ := seen.Object.(*v1.Node)
	return n
}

// decodedOf returns the CustomNodeResource that a watch has delivered.
func decodedOf(seen seenObject) (*nodev1alpha1.CustomNodeResource, error) {
	object, ok := seen.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the watch has delivered a %T", seen.Object)
	}
	return decodeReported(object)
}

// encoded returns v in JSON.
func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // v is made by the test
	}
	return data
}
