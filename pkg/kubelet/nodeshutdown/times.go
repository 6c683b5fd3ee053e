package nodeshutdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// StateFileName is the name of the file below the root directory that keeps the times of the last shutdown; it is
// stock's.
const StateFileName = "graceful_node_shutdown_state"

// times are when the last stopping of the pods began and ended; the format of the state file is stock's.
type times struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// keep writes the times to disk and shows them. That a disk cannot be written to does not keep the machine from going
// down in order.
func (m *Manager) keep(ctx context.Context, r times) {
	if m.cfg.StateFile == "" {
		return
	}
	if err := r.write(m.cfg.StateFile); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to store graceful shutdown state")
	}
	metrics.GracefulShutdownStartTime.Set(unix(r.StartTime))
	metrics.GracefulShutdownEndTime.Set(unix(r.EndTime))
}

// showLast shows the times of the last shutdown, which an earlier run of the agent has written.
func (m *Manager) showLast(ctx context.Context) {
	if m.cfg.StateFile == "" {
		return
	}
	r, err := readTimes(m.cfg.StateFile)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to load graceful shutdown state")
		return
	}
	if !r.StartTime.IsZero() {
		metrics.GracefulShutdownStartTime.Set(unix(r.StartTime))
	}
	if !r.EndTime.IsZero() {
		metrics.GracefulShutdownEndTime.Set(unix(r.EndTime))
	}
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// readTimes returns the zero value if there was no shutdown yet.
func readTimes(path string) (r times, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return times{}, fmt.Errorf("times of the last shutdown in %s: %w", path, err)
	}
	return r, nil
}

// write replaces the file at once: the machine may go down at any moment.
func (r times) write(path string) (err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("times of the shutdown: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path))
	if err != nil {
		return fmt.Errorf("times of the shutdown: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("times of the shutdown: %w", err)
			_ = os.Remove(file.Name()) // nothing more can be done
		}
	}()
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
