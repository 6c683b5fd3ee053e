package fence

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/await"
)

const mi = int64(1) << 20

func runFencer(t *testing.T, f *Fencer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	await.True(t, "the writer runs", func() bool {
		_, err := f.writer.do(func(func() bool) error { return nil }, nil)
		return err == nil
	})
}

func TestKernelHogStopsAtTheFence(t *testing.T) {
	p := newPod(t)
	h, neighbour := p.hog(), p.neighbour()
	h.do("grow", 64)
	usage := p.usage()
	f := p.fence(p.fencer(), Limits{Slack: 8 * mi})
	at := f.At()
	// On v1 the second limit is that of memory and swap together, on v2 of swap alone, of which the pod uses nothing.
	least, most := at, p.usage()+8*mi
	if p.config.Unified {
		least, most = 0, 0
	}
	if at < usage+5*mi || at > p.usage()+8*mi || p.limit() != at || p.swap() < least || p.swap() > most {
		t.Errorf("usage %d, fence at %d, limits %d and %d", usage, at, p.limit(), p.swap())
	}
	if p.endsAsAWhole() != p.config.Unified {
		t.Error("a pod at its fence ends in parts")
	}
	if s := p.check(f); s != (State{}) || f.OOMKilled() {
		t.Errorf("state %+v, OOM killed %t", s, f.OOMKilled())
	}
	h.begin("grow", 200)
	h.awaitKill()
	if s := p.check(f); !s.Hit {
		t.Errorf("state %+v after an OOM kill", s)
	}
	if !f.OOMKilled() {
		t.Error("no OOM kill")
	}
	// The kernel may charge a few pages above a limit, those of page tables of an ending process for example.
	if highest := p.highest(); highest > at+mi {
		t.Errorf("the pod used %d, the fence was at %d", highest, at)
	}
	neighbour.do("grow", 1)
	if again := p.fence(f.fencer, Limits{Slack: 8 * mi}); again.OOMKilled() || p.check(again).Hit {
		t.Error("a fence that was set later reports the earlier OOM kill")
	}
	if err := f.Restore(); err != nil || !f.OOMKilled() || p.endsAsAWhole() {
		t.Errorf("OOM killed %t after it was restored, as a whole %t: %v", f.OOMKilled(), p.endsAsAWhole(), err)
	}
}

// On v1 the OOM killer kills the process that has outgrown the fence of its pod; that of another container stays. On v2
// it kills both, of which the kernel log names one.
func TestKernelVictims(t *testing.T) {
	p := newPod(t)
	p.makeContainer("sidecar")
	h, sidecar := p.hog(), p.start(p.cgroup+"/sidecar")
	f := p.fencer()
	if f.Victims(p.cgroup).Spared("sidecar") {
		t.Error("a container is spared before there is an OOM kill")
	}
	p.fence(f, Limits{Slack: 8 * mi})
	h.begin("grow", 200)
	h.awaitKill()
	if p.config.Unified {
		sidecar.awaitKill()
	} else {
		sidecar.do("grow", 1)
	}
	victims := f.Victims(p.cgroup)
	if victims.Spared("container") || victims.Spared("sidecar") == p.config.Unified {
		t.Errorf("%+v", victims)
	}
}

// A pod at its fence may still displace its own page cache.
func TestKernelPageCacheIsNoHit(t *testing.T) {
	p := newPod(t)
	h := p.hog()
	h.do("cache", 64)
	f := p.fence(p.fencer(), Limits{Slack: 8 * mi})
	h.do("grow", 24)
	if p.usage() > f.At() || p.usage() < f.At()-4*mi {
		t.Fatalf("usage %d, fence at %d", p.usage(), f.At())
	}
	if s := p.check(f); s != (State{}) {
		t.Errorf("state %+v while there is page cache", s)
	}
	h.begin("grow", 100)
	h.awaitKill()
	if s := p.check(f); !s.Hit {
		t.Errorf("state %+v after an OOM kill", s)
	}
}

