// Command hog fills memory at a given rate, to put a node under memory pressure. It touches --start at once, waits
// --delay, grows by --rate each second up to --limit, and keeps that until SIGTERM. It exits with --code.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const mebibyte = 1 << 20

// step is how often the hog grows: fine enough to look like a steady leak.
const step = 10 * time.Millisecond

// reportEvery is how much growth, in MiB, is worth a line of output.
const reportEvery = 100

func main() {
	start := flag.Int("start", 64, "memory to take at once, in `MiB`")
	rate := flag.Int("rate", 20, "growth in `MiB` per second")
	limit := flag.Int("limit", 1024, "memory to stop growing at, in `MiB`")
	delay := flag.Duration("delay", 0, "time to wait before growing")
	code := flag.Int("code", 128+int(syscall.SIGTERM), "exit `code` when told to stop")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	memory, err := unix.Mmap(-1, 0, *limit*mebibyte, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Fprintf(os.Stderr, "hog: reserve %d MiB: %v\n", *limit, err)
		os.Exit(1)
	}
	h := hog{memory: memory}
	h.growTo(*start * mebibyte)
	select {
	case <-stop:
	case <-time.After(*delay):
		h.run(stop, *rate*mebibyte)
	}
	os.Exit(*code)
}

type hog struct {
	memory   []byte
	taken    int
	reported int
}

// run grows until the limit is reached or a signal comes.
func (h *hog) run(stop <-chan os.Signal, rate int) {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	first, began := h.taken, time.Now()
	for {
		select {
		case <-stop:
			return
		case now := <-ticker.C:
			h.growTo(first + int(now.Sub(began).Seconds()*float64(rate)))
		}
	}
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
