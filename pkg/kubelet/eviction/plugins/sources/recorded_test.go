package sources

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
)

// recordedMachine is what the files of a recorded machine with cgroup v2 have, read by other means.
type recordedMachine struct {
	// zones have managed, free, min, low and nr_inactive_file of each NUMA node, in pages: sums of the zones with memory.
	zones [][5]int64
	// free and total are those of meminfo in KiB, stolen is pgsteal_kswapd.
	free, total, stolen int64
	// stall, podStall and cpuStall are some avg10 of the node's memory, of a pod's, and of the node's CPUs.
	stall, podStall, cpuStall float64
	// idle and allTime are sums of the first line of stat; periods, throttled and used are those of the cgroup of all
	// pods, used in microseconds.
	idle, allTime, periods, throttled, used int64
	// usage, resident and byNode are those of a pod that fills the last NUMA node, in bytes.
	usage, resident int64
	byNode          []int64
}

// recordedMachines are those of package test/numa.
func recordedMachines() map[string]recordedMachine {
	return map[string]recordedMachine{
		"linux-6.1-1-node": {
			zones: [][5]int64{{377543, 16665, 11263, 14078, 0}},
			free:  66660, total: 1510172, stolen: 0, stall: 56.53, podStall: 57.81, cpuStall: 54.31,
			idle: 1216, allTime: 3160, periods: 94, throttled: 90, used: 20177765,
			usage: 1155006464, resident: 1152487424, byNode: []int64{1152487424},
		},
		"linux-6.1-2-nodes": {
			zones: [][5]int64{{378604, 313227, 11636, 14544, 0}, {370096, 14053, 10891, 13613, 0}},
			free:  1309120, total: 2994800, stolen: 0, stall: 60.97, podStall: 57.81, cpuStall: 44.11,
			idle: 6743, allTime: 10583, periods: 91, throttled: 88, used: 37934835,
			usage: 1248854016, resident: 1246138368, byNode: []int64{0, 1246138368},
		},
		"linux-6.1-4-nodes": {
			zones: [][5]int64{
				{386707, 345700, 8695, 10868, 0},
				{370550, 361032, 7932, 9914, 0},
				{378864, 347031, 8471, 10588, 0},
				{386514, 16273, 8691, 10863, 0},
			},
			free: 4276048, total: 6090540, stolen: 0, stall: 57.85, podStall: 62.26, cpuStall: 34.24,
			idle: 21895, allTime: 26997, periods: 83, throttled: 81, used: 35799641,
			usage: 1351614464, resident: 1348505600, byNode: []int64{0, 0, 0, 1348505600},
		},
		"linux-6.12-1-node": {
			zones: [][5]int64{{376227, 16422, 11263, 14078, 0}},
			free:  65688, total: 1504908, stolen: 0, stall: 62.65, podStall: 68.15, cpuStall: 59.85,
			idle: 1235, allTime: 3359, periods: 92, throttled: 89, used: 19201386,
			usage: 1157365760, resident: 1154977792, byNode: []int64{1154977792},
		},
		"linux-6.12-2-nodes": {
			zones: [][5]int64{{377289, 314795, 11620, 14524, 0}, {370090, 15660, 10906, 13631, 0}},
			free:  1321816, total: 2989516, stolen: 0, stall: 59.37, podStall: 57.67, cpuStall: 37.48,
			idle: 5560, allTime: 8784, periods: 83, throttled: 81, used: 27128445,
			usage: 1241518080, resident: 1238626304, byNode: []int64{0, 1238626304},
		},
		"linux-6.12-4-nodes": {
			zones: [][5]int64{
				{386703, 344507, 8701, 10875, 0},
				{370546, 359415, 7938, 9922, 0},
				{377549, 349742, 8454, 10567, 0},
				{386504, 15079, 8697, 10871, 0},
			},
			free: 4275096, total: 6085208, stolen: 0, stall: 65.83, podStall: 84.47, cpuStall: 36.38,
			idle: 34714, allTime: 41790, periods: 84, throttled: 82, used: 92355696,
			usage: 1321730048, resident: 1318797312, byNode: []int64{0, 0, 0, 1318797312},
		},
	}
}

