package fence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/test/await"
)

func TestMemoryFence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		usage := rapid.Int64Range(0, 1<<40).Draw(t, "usage") / pageSize * pageSize
		slack := rapid.Int64Range(0, 1<<32).Draw(t, "slack")
		present := rapid.OneOf(rapid.Just(unlimited), rapid.Int64Range(usage, 1<<42)).Draw(t, "present")
		limit := memoryFence(usage, slack, present)
		switch {
		case limit == present:
			if slack >= pageModulus*pageSize && present > usage+slack {
				t.Errorf("no fence below %d", present)
			}
		case !ours(limit):
			t.Errorf("%d is not recognisable", limit)
		case limit < usage || limit > present || limit > max(usage+slack, usage+pageModulus*pageSize):
			t.Errorf("limit %d", limit)
		case slack >= pageModulus*pageSize && (limit > usage+slack || limit < usage+slack-pageModulus*pageSize):
			t.Errorf("limit %d is far from %d", limit, usage+slack)
		}
	})
}

// Whatever the size of a page, rounding leaves no more than the slack.
func TestMemoryFenceByPageSize(t *testing.T) {
	defer func(size, modulus, remainder int64) {
		pageSize, pageModulus, pageRemainder = size, modulus, remainder
	}(pageSize, pageModulus, pageRemainder)
	const slack = 8 * mi
	for _, size := range []int64{4 << 10, 16 << 10, 64 << 10} {
		pageSize = size
		pageModulus, pageRemainder = recognisable(size)
		for usage := 1024 * mi; usage < 1088*mi; usage += size {
			limit := memoryFence(usage, slack, unlimited)
			if !ours(limit) || limit > usage+slack || limit < usage+slack-rounding {
				t.Fatalf("pages of %d bytes: limit %d for a usage of %d", size, limit, usage)
			}
		}
	}
}

func TestPIDFence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(0, 1<<22).Draw(t, "count")
		present := rapid.OneOf(rapid.Just(unlimited), rapid.Int64Range(0, 1<<22)).Draw(t, "present")
		limit := pidFence(count, present)
		if limit > count && limit != present || limit > present || limit < count-pidModulus && limit != present ||
			limit < 0 || limit != present && !oursPIDs(limit) {
			t.Errorf("limit %d", limit)
		}
	})
}

// Limits as people write them, in powers of two and of ten, are hardly ever recognisable.
func TestRoundLimitsAreNotOurs(t *testing.T) {
	for _, unit := range []int64{1 << 30, 256 << 20, 1e9, 500e6} {
		for n := int64(1); n <= 32; n++ {
			if limit := n * unit / pageSize * pageSize; ours(limit) {
				t.Errorf("%d × %d", n, unit)
			}
		}
	}
	for n := int64(64); n <= 1<<16; n *= 2 {
		if oursPIDs(n) || oursPIDs(n/64*100) {
			t.Errorf("%d PIDs", n)
		}
	}
	if ours(unlimited) || ours(0) || oursPIDs(unlimited) {
		t.Error("no limit")
	}
}

// The kernel does not return: the caller goes on, and the writer undoes the write when the kernel returns.
func TestNothingWaitsForTheWriter(t *testing.T) {
	f := New(Config{})
	f.writer.limit = time.Millisecond
	runFencer(t, f)
	stuck, undone := make(chan struct{}), make(chan struct{})
	await.True(t, "the writer is stuck", func() bool { // On a busy machine it does not take the first request in time.
		left, err := f.writer.do(func(func() bool) error { <-stuck; return nil }, func() { close(undone) })
		if !errors.Is(err, ErrDeadline) {
			t.Errorf("left %t, error %v", left, err)
		}
		return left
	})
	if left, err := f.writer.do(func(func() bool) error { return nil }, nil); left || !errors.Is(err, ErrDeadline) {
		t.Errorf("the next write: left %t, error %v", left, err)
	}
	close(stuck)
	<-undone
	f.writer.limit = time.Minute
	if left, err := f.writer.do(func(func() bool) error { return nil }, nil); left || err != nil {
		t.Errorf("the last write: left %t, error %v", left, err)
	}
}

// fencedAt and unfencedAt are limits in kB: of a fence, and of no fence.
const fencedAt, unfencedAt = (100*509 + 307) * 4, 204800

