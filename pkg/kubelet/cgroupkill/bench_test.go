package cgroupkill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkKill measures how long a pod with much memory takes to end (gone-ms), and its memory to come back
// (freed-ms), with and without process_mrelease. The pod has the CPU share of a BestEffort pod, and other processes use
// all cores.
func BenchmarkKill(b *testing.B) {
	for _, size := range []int64{1 << 30, 4 << 30} {
		for name, kill := range map[string]func(*Killer, context.Context, string) error{
			"signals": func(k *Killer, _ context.Context, pod string) error { return k.killOnce(pod) },
			"release": (*Killer).Kill,
		} {
			b.Run(fmt.Sprintf("size=%dGi/kill=%s", size>>30, name), func(b *testing.B) {
				p := newBigPods(b, size)
				var gone, freed time.Duration
				for b.Loop() {
					g, f := p.kill(kill)
					gone, freed = gone+g, freed+f
				}
				b.ReportMetric(float64(gone.Milliseconds())/float64(b.N), "gone-ms")
				b.ReportMetric(float64(freed.Milliseconds())/float64(b.N), "freed-ms")
			})
		}
	}
}

// bigPods are pods of one size, one after the other, in a cgroup with a small CPU share.
type bigPods struct {
	testCgroup
	b    *testing.B
	size int64
	// usage is the file with the memory that the pods use.
	usage string
	count int
}

func newBigPods(b *testing.B, size int64) *bigPods {
	p := &bigPods{b: b, size: size}
	config := Config{Mounts: map[string]string{}}
	for _, controller := range []string{"freezer", "pids", "memory", "cpu"} {
		config.Mounts[controller] = filepath.Join("/sys/fs/cgroup", controller)
	}
	usage, share, least := "memory.usage_in_bytes", "cpu.shares", "2"
	if hasFile("/sys/fs/cgroup", "cgroup.controllers") {
		config = Config{Unified: true, Mounts: map[string]string{"": "/sys/fs/cgroup"}}
		usage, share, least = "memory.current", "cpu.weight", "1"
	}
	p.testCgroup = newTestCgroup(b, config)
	file := func(controller, name string) string {
		if config.Unified {
			controller = ""
		}
		return filepath.Join(config.Mounts[controller], p.name, name)
	}
	p.usage = file("memory", usage)
	if err := writeFile(file("cpu", share), least); err != nil {
		b.Fatal(err)
	}
	return p
}

func (p *bigPods) used() int64 {
	data, err := os.ReadFile(p.usage)
	if err != nil {
		p.b.Fatal(err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		p.b.Fatal(err)
	}
	return used
}

// kill starts a pod, waits until it has its size, makes all cores busy, and kills the pod.
func (p *bigPods) kill(kill func(*Killer, context.Context, string) error) (gone, freed time.Duration) {
	p.b.StopTimer()
	defer p.b.StartTimer()
	pod := p.mkdir(fmt.Sprintf("pod-%d", p.count))
	p.count++
	// There is no end of line in it: tail keeps all.
	victim := p.inCgroup(pod, fmt.Sprintf("echo; { head -c %d /dev/zero; exec sleep 1000; } | tail -n 1", p.size))
	ctx, cancel := context.WithTimeout(p.b.Context(), 5*time.Minute)
	defer cancel()
	p.await(ctx, func() bool { return p.used() >= p.size })
	var busy []child
	for range runtime.NumCPU() {
		busy = append(busy, start(p.b, "echo; while :; do :; done"))
	}
	begin := time.Now()
	killed := make(chan error, 1)
	go func() { killed <- kill(p.killer(), ctx, pod) }()
	p.await(ctx, func() bool {
		if gone == 0 && len(p.members()) == 0 {
			gone = time.Since(begin)
		}
		if freed == 0 && p.used() < p.size/10 {
			freed = time.Since(begin)
		}
		return gone > 0 && freed > 0
	})
	for _, c := range busy {
		_ = c.cmd.Process.Kill() // It runs until then.
	}
	if err := <-killed; err != nil {
		p.b.Fatal(err)
	}
	<-victim.ended
	return gone, freed
}

// await checks each millisecond.
func (p *bigPods) await(ctx context.Context, done func() bool) {
	p.b.Helper()
	for !done() {
		select {
		case <-ctx.Done():
			p.b.Fatal(context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}