// recordedTree returns a mount point of proc with the files of a recorded machine, and the cgroup of a pod with them.
func recordedTree(t *testing.T, machine string) (proc string, cgroups Cgroups) {
	t.Helper()
	files, proc := newTree(t), t.TempDir()
	for name, path := range map[string]string{
		"zoneinfo": "zoneinfo", "meminfo": "meminfo", "vmstat": "vmstat", "stat": "stat", "pressure-cpu": "pressure/cpu",
		"pressure-memory": "pressure/memory",
	} {
		path = filepath.Join(proc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, recorded(t, filepath.Join(machine, name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"memory.numa_stat", "memory.stat", "memory.current", "memory.pressure", "cpu.stat"} {
		files.write("full", name, recorded(t, filepath.Join(machine, "v2-"+name)))
	}
	return proc, files.cgroups(true, "memory", "cpu")
}

// TestRecordedMachines parses all files of the recorded machines with cgroup v2.
func TestRecordedMachines(t *testing.T) {
	for machine, want := range recordedMachines() {
		t.Run(machine, func(t *testing.T) {
			proc, cgroups := recordedTree(t, machine)
			want.checkZones(t, recorded(t, filepath.Join(machine, "zoneinfo")))
			want.checkNode(t, proc, cgroups)
			want.checkPod(t, cgroups)
		})
	}
}

func (m *recordedMachine) checkZones(t *testing.T, zoneinfo []byte) {
	t.Helper()
	var want []numamemory.Zone
	for n, z := range m.zones {
		want = append(want, numamemory.Zone{
			Node: n, Total: z[0] * page, Free: z[1] * page, Min: z[2] * page, Low: z[3] * page, InactiveFile: z[4] * page,
		})
	}
	if got, err := parseZoneinfo(zoneinfo, page); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func (m *recordedMachine) checkNode(t *testing.T, proc string, cgroups Cgroups) {
	t.Helper()
	memory, err := NewNodeMemory(proc).Node()
	// The file of watermark_scale_factor, a number, is not recorded.
	if !names(err, "watermark_scale_factor") || *memory.Free != m.free<<10 || *memory.Total != m.total<<10 ||
		*memory.Stolen != m.stolen || *memory.Stall != m.stall {
		t.Errorf("%+v, %v", memory, err)
	}
	cpu, err := NewCPU(proc, cgroups, "/kubepods/full", 1).Node()
	if err != nil || *cpu.Stall != m.cpuStall || *cpu.Idle != m.idle || *cpu.Total != m.allTime ||
		*cpu.Periods != m.periods || *cpu.Throttled != m.throttled {
		t.Errorf("%+v, %v", cpu, err)
	}
}

func (m *recordedMachine) checkPod(t *testing.T, cgroups Cgroups) {
	t.Helper()
	list := pods("full")
	memory := NewPodMemory(cgroups)
	usage, err := memory.Usage(list)
	if err != nil || usage["full"] != m.usage {
		t.Errorf("usage %v, %v", usage, err)
	}
	if stalls, err := memory.Stalls(list); err != nil || stalls["full"] != m.podStall {
		t.Errorf("stalls %v, %v", stalls, err)
	}
	if resident, err := NewResident(cgroups).Bytes(list); err != nil || resident["full"] != m.resident {
		t.Errorf("resident set %v, %v", resident, err)
	}
	byNode, err := NewNUMAMemory(cgroups).ByNode(list)
	if err != nil || len(byNode["full"]) != len(m.byNode) {
		t.Errorf("by NUMA node %v, %v", byNode, err)
	}
	for n, bytes := range m.byNode {
		if byNode["full"][n] != bytes {
			t.Errorf("NUMA node %d: %d, want %d", n, byNode["full"][n], bytes)
		}
	}
	used, err := NewCPU(t.TempDir(), cgroups, "/kubepods", 1).Used(list)
	if err != nil || used["full"] != time.Duration(m.used)*time.Microsecond {
		t.Errorf("CPU time %v, %v", used, err)
	}
}

// addRecorded adds a file of all recorded machines to the seeds of a fuzz test.
func addRecorded(f *testing.F, name string, more ...any) {
	f.Helper()
	for machine := range recordedMachines() {
		f.Add(append([]any{recorded(f, filepath.Join(machine, name))}, more...)...)
	}
}
