package conformance

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// runtimeUnitName is the unit of the container runtime, which specs find by its process.
const runtimeUnitName = "containerd.service"

// containerRuntime is the process of the container runtime.
type containerRuntime interface {
	RuntimeAlive() (bool, error)
	ReviveRuntime(ctx context.Context) error
	StopRuntime(ctx context.Context) error
}

// runtimeUnit is the container runtime as a systemd unit with Restart=always: it is started again when it was killed,
// but not when it was stopped through the bus. It implements systembus.Service.
type runtimeUnit struct {
	runtime containerRuntime
	// pid returns the process, and pidFile is the file in which the suite looks for it.
	pid     func() (int, error)
	pidFile string

	mu      sync.Mutex
	stopped bool
}

// PID returns the process of the container runtime, 0 if there is none.
func (u *runtimeUnit) PID() (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pid()
}

// Start starts the container runtime, unless it is alive, and waits until it serves.
func (u *runtimeUnit) Start(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
	return u.revive(ctx)
}

// Stop stops the container runtime until Start is called.
func (u *runtimeUnit) Stop(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = true
	return u.runtime.StopRuntime(ctx)
}

// keep starts the container runtime again if it was killed.
func (u *runtimeUnit) keep(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stopped {
		return nil
	}
	return u.revive(ctx)
}

func (u *runtimeUnit) revive(ctx context.Context) error {
	// If the state is unknown, the runtime is started.
	if alive, err := u.runtime.RuntimeAlive(); alive && err == nil {
		return nil
	}
	if err := u.runtime.ReviveRuntime(ctx); err != nil {
		return err
	}
	return u.writePID()
}

// writePID writes the process of the container runtime for the suite.
func (u *runtimeUnit) writePID() error {
	pid, err := u.pid()
	if err != nil {
		return err
	}
	if err := os.WriteFile(u.pidFile, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}
