package vm

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// processorThread is a line of the monitor about a processor, with the thread that runs it.
var processorThread = regexp.MustCompile(`thread_id=(\d+)`)

// keepUndisturbed has the machine wait for as little as possible on this one. Its processors do not share one here, and
// the first thread of its emulator, which runs its timers, comes before them. Otherwise either waits for the other by
// several milliseconds, many times a second.
func (n *Node) keepUndisturbed(ctx context.Context, emulator int) error {
	// Of the threads of a process it is the first that has the ID of the process.
	if err := unix.SchedSetAttr(emulator, &unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}, 0); err != nil {
		return fmt.Errorf("priority of the machine's timers: %w", err)
	}
	answer, err := n.monitor(ctx, "info cpus")
	if err != nil {
		return err
	}
	threads := processorThread.FindAllStringSubmatch(answer, -1)
	if len(threads) != processors {
		return fmt.Errorf("the machine has %d processors, its monitor says %q", processors, answer)
	}
	for i, match := range threads {
		thread, err := strconv.Atoi(match[1])
		if err != nil {
			return fmt.Errorf("thread of a processor of the machine: %w", err)
		}
		var here unix.CPUSet
		here.Set(i % runtime.NumCPU())
		if err := unix.SchedSetaffinity(thread, &here); err != nil {
			return fmt.Errorf("processor of this machine for one of the other: %w", err)
		}
	}
	return nil
}