// The pod grows between the read of its usage and the write of the limit, by memory that cannot be reclaimed. On v2 the
// kernel sets each limit, and the OOM killer ends a pod that has more.
func TestKernelSlackIsWidened(t *testing.T) {
	for name, test := range map[string]struct {
		growths []int
		want    error
	}{
		"twice":  {growths: []int{12, 20}},
		"always": {growths: []int{12, 20, 40, 70}, want: ErrOutgrown},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.setLimit(500 * mi)
			h := p.hog()
			f := p.fencer()
			f.writer.limit = time.Minute
			writes := 0
			f.onRead = func() {
				// On v2 the hog has ended before the limit of swap is written.
				if writes < len(test.growths) && (writes == 0 || !p.config.Unified) {
					h.do("tmpfs", test.growths[writes])
				}
				writes++
			}
			fence, err := f.Fence(p.cgroup, Limits{Slack: 8 * mi})
			if p.config.Unified {
				if err != nil {
					t.Fatal(err)
				}
				defer fence.Close()
				h.awaitKill()
				if s := p.check(fence); !s.Hit || !fence.OOMKilled() || p.limit() != fence.At() {
					t.Errorf("state %+v, OOM killed %t, fence at %d, limit %d", s, fence.OOMKilled(), fence.At(), p.limit())
				}
				return
			}
			if test.want != nil {
				if !errors.Is(err, test.want) || !errors.Is(err, unix.EBUSY) || p.limit() != 500*mi || writes != 4 {
					t.Errorf("error %v, limit %d after %d writes", err, p.limit(), writes)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer fence.Close()
			if p.limit() != fence.At() || p.limit() > p.usage()+32*mi || p.limit() < p.usage()+16*mi {
				t.Errorf("usage %d, fence at %d, limit %d", p.usage(), fence.At(), p.limit())
			}
		})
	}
}

// The kernel reclaims page cache in the writer. On v1 a signal ends that, and the limit stays what it was. On v2 the
// limit is in force before that, and a signal ends the write only between two passes of reclaim, of which one may free
// all that is above the limit: so the write ends in time, with a fence, or later than the deadline.
func TestKernelDeadline(t *testing.T) {
	p := newPod(t)
	p.setLimit(500 * mi)
	h := p.hog()
	h.do("cache", 200)
	f := p.fencer()
	f.writer.limit = time.Millisecond
	// A negative slack is below the usage: it stands for page cache that was added after the usage was read.
	fence, err := f.Fence(p.cgroup, Limits{Slack: -180 * mi})
	for tries := 1; !p.config.Unified && err == nil && tries < 5; tries++ {
		// The signal was sent when all was reclaimed already: this thread had to wait for a CPU.
		if err := fence.Restore(); err != nil {
			t.Fatal(err)
		}
		p.setLimit(500 * mi)
		h.do("cache", 200)
		fence, err = f.Fence(p.cgroup, Limits{Slack: -180 * mi})
	}
	switch {
	case !p.config.Unified:
		if !errors.Is(err, ErrDeadline) || !errors.Is(err, unix.EINTR) || p.limit() != 500*mi {
			t.Fatalf("limit %d, error %v", p.limit(), err)
		}
	case err == nil:
		if p.limit() != fence.At() || !IsFence(p.limit()) {
			t.Errorf("limit %d, fence at %d", p.limit(), fence.At())
		}
		if err := fence.Restore(); err != nil {
			t.Error(err)
		}
	case !errors.Is(err, ErrDeadline):
		t.Fatal(err)
	}
	// The writer restores the limit when the kernel is done.
	await.True(t, "the limit is restored", func() bool { return p.limit() == 500*mi })
	// The writer is free again.
	f.writer.limit = time.Minute
	p.fence(f, Limits{Slack: 8 * mi})
}

func TestKernelRestoresNoLimit(t *testing.T) {
	p := newPod(t)
	f := p.fence(p.fencer(), Limits{Slack: 8 * mi})
	if p.limit() != f.At() {
		t.Errorf("fence at %d, limit %d", f.At(), p.limit())
	}
	if err := f.Restore(); err != nil || p.limit() != unlimited || p.swap() != unlimited {
		t.Errorf("restored to %d and %d: %v", p.limit(), p.swap(), err)
	}
}

