//go:build e2e

package e2enode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	pressureHeader = "apiVersion: nodepressure.plimsoll.dev/v1alpha1\nkind: NodePressureConfiguration\n" +
		"monitoringPeriod: 2s\n"
	// memoryInDryRun has the thresholds of memory in dry run.
	memoryInDryRun = pressureHeader + "dryRun:\n- signal: memory.available\n"
	// misspelled is memoryInDryRun with an unknown signal.
	misspelled = pressureHeader + "dryRun:\n- signal: memory.availble\n"
	// reloadTime is how long the kubelet may take to load a changed file. It is less than the half minute after which the
	// kubelet reads the file without a notification, so that the test fails without notifications.
	reloadTime = 10 * time.Second
)

// TestPressureConfigurationChangesWhileTheKubeletRuns has thresholds of memory in dry run: a hog crosses the threshold
// and is not evicted, but an event and a metric report that it would be. An invalid file changes nothing. When dry run
// is removed from the file, the same kubelet evicts the hog. When the file is removed the defaults apply.
func TestPressureConfigurationChangesWhileTheKubeletRuns(t *testing.T) {
	s := spaceForRestart(t)
	s.withPressureConfig(memoryInDryRun, shortTransition)
	started := s.mustMetric("process_start_time_seconds")
	s.inForce(memoryInDryRun)

	hog := s.ready(holding("hog", node.PodMemory()*3/4/mebibyte+100))
	s.reportedInDryRun(hog)
	s.invalidFileIsRejected()
	enters := s.ready(kit.Bound(kit.IdlePod("enters")))
	s.stays(10*time.Second, func() error {
		return errors.Join(kit.Ready(s.get("hog")), kit.MemoryPressure(s.ctx, s.client, false))
	})

	changed := time.Now()
	s.writePressureConfig(pressureHeader)
	s.inForce(pressureHeader)
	evicted := s.wait(hog, podTimeout, endedFor("Evicted"))
	t.Logf("the hog was evicted %v after the file was written", time.Since(changed).Round(100*time.Millisecond))
	s.checkEvicted(evicted)
	s.wait(evicted, podTimeout, exited(128+int32(syscall.SIGTERM)))
	s.must(kit.Ready(s.get(enters.Name)))
	s.eventually(time.Minute, func(ctx context.Context) error {
		return s.nodeEvent(ctx, changed, "PressureConfigReloaded", node.Layout().PressureConfig())
	})

	s.must(os.Remove(node.Layout().PressureConfig()))
	s.inForce("")
	if now := s.mustMetric("process_start_time_seconds"); now != started {
		t.Errorf("the kubelet was restarted: it was started at %f, the first one at %f", now, started)
	}
}

// exited is a check for a pod whose container called main has exited with that code. An evicted pod is Failed before
// that.
func exited(code int32) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		status, err := container(pod, "main")
		if err != nil {
			return err
		}
		ended := status.State.Terminated
		if ended != nil && ended.ExitCode != code {
			return kit.Hopeless(fmt.Errorf("exit code is not %d: %s", code, kit.Describe(pod)))
		}
		if ended == nil {
			return errors.New("still running: " + kit.Describe(pod))
		}
		return nil
	}
}

// reportedInDryRun waits for the event and the metric that report that the pod would be evicted for memory.
func (s *space) reportedInDryRun(pod *v1.Pod) {
	s.t.Helper()
	s.eventually(time.Minute, func(ctx context.Context) error {
		return s.nodeEvent(ctx, pod.CreationTimestamp.Time, "EvictionDryRun",
			"would evict pod "+pod.Namespace+"/"+pod.Name+" because: The node was low on resource: memory.")
	})
	if got := s.mustMetric(`plimsoll_eviction_dry_run_total{kind="hard",signal="allocatableMemory.available"}`); got != 1 {
		s.t.Errorf("%v pods would have been evicted, want 1", got)
	}
}

// invalidFileIsRejected writes an invalid file and waits for the event about it. The settings of memoryInDryRun stay in
// force.
func (s *space) invalidFileIsRejected() {
	s.t.Helper()
	since := time.Now()
	s.writePressureConfig(misspelled)
	const failed = "plimsoll_pressure_config_last_load_failed"
	s.eventually(reloadTime, func(ctx context.Context) error { return s.metricIs(ctx, failed, 1) })
	s.eventually(time.Minute, func(ctx context.Context) error {
		return s.nodeEvent(ctx, since, "PressureConfigInvalid", `dryRun[0].signal: Unsupported value: "memory.availble"`)
	})
	s.must(s.metricIs(s.ctx, "plimsoll_pressure_config_hash", configHash(memoryInDryRun)))
}

