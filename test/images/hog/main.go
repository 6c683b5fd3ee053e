// Command hog fills memory at a given rate, to put a node under memory pressure. It touches --start at once, waits
// --delay, with --signal until SIGUSR1, grows by --rate each second up to --limit, and keeps that until SIGTERM. It
// exits with --code. With --deaf it ignores SIGTERM. With --file the memory is that of a file, which may be on a tmpfs.
// With --fork it does not grow itself: it starts copies of itself, one after the other, which do. With --small-pages it
// grows without huge pages.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const mebibyte = 1 << 20

// forkSize is how much, in MiB, each copy takes with --fork.
const forkSize = 64

// reportEvery is how much growth, in MiB, is worth a line of output.
const reportEvery = 100

func main() {
	start := flag.Int("start", 64, "memory to take at once, in `MiB`")
	rate := flag.Int("rate", 20, "growth in `MiB` per second")
	limit := flag.Int("limit", 1024, "memory to stop growing at, in `MiB`")
	delay := flag.Duration("delay", 0, "time to wait before growing")
	step := flag.Duration("step", 10*time.Millisecond, "how often to grow: fine enough to look like a steady leak")
	onSignal := flag.Bool("signal", false, "wait for SIGUSR1 before growing, after the delay")
	deaf := flag.Bool("deaf", false, "ignore SIGTERM")
	file := flag.String("file", "", "fill this `file` instead of anonymous memory")
	fork := flag.Bool("fork", false, "have copies grow, one after the other")
	small := flag.Bool("small-pages", false, "have the kernel give no huge pages for growth")
	code := flag.Int("code", 128+int(syscall.SIGTERM), "exit `code` when told to stop")
	flag.Parse()
	stop, grow := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT)
	if *deaf {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(stop, syscall.SIGTERM)
	}
	memory, err := reserve(*file, *limit*mebibyte)
	if err != nil {
		fmt.Fprintf(os.Stderr, "hog: reserve %d MiB: %v\n", *limit, err)
		os.Exit(1)
	}
	if *small {
		if err := unix.Madvise(memory[min(*start, *limit)*mebibyte:], unix.MADV_NOHUGEPAGE); err != nil {
			fmt.Fprintf(os.Stderr, "hog: small pages: %v\n", err)
			os.Exit(1)
		}
	}
	h := hog{memory: memory, step: *step}
	h.growTo(*start * mebibyte)
	if *onSignal {
		signal.Notify(grow, syscall.SIGUSR1)
	} else {
		close(grow)
	}
	select {
	case <-stop:
		os.Exit(*code)
	case <-time.After(*delay):
	}
	select {
	case <-stop:
	case <-grow:
		if *fork {
			h.fork(stop, *rate, *limit, *deaf)
		} else {
			h.run(stop, *rate*mebibyte)
		}
	}
	os.Exit(*code)
}

// reserve maps memory, that of a file if it has a name.
func reserve(file string, size int) ([]byte, error) {
	const access = unix.PROT_READ | unix.PROT_WRITE
	if file == "" {
		return unix.Mmap(-1, 0, size, access, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, size, access, unix.MAP_SHARED)
}

type hog struct {
	memory   []byte
	step     time.Duration
	taken    int
	reported int
}

// run grows until the limit is reached or a signal comes.
func (h *hog) run(stop <-chan os.Signal, rate int) {
	ticker := time.NewTicker(h.step)
	defer ticker.Stop()
	first, began := h.taken, time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			h.growTo(first + int(now.Sub(began).Seconds()*float64(rate)))
			if h.taken == len(h.memory) {
				<-stop // A hundred idle pods that wake up all the time would disturb what is measured beside them.
				return
			}
		}
	}
}

// fork starts copies until the limit is reached or a signal comes. Rate and limit are in MiB.
func (h *hog) fork(stop <-chan os.Signal, rate, limit int, deaf bool) {
	const every = time.Second * forkSize
	ticker := time.NewTicker(every / time.Duration(rate))
	defer ticker.Stop()
	for size := h.taken/mebibyte + forkSize; size <= limit; size += forkSize {
		err := exec.Command("/proc/self/exe", "--start=0", fmt.Sprintf("--rate=%d", rate),
			fmt.Sprintf("--limit=%d", forkSize), fmt.Sprintf("--step=%v", h.step), fmt.Sprintf("--deaf=%t", deaf)).Start()
		if err != nil {
			fmt.Fprintf(os.Stderr, "hog: start a copy: %v\n", err)
			return
		}
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
	}
	<-stop
}

// growTo touches memory up to size bytes. Untouched memory is not charged.
func (h *hog) growTo(size int) {
	size = min(size, len(h.memory))
	for ; h.taken < size; h.taken += os.Getpagesize() {
		h.memory[h.taken] = 1
	}
	if held := h.taken / mebibyte; held/reportEvery != h.reported {
		h.reported = held / reportEvery
		fmt.Printf("%s holding %d MiB\n", time.Now().Format("15:04:05.000"), held)
	}
}
