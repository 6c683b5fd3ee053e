package nodeshutdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

// StateFileName is the name of the file, in the root directory, with the times of the last shutdown. Name and format
// are stock's.
const StateFileName = "graceful_node_shutdown_state"

// times are the times at which the pods were stopped for the last shutdown: the begin, and the end or zero. It is the
// content of the state file, in stock's format.
type times struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// storePatience is how long the start waits until the stored times are read, and the end of a stop until its own are
// stored. The machine may be off a moment later.
const storePatience = 2 * time.Second

// storeTimes sets the metrics, and writes the times to the state file. A file that cannot be written does not interrupt
// the shutdown; the error is logged. The returned channel is closed at the end.
func (m *Manager) storeTimes(ctx context.Context, r times) <-chan struct{} {
	if m.cfg.StateFile != "" {
		m.mu.Lock()
		m.timesKnown = true
		metrics.GracefulShutdownStartTime.Set(unix(r.StartTime))
		metrics.GracefulShutdownEndTime.Set(unix(r.EndTime))
		m.mu.Unlock()
	}
	return m.useStateFile(func() {
		if err := r.write(m.cfg.StateFile); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to store graceful shutdown state")
		}
	})
}

// useStateFile calls a function that reads or writes the state file, if there is one, when the calls before have ended:
// in a goroutine that nothing has to wait for, since a disk may hang. The returned channel is closed at the end.
func (m *Manager) useStateFile(use func()) <-chan struct{} {
	done := make(chan struct{})
	if m.cfg.StateFile == "" {
		close(done)
		return done
	}
	m.mu.Lock()
	before := m.stored
	m.stored = done
	m.mu.Unlock()
	m.stores.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		use()
	})
	return done
}

// await waits until a channel is closed, for some time at most.
func (m *Manager) await(done <-chan struct{}, patience time.Duration) {
	timer := m.cfg.Clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C():
	}
}

// publishStoredTimes sets the metrics to the times that an earlier run of the agent has stored, unless a shutdown has
// begun by then. It waits for the disk for some time at most.
func (m *Manager) publishStoredTimes(ctx context.Context) {
	m.await(m.useStateFile(func() {
		r, err := readTimes(m.cfg.StateFile)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to load graceful shutdown state")
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.timesKnown && !r.StartTime.IsZero() {
			metrics.GracefulShutdownStartTime.Set(unix(r.StartTime))
		}
		if !m.timesKnown && !r.EndTime.IsZero() {
			metrics.GracefulShutdownEndTime.Set(unix(r.EndTime))
		}
	}), storePatience)
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// readTimes returns the stored times, the zero value if the file does not exist.
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

// write replaces the file durably, since the machine may lose power at any time.
func (r times) write(path string) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = recordfile.Replace(path, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("times of the shutdown: %w", err)
	}
	return nil
}
