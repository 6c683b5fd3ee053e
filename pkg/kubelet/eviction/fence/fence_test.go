package fence

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"
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

// The kernel does not return: the caller goes on, and the thread undoes the write when the kernel returns.
func TestNothingWaitsForTheThread(t *testing.T) {
	f := New(Config{})
	f.thread.limit = time.Millisecond
	runFencer(t, f)
	stuck, undone := make(chan struct{}), make(chan struct{})
	left, err := f.thread.do(func(func() bool) error { <-stuck; return nil }, func() { close(undone) })
	if !left || !errors.Is(err, ErrDeadline) {
		t.Errorf("left %t, error %v", left, err)
	}
	if left, err := f.thread.do(func(func() bool) error { return nil }, nil); left || !errors.Is(err, ErrDeadline) {
		t.Errorf("the next write: left %t, error %v", left, err)
	}
	close(stuck)
	<-undone
	f.thread.limit = time.Minute
	if left, err := f.thread.do(func(func() bool) error { return nil }, nil); left || err != nil {
		t.Errorf("the last write: left %t, error %v", left, err)
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
		"oom-kill": {},
	} {
		if got := oomOf([]byte(text), pod); got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}
