package race

import (
	"cmp"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// observed returns an observation in which a hog grows by a MiB each millisecond from the 10th on, is fenced 30 ms
// after it met the threshold, stops there, and has ended 10 ms later.
func observed() observation {
	const avail, atRest, headroom = 200, 1000, 100
	begin := time.Unix(1000, 0)
	o := observation{
		rest: rest{available: avail * mebibyte, hogs: atRest * mebibyte}, headroom: headroom * mebibyte,
		rateWindow: 50 * time.Millisecond, ended: begin.Add(151 * time.Millisecond),
	}
	for i := range int64(200) {
		s := sample{at: begin.Add(time.Duration(i) * time.Millisecond), limit: 1 << 40, hogs: atRest * mebibyte}
		s.hogs += min(max(i-10, 0), 140) * mebibyte
		if i >= 141 {
			s.limit = 1150 * mebibyte
		}
		if i > 151 {
			s.hogs, s.limit = 0, 0
		}
		o.samples = append(o.samples, s)
	}
	return o
}

func TestJudge(t *testing.T) {
	var r Run
	r.judge(observed())
	// It has used up 100 of 200 MiB at 110 ms, and one more, which is the crossing, at 111 ms.
	want := Run{
		Crossed: true, Reached: 1000, Fenced: 30, Fence: 1150, Beyond: 31, Ended: 40, Freed: 41, Lowest: 60, Gap: 1,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
}

func TestJudgeWithoutCrossing(t *testing.T) {
	o := observed()
	o.headroom = 10 * mebibyte
	o.samples = o.samples[:100]
	var r Run
	r.judge(o)
	want := Run{Fenced: -1, Ended: -1, Freed: -1, Lowest: 111, Gap: 1}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
}

func TestOOMKills(t *testing.T) {
	const record = "3,1234,567890,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0," +
		"oom_memcg=%LIMIT,task_memcg=%TASK,task=hog,pid=77,uid=0\n SUBSYSTEM=memory\n"
	const pods = "/kubepods"
	names := map[string]string{"u-1": "hog-0", "u-2": "besteffort-0"}
	for _, c := range []struct {
		limit, task string
		want        OOM
		won         bool
	}{
		{"/kubepods/besteffort/podu-1", "/kubepods/besteffort/podu-1/abc", OOM{"hog", "hog-0", "abc"}, true},
		{"/kubepods/besteffort/podu-1/abc", "/kubepods/besteffort/podu-1/abc", OOM{"hog", "hog-0", "abc"}, true},
		{"/kubepods", "/kubepods/besteffort/podu-2/abc", OOM{"pods", "besteffort-0", "abc"}, false},
		{"/kubepods/burstable", "/kubepods/burstable/podu-9/abc", OOM{"pods", "", "abc"}, false},
		{"/kubepods/besteffort/podu-2", "/kubepods/besteffort/podu-2/abc", OOM{"besteffort-0", "besteffort-0", "abc"}, false},
		{"/", "/kubepods/besteffort/podu-1/abc", OOM{"other", "hog-0", "abc"}, false},
		{"/kubepods/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice",
			"/kubepods/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice/cri-containerd-abc.scope",
			OOM{"hog", "hog-0", "abc"}, true},
	} {
		k, ok := kit.ParseOOMKill(strings.NewReplacer("%LIMIT", c.limit, "%TASK", c.task).Replace(record))
		if !ok {
			t.Fatalf("no OOM kill for %+v", c)
		}
		var r Run
		r.addOOM(k, pods, names)
		if r.decide(); r.OOMs[0] != c.want || r.Won != c.won {
			t.Errorf("limit %s, task %s: %+v, won %t", c.limit, c.task, r.OOMs, r.Won)
		}
	}
	k, ok := kit.ParseOOMKill("6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0," +
		"global_oom,task_memcg=/kubepods/besteffort/podu-1/abc,task=hog,pid=77,uid=0\n")
	if !ok || place(k.Limited, pods, names) != "node" || podOf(k.Task, names) != "hog-0" {
		t.Errorf("a global OOM kill is %+v, %t", k, ok)
	}
	var r Run
	others := kit.OOMKill{Limited: "/x/kubepods", Task: "/x/kubepods/besteffort/podu-1/abc"}
	if r.addOOM(others, pods, names); r.OOMs != nil {
		t.Errorf("OOM kills of others: %+v", r.OOMs)
	}
	if _, ok := kit.ParseOOMKill("6,1,1,-;Memory cgroup out of memory: Killed process 77 (hog)"); ok {
		t.Error("another record is an OOM kill")
	}
}

// The kernel log says which containers were OOM-killed.
func TestReasonsOfContainers(t *testing.T) {
	hogs := func(one, two bool) []Status {
		return []Status{{Pod: "hog-0", oomKilled: map[string]bool{"one": one, "two": two}}}
	}
	logged := []OOM{{Limit: "hog", Victim: "hog-0", Container: "one"}}
	for _, c := range []struct {
		cgroups  string
		ooms     []OOM
		one, two bool
		wrong    int
	}{
		{kit.CgroupsV1, nil, false, false, 0},
		{kit.CgroupsV1, nil, true, false, 1},
		{kit.CgroupsV1, logged, true, false, 0},
		{kit.CgroupsV1, logged, true, true, 1},
		{kit.CgroupsV1, logged, false, true, 2},
		{kit.CgroupsV2, logged, true, true, 0},
		{kit.CgroupsV2, logged, false, true, 1},
		{kit.CgroupsV2, nil, true, true, 2},
	} {
		r := Run{Cgroups: c.cgroups, OOMs: c.ooms, Hogs: hogs(c.one, c.two)}
		if r.checkReasons(); len(r.Misreported) != c.wrong {
			t.Errorf("%+v: %q", c, r.Misreported)
		}
	}
}

func TestALostNeighbourIsALostRun(t *testing.T) {
	r := Run{Lost: []string{"guaranteed: restarted 1 times"}}
	if r.decide(); r.Won {
		t.Error("won")
	}
}

func TestRunsAreResumed(t *testing.T) {
	matrix := Matrix{
		Kubelets: []string{Stock, Ours}, Kinds: []string{BestEffort}, Caches: []string{Warm, Cold},
		Headrooms: []int64{100}, Rates: []int64{400},
	}
	cells := matrix.Cells()
	if len(cells) != 4 || cells[0].Kubelet != Ours || cells[0].Cache != Cold {
		t.Fatalf("cells: %v", cells)
	}
	file := filepath.Join(t.TempDir(), "a", "runs.jsonl")
	for _, r := range []Run{
		{Cell: cells[0], Program: "new"}, {Cell: cells[0], Program: "old"}, {Cell: cells[1], Program: "new"},
		{Cell: cells[1], Program: "new"}, {Cell: cells[1], Program: "new"},
		{Cell: cells[2], Program: "stock", Cgroups: kit.CgroupsV2},
	} {
		r.Cgroups = cmp.Or(r.Cgroups, kit.CgroupsV1)
		if err := Append(file, &r); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := Load(file)
	if err != nil || len(runs) != 6 {
		t.Fatalf("%d runs: %v", len(runs), err)
	}
	got := Remaining(cells, runs, kit.CgroupsV1, map[string]string{Ours: "new", Stock: "stock"}, 2)
	want := map[Cell]int{cells[0]: 1, cells[1]: 0, cells[2]: 2, cells[3]: 2}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("remaining %v, want %v", got, want)
	}
	if none, err := Load(file + ".none"); err != nil || none != nil {
		t.Errorf("a file that does not exist: %v, %v", none, err)
	}
}

func TestTableAndPlot(t *testing.T) {
	cell := Cell{Kubelet: Ours, Kind: BestEffort, Cache: Cold, Headroom: 100, Rate: 400}
	lost := cell
	lost.Kubelet = Stock
	runs := []Run{
		{
			Cgroups: kit.CgroupsV2, Cell: lost, Reached: 398, Fenced: -1, Ended: 260, Lowest: 0,
			OOMs: []OOM{{Limit: "pods", Victim: "hog-0"}},
		},
		{Cgroups: kit.CgroupsV1, Cell: cell, Reached: 399, Fenced: 4.25, Ended: 30, Lowest: 88, Won: true},
		{Cgroups: kit.CgroupsV1, Cell: cell, Reached: 401, Fenced: 12.5, Ended: 45.2, Lowest: 80, Won: true},
	}
	table := Table(runs)
	for _, want := range []string{
		"| v1 | ours | besteffort | cold | 100 | 400 | 399–401 | 2 | 2 | 4.2–12 | 30–45 | 80–88 | none |\n",
		"| v2 | stock | besteffort | cold | 100 | 400 | 398 | 1 | 0 | – | 260 | 0 | 1 × hog at the limit of pods |\n",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no row %sin\n%s", want, table)
		}
	}
	plot := Plot(runs)
	if strings.Count(plot, "<circle") != 3 || strings.Count(plot, "won</title>") != 2 ||
		!strings.Contains(plot, "v1, ours, cold, 100 MiB</text>") {
		t.Errorf("plot:\n%s", plot)
	}
}