func TestVictims(t *testing.T) {
	const pod = "/kubepods/besteffort/pod1"
	limit := func(kilobytes int) string {
		return fmt.Sprintf("6,1,1,-;memory: usage %dkB, limit %dkB, failcnt 9\n", kilobytes, kilobytes)
	}
	kill := func(limited, task string, pid int) string {
		return fmt.Sprintf("6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=%s,task_memcg=%s,task=x,"+
			"pid=%d,uid=0\n", limited, task, pid)
	}
	killed := func(pid int) string {
		return fmt.Sprintf("3,1,1,-;Memory cgroup out of memory: Killed process %d (x) total-vm:1kB, anon-rss:1kB\n", pid)
	}
	atFence := []string{limit(fencedAt), "6,1,1,-;swap: usage 0kB, limit 9007199254740988kB, failcnt 0\n",
		kill(pod, pod+"/aaa", 7), killed(7)}
	for name, test := range map[string]struct {
		records []string
		spared  []string
	}{
		"nothing":          {},
		"one at the fence": {records: atFence, spared: []string{"bbb"}},
		"below another root": {
			records: []string{limit(fencedAt), kill("/x"+pod, "/x"+pod+"/aaa", 7)}, spared: []string{"bbb"},
		},
		"of systemd": {
			records: []string{limit(fencedAt), kill(pod, pod+"/cri-containerd-aaa.scope", 7)}, spared: []string{"bbb"},
		},
		"another at its own limit": {
			records: slices.Concat(atFence, []string{limit(unfencedAt), kill(pod+"/bbb", pod+"/bbb", 8), killed(8)}),
		},
		"the pod's own limit":          {records: []string{limit(unfencedAt), kill(pod, pod+"/aaa", 7), killed(7)}},
		"the limit of all pods":        {records: []string{limit(fencedAt), kill("/kubepods", pod+"/aaa", 7), killed(7)}},
		"another pod":                  {records: []string{limit(fencedAt), kill(pod+"2", pod+"2/aaa", 7), killed(7)}},
		"no limit":                     {records: []string{kill(pod, pod+"/aaa", 7), killed(7)}},
		"the limit of an earlier kill": {records: []string{limit(fencedAt), kill("/x", "/x", 6), kill(pod, pod+"/aaa", 7)}},
		"a record is left out":         {records: append(slices.Clone(atFence), killed(8))},
		"one was left out before":      {records: append([]string{killed(8)}, atFence...), spared: []string{"bbb"}},
		"of the node, later": {records: append(slices.Clone(atFence),
			"3,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/y,task=y,pid=9,uid=0\n",
			"3,1,1,-;Out of memory: Killed process 9 (y) total-vm:1kB\n"), spared: []string{"bbb"}},
		"a name like a field": {records: []string{limit(fencedAt), strings.Replace(
			kill(pod, pod+"/aaa", 7), "task=x", "task=,task_memcg=/x", 1), killed(7)}, spared: []string{"bbb"}},
		"a name like a record": {records: slices.Concat(atFence[:1],
			[]string{"6,1,1,-;[      7]     0     7        1        1    4096        0     0 ;oom-kill:x\n"}, atFence[1:]),
			spared: []string{"bbb"}},
		"nonsense": {records: []string{"", ";memory: usage , limit xkB", ";oom-kill:", ";Out of memory: Killed process "}},
	} {
		t.Run(name, func(t *testing.T) {
			r := victimReader{cgroup: pod}
			for _, record := range test.records {
				r.add(record)
			}
			for _, container := range []string{"aaa", "bbb"} {
				if got, want := r.victims.Spared(container), slices.Contains(test.spared, container); got != want {
					t.Errorf("%s spared: %t, want %t", container, got, want)
				}
			}
		})
	}
	if v := New(Config{KernelLog: t.TempDir() + "/none"}).Victims(pod); v.Spared("bbb") {
		t.Error("spared without a kernel log")
	}
}

func TestOOMRecords(t *testing.T) {
	const pod = "/kubepods/burstable/pod1"
	record := func(text string) string { return "6,1234,5678,-;" + text + "\n SUBSYSTEM=x\n" }
	for text, want := range map[string]OOM{
		record("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0,oom_memcg=/kubepods/burstable/" +
			"pod1,task_memcg=/kubepods/burstable/pod1/c,task=hog,pid=1,uid=0"): {Inside: true},
		record("oom-kill:oom_memcg=/root/kubepods/burstable/pod1/c,task_memcg=/root/kubepods/burstable/pod1/c,task=x"): {
			Inside: true},
		record("oom-kill:oom_memcg=/kubepods,task_memcg=/kubepods/burstable/pod1/c,task=x"):                  {Outside: true},
		record("oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/kubepods/burstable/pod1,task=x"):  {Outside: true},
		record("oom-kill:oom_memcg=/kubepods/burstable/pod12,task_memcg=/kubepods/burstable/pod12/c,task=x"): {},
		record("Memory cgroup out of memory: Killed process 1 (oom_memcg=/kubepods/burstable/pod1)"):         {},
		record("oom-kill:oom_memcg=/kubepods/burstable/pod1"):                                                {},
		record("oom-kill:oom_memcg=/kubepods/burstable/pod1,task_memcg=/kubepods/burstable/pod1/c,task=,oom_memcg=/x"): {
			Inside: true},
		"oom-kill": {},
	} {
		if got := oomOf([]byte(text), pod); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// memory.oom.group is restored to what it was just before the fence, also if it was another value when the files were
// opened: a fence of an earlier run may have been lifted in between (Left.Repair).
func TestGroupIsRestoredToItsValueBeforeTheFence(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "pod")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"memory.current": "104857600\n", "memory.max": "9223372036854771712\n", "memory.swap.current": "0\n",
		"memory.swap.max": "0\n", "memory.events": "oom_kill 0\n", "memory.oom.group": "1\n",
	} {
		write(name, text)
	}
	f := New(Config{Unified: true, Mounts: map[string]string{"memory": root}, KernelLog: filepath.Join(root, "none")})
	runFencer(t, f)
	f.Prepare("pod")
	write("memory.oom.group", "0\n")
	p, err := f.Fence("pod", Limits{Slack: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "memory.oom.group"))
	if err != nil || strings.TrimSpace(string(got)) != "0" {
		t.Errorf("memory.oom.group is %q after the fence, was 0 before (%v)", got, err)
	}
}
