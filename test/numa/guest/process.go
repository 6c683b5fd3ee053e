package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// process is a process of a pod.
type process struct{ cmd *exec.Cmd }

// start starts this program in the cgroup of a pod, and returns when it does what it is to do.
func start(pod string, args ...string) (*process, error) {
	cmd := exec.Command("/init", append([]string{pod}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	p := &process{cmd}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) || line != ready {
		return nil, errors.Join(fmt.Errorf("process %q of pod %s has ended", args, pod), p.stop())
	}
	return p, nil
}

// stop kills the process, and returns when it is gone.
func (p *process) stop() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}
	var killed *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &killed) {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

const ready = "ready\n"

// runProcess is what a process of a pod does: "hold" has memory of a NUMA node, "map" maps memory again and again,
// "spin" uses a CPU.
func runProcess(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("want a pod and what to do, not %q", args)
	}
	if err := write(filepath.Join(podsCgroup, args[0], "cgroup.procs"), "0"); err != nil {
		return err
	}
	var numbers []int
	for _, text := range args[2:] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%s: %w", args[1], err)
		}
		numbers = append(numbers, n)
	}
	switch {
	case args[1] == "hold" && len(numbers) == 2:
		if err := hold(numbers[0], numbers[1]); err != nil {
			return err
		}
		fmt.Print(ready)
		return pause()
	case args[1] == "map" && len(numbers) == 1:
		fmt.Print(ready)
		for {
			if err := mapOnce(numbers[0]); err != nil {
				return err
			}
		}
	case args[1] == "spin":
		fmt.Print(ready)
		for {
			unix.Getpid()
		}
	}
	return fmt.Errorf("unknown: %q", args)
}

// pause returns when the process is signalled.
func pause() error {
	if err := unix.Pause(); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// hold has anonymous memory of one NUMA node only (mbind(2)).
func hold(node, bytes int) error {
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	mask := uint64(1) << node
	const bind = 2 // MPOL_BIND
	if _, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&memory[0])), uintptr(bytes), bind,
		uintptr(unsafe.Pointer(&mask)), 64, 0); errno != 0 {
		return fmt.Errorf("bind memory to NUMA node %d: %w", node, errno)
	}
	touch(memory)
	return nil
}

// mapOnce maps memory, writes to all of it, and unmaps it.
func mapOnce(bytes int) error {
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	touch(memory)
	if err := unix.Munmap(memory); err != nil {
		return fmt.Errorf("unmap memory: %w", err)
	}
	return nil
}

func touch(memory []byte) {
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
}