func TestKernelForeignWrites(t *testing.T) {
	p := newPod(t)
	p.hog().do("grow", 32)
	f := p.fence(p.fencer(), Limits{Slack: 8 * mi})
	at := f.At()
	p.setSwap(400 * mi)
	p.setLimit(300 * mi)
	if s := p.check(f); s != (State{Replaced: true}) {
		t.Fatalf("state %+v", s)
	}
	if err := f.Set(); err != nil || p.limit() != at || f.At() != at {
		t.Errorf("set again: limit %d, fence at %d, before at %d, %v", p.limit(), f.At(), at, err)
	}
	if s := p.check(f); s != (State{}) {
		t.Errorf("state %+v after it was set again", s)
	}
	if err := f.Restore(); err != nil || p.limit() != 300*mi || p.swap() != 400*mi {
		t.Errorf("restored to %d and %d: %v", p.limit(), p.swap(), err)
	}
	if _, err := f.Check(); err == nil {
		t.Error("a fence that was lifted has a state")
	}
}

// A limit below the fence is not replaced, neither at first nor later.
func TestKernelLowerLimitStays(t *testing.T) {
	p := newPod(t)
	p.setLimit(40 * mi)
	p.hog().do("grow", 20)
	fencer := p.fencer()
	f := p.fence(fencer, Limits{Slack: 100 * mi})
	if p.limit() != 40*mi || f.At() != 40*mi {
		t.Errorf("fence at %d, limit %d", f.At(), p.limit())
	}
	if err := f.Restore(); err != nil || p.limit() != 40*mi {
		t.Errorf("restored to %d: %v", p.limit(), err)
	}
	p.setLimit(400 * mi)
	f = p.fence(fencer, Limits{Slack: 100 * mi})
	p.setLimit(60 * mi)
	if s := p.check(f); s != (State{}) {
		t.Errorf("state %+v with a lower limit", s)
	}
	if err := f.Restore(); err != nil || p.limit() != 60*mi {
		t.Errorf("restored to %d: %v", p.limit(), err)
	}
}

// The limit of the pod is below the fence and stops it; a resize that was in flight then raises it. The fence that is
// set is recognisable.
func TestKernelLimitRaisedLater(t *testing.T) {
	p := newPod(t)
	p.setLimit(40 * mi)
	p.hog().do("grow", 20)
	f := p.fence(p.fencer(), Limits{Slack: 100 * mi})
	if !p.config.Unified { // On v1 the limit of memory and swap together is never below that of memory.
		p.setSwap(600 * mi)
	}
	p.setLimit(500 * mi)
	if s := p.check(f); s != (State{Replaced: true}) {
		t.Fatalf("state %+v", s)
	}
	if err := f.Set(); err != nil || p.limit() != f.At() || !IsFence(p.limit()) {
		t.Errorf("set again: limit %d, recognisable %t, fence at %d, %v", p.limit(), IsFence(p.limit()), f.At(), err)
	}
	if err := f.Restore(); err != nil || p.limit() != 500*mi {
		t.Errorf("restored to %d: %v", p.limit(), err)
	}
}

func TestKernelPIDs(t *testing.T) {
	p := newPod(t)
	h := p.hog()
	h.do("fork", 1000)
	f := p.fence(p.fencer(), Limits{PIDs: true})
	if limit := p.number("pids", "pids.max"); limit > p.number("pids", "pids.current") || limit != f.At() {
		t.Errorf("limit %d, fence at %d", limit, f.At())
	}
	if s := p.check(f); s != (State{}) {
		t.Errorf("state %+v", s)
	}
	h.begin("fork", 1000)
	await.True(t, "a fork that fails", func() bool { return p.check(f).Hit })
	if err := f.Restore(); err != nil || p.number("pids", "pids.max") != unlimited {
		t.Errorf("restored to %d: %v", p.number("pids", "pids.max"), err)
	}
}