// withPressureConfig is restartKubelet with a pressure configuration file of that text, which is removed when the test
// ends. Tune may be nil.
func (s *space) withPressureConfig(text string, tune func(*kubeletv1beta1.KubeletConfiguration)) {
	s.t.Helper()
	file := node.Layout().PressureConfig()
	s.writePressureConfig(text)
	s.must(node.StopKubelet(s.ctx))
	node.SetKubeletEnv([]string{"PLIMSOLL_PRESSURE_CONFIG=" + file})
	s.t.Cleanup(func() {
		node.SetKubeletEnv(nil)
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Error(err)
		}
	})
	s.must(node.StartKubelet(s.ctx, tune))
}

// writePressureConfig replaces the file atomically.
func (s *space) writePressureConfig(text string) {
	s.t.Helper()
	file := node.Layout().PressureConfig()
	s.must(os.WriteFile(file+".new", []byte(text), 0o644))
	s.must(os.Rename(file+".new", file))
}

// inForce waits until the metrics of the kubelet report that a file with that text is in force, or the defaults for "".
func (s *space) inForce(text string) {
	s.t.Helper()
	s.eventually(reloadTime, func(ctx context.Context) error {
		return errors.Join(s.metricIs(ctx, "plimsoll_pressure_config_hash", configHash(text)),
			s.metricIs(ctx, "plimsoll_pressure_config_last_load_failed", 0))
	})
}

// configHash returns the value of plimsoll_pressure_config_hash for a file with that text: 48 bits of its SHA-256.
func configHash(text string) float64 {
	if text == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(text))
	value, _ := strconv.ParseUint(hex.EncodeToString(sum[:6]), 16, 64)
	return float64(value)
}

// holding is a pod that uses that many MiB from its start on.
func holding(name string, mebibytes int64) *v1.Pod {
	pod := kit.HogPod(name, fmt.Sprintf("--start=%d", mebibytes), fmt.Sprintf("--limit=%d", mebibytes))
	pod.Spec.Containers[0].Resources.Requests = kit.Memory("32Mi")
	return pod
}

// nodeEvent is nil if there is an event about the node since then with that reason and a message that contains text.
func (s *space) nodeEvent(ctx context.Context, since time.Time, reason, text string) error {
	events, err := s.client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + cluster.NodeName + ",reason=" + reason,
	})
	if err != nil {
		return err
	}
	var messages []string
	for i := range events.Items {
		e := &events.Items[i]
		// Events have whole seconds.
		if e.LastTimestamp.Time.Before(since.Truncate(time.Second)) {
			continue
		}
		if strings.Contains(e.Message, text) {
			return nil
		}
		messages = append(messages, e.Message)
	}
	return fmt.Errorf("no event %s about the node contains %q, among %q", reason, text, messages)
}

func (s *space) metricIs(ctx context.Context, series string, want float64) error {
	got, err := s.metric(ctx, series)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", series, got, want)
	}
	return err
}

func (s *space) mustMetric(series string) float64 {
	s.t.Helper()
	value, err := s.metric(s.ctx, series)
	s.must(err)
	return value
}

// metric returns the value of a series of the kubelet, named as in the text format, labels included.
func (s *space) metric(ctx context.Context, series string) (float64, error) {
	values, err := s.metrics(ctx, series)
	return values[series], err
}

// metrics returns the values of several series, read at the same time.
func (s *space) metrics(ctx context.Context, series ...string) (map[string]float64, error) {
	code, body, err := node.KubeletGet(ctx, "/metrics", true)
	if err != nil {
		return nil, err
	}
	if code != http.StatusOK {
		return nil, fmt.Errorf("get the metrics: code %d: %.200s", code, body)
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		for _, name := range series {
			text, found := strings.CutPrefix(line, name+" ")
			if !found {
				continue
			}
			if values[name], err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
				return nil, err
			}
		}
	}
	for _, name := range series {
		if _, found := values[name]; !found {
			return nil, fmt.Errorf("the kubelet has no metric %s", name)
		}
	}
	return values, nil
}
