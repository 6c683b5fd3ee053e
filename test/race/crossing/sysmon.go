package crossing

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// yieldMonitor has the monitor thread of the Go runtime (sysmon) wait for other threads. For a while after the process
// was at rest it wakes up each 70 µs. That takes 2 µs on a processor, but 200 µs on an emulated one: three quarters of
// the time of the thread that decides, just when a crossing is decided on.
func yieldMonitor() error {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	var threads []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			return fmt.Errorf("thread of this process: %w", err)
		}
		threads = append(threads, id)
	}
	// It is the first that the runtime starts: proc.go, main.
	threads = slices.DeleteFunc(threads, func(id int) bool { return id == os.Getpid() })
	// Threads that it starts do not inherit that.
	batch := unix.SchedAttr{Policy: unix.SCHED_BATCH, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	return unix.SchedSetAttr(slices.Min(threads), &batch, 0)
}