func TestKernelFindAndLift(t *testing.T) {
	p := newPod(t)
	expected := Expected{Memory: 200*mi + 1, PIDs: 77}
	p.hog()
	f := p.fencer()
	p.setLimit(expected.Memory)
	p.write("pids", p.cgroup, "pids.max", expected.PIDs)
	find := func() Found {
		t.Helper()
		found, err := f.Find(p.cgroup, expected)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(); !found.None() {
		t.Errorf("found %+v on a pod without a fence", found)
	}
	memory, pids := p.fence(f, Limits{Slack: 8 * mi}), p.fence(f, Limits{PIDs: true})
	found := find()
	if found != (Found{Memory: memory.At(), PIDs: pids.At(), Swap: p.swap() < unlimited}) || found.None() {
		t.Errorf("found %+v", found)
	}
	if err := f.Lift(p.cgroup, found, expected); err != nil {
		t.Fatal(err)
	}
	if p.limit() != 200*mi || p.swap() != unlimited || p.number("pids", "pids.max") != 77 || !find().None() {
		t.Errorf("lifted to %d, %d and %d", p.limit(), p.swap(), p.number("pids", "pids.max"))
	}
	if p.endsAsAWhole() {
		t.Error("the OOM killer still ends the pod as a whole")
	}
	// By chance the limit of a pod is recognisable: it is that of the pod's specification, or above it while the pod is
	// being resized.
	p.setLimit(memory.At())
	p.write("pids", p.cgroup, "pids.max", pidModulus+pidRemainder)
	for _, other := range []Expected{
		{Memory: memory.At(), PIDs: pidModulus + pidRemainder}, {Memory: memory.At() - mi, PIDs: pidRemainder},
	} {
		if found, err := f.Find(p.cgroup, other); err != nil || !found.None() {
			t.Errorf("found %+v, %v where %+v is expected", found, err, other)
		}
	}
}

// openFiles returns how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A fence that was prepared knows nothing of what was before it is set.
func TestKernelPreparedFence(t *testing.T) {
	p := newPod(t)
	f := p.fencer()
	h := p.hog()
	f.Prepare(p.cgroup)
	p.setLimit(100 * mi)
	h.begin("grow", 200)
	h.awaitKill()
	p.setLimit(300 * mi)
	p.neighbour().do("grow", 64)
	usage := p.usage()
	fence := p.fence(f, Limits{Slack: 8 * mi})
	if f.prepared != nil {
		t.Error("the prepared fence is not used")
	}
	if at := fence.At(); at < usage+5*mi || at > p.usage()+8*mi || p.limit() != at {
		t.Errorf("usage %d, fence at %d, limit %d", usage, at, p.limit())
	}
	if s := p.check(fence); s != (State{}) || fence.OOMKilled() {
		t.Errorf("state %+v, OOM killed %t by what was before", s, fence.OOMKilled())
	}
	if err := fence.Restore(); err != nil || p.limit() != 300*mi || p.endsAsAWhole() {
		t.Errorf("limit %d after the fence, ends as a whole %t: %v", p.limit(), p.endsAsAWhole(), err)
	}
}

// A fence is prepared on a pod that then gets none, on one without a cgroup, and on one whose cgroup is removed and
// created again.
func TestKernelPreparedInVain(t *testing.T) {
	p := newPod(t)
	f := p.fencer()
	before := openFiles(t)
	f.Prepare(p.cgroup)
	f.Prepare(p.cgroup + "/missing")
	if f.prepared == nil {
		t.Error("a pod without a cgroup replaces one with a cgroup")
	}
	f.Prepare(p.cgroup + "/container")
	f.Prepare(p.cgroup)
	dir := filepath.Join(p.config.Mounts["memory"], p.cgroup)
	for _, name := range []string{"container", "."} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Fence(p.cgroup, Limits{Slack: 8 * mi}); !IsGone(err) {
		t.Errorf("error %v for a cgroup that does not exist any more", err)
	}
	if f.prepared != nil || openFiles(t) != before {
		t.Errorf("%d files are open, %d were before", openFiles(t), before)
	}
	create := func() {
		for _, name := range []string{".", "container"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	create()
	f.Prepare(p.cgroup)
	for _, name := range []string{"container", "."} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	create()
	p.setLimit(300 * mi)
	fence := p.fence(f, Limits{Slack: 8 * mi})
	if p.limit() != fence.At() {
		t.Errorf("limit %d, want %d", p.limit(), fence.At())
	}
	if err := fence.Restore(); err != nil {
		t.Error(err)
	}
	f.Prepare(p.cgroup)
	pids := p.fence(f, Limits{PIDs: true})
	if err := pids.Restore(); err != nil || openFiles(t) != before {
		t.Errorf("%d files are open, %d were before: %v", openFiles(t), before, err)
	}
}

func TestKernelRemovedCgroup(t *testing.T) {
	p := newPod(t)
	f := p.fencer()
	p.setLimit(300 * mi)
	fence := p.fence(f, Limits{Slack: 8 * mi})
	for _, dir := range []string{"container", "."} {
		if err := os.Remove(filepath.Join(p.config.Mounts["memory"], p.cgroup, dir)); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.check(fence); s != (State{Gone: true}) {
		t.Errorf("state %+v", s)
	}
	if err := fence.Restore(); err != nil {
		t.Error(err)
	}
	if _, err := f.Fence(p.cgroup, Limits{Slack: 8 * mi}); !IsGone(err) {
		t.Errorf("error %v for a cgroup that does not exist", err)
	}
	if found, err := f.Find(p.cgroup, Expected{}); err != nil || !found.None() {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := f.Lift(p.cgroup, Found{Memory: 1, PIDs: -1}, Expected{}); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{".", "container"} { // for the clean-up
		if err := os.Mkdir(filepath.Join(p.config.Mounts["memory"], p.cgroup, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// The agent was killed after it had fenced a pod that has nearly reached its own limit of memory: only swap has another
// one.
func TestKernelFindAndLiftWhereThePodsLimitIsTheFence(t *testing.T) {
	p := newPod(t)
	expected := Expected{Memory: 40 * mi}
	p.setLimit(expected.Memory)
	p.hog().do("grow", 20)
	f := p.fencer()
	p.fence(f, Limits{Slack: 100 * mi})
	if p.limit() != expected.Memory {
		t.Fatalf("limit %d", p.limit())
	}
	found, err := f.Find(p.cgroup, expected)
	if err != nil || found != (Found{PIDs: -1, Swap: p.swap() < unlimited}) {
		t.Errorf("found %+v, %v, where swap is limited to %d", found, err, p.swap())
	}
	if err := f.Lift(p.cgroup, found, expected); err != nil {
		t.Fatal(err)
	}
	if p.swap() != unlimited || p.limit() != expected.Memory || found.Swap && p.endsAsAWhole() {
		t.Errorf("lifted to %d and %d, ends as a whole: %t", p.limit(), p.swap(), p.endsAsAWhole())
	}
	if found, err := f.Find(p.cgroup, expected); err != nil || !found.None() {
		t.Errorf("found %+v, %v after that", found, err)
	}
}

// The agent was killed while a pod was fenced, and starts again.
func TestKernelFenceOfAnEarlierRun(t *testing.T) {
	tests := map[string]struct {
		unknown, evicted, fenced, killFails bool
		// lists is how often the list of cgroups fails.
		lists int
		// lifted and kills are what is expected of two calls.
		lifted bool
		kills  int
	}{
		"lifted":                       {lifted: true},
		"killed, its eviction goes on": {evicted: true, kills: 1},
		"killed at the second try":     {evicted: true, killFails: true, kills: 2},
		"a fence of this run":          {evicted: true, fenced: true},
		"a pod that is newer":          {unknown: true},
		"the list fails at the start":  {lists: 1, lifted: true},
		"the list fails each time":     {lists: 10, lifted: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.setLimit(300 * mi)
			f := p.fencer()
			at := p.fence(f, Limits{Slack: 8 * mi}).At()
			left := NewLeft(f)
			lists := 0
			err := left.Begin(func() (map[types.UID]bool, error) {
				if lists++; lists <= test.lists {
					return nil, errors.New("no list")
				}
				return map[types.UID]bool{"pod": !test.unknown}, nil
			})
			if (err != nil) != (test.lists > 0) {
				t.Errorf("begin: %v", err)
			}
			kills := 0
			pod := &Pod{
				UID: "pod", Cgroup: p.cgroup, Expected: Expected{Memory: 300 * mi}, Evicted: test.evicted,
				Fenced: func() bool { return test.fenced },
				Kill: func() error {
					if kills++; kills == 1 && test.killFails {
						return errors.New("no kill")
					}
					return nil
				},
			}
			first := left.Repair(t.Context(), pod)
			if second := left.Repair(t.Context(), pod); (first != nil) != test.killFails || second != nil {
				t.Errorf("errors %v and %v", first, second)
			}
			want := at
			if test.lifted {
				want = 300 * mi
			}
			if p.limit() != want || kills != test.kills {
				t.Errorf("limit %d, want %d; %d kills, want %d", p.limit(), want, kills, test.kills)
			}
		})
	}
}
