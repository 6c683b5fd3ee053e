package snapshot

import (
	"math"
	"testing"
	"time"
)

func fsOf(bytes Bytes, inodes Inodes) FsUsage { return FsUsage{Bytes: bytes, Inodes: inodes} }

// unknownUsage is the usage of a pod without stats.
func unknownUsage() *Usage {
	return &Usage{Memory: Unknown, AnonymousMemory: Unknown, PIDs: Unknown, LocalStorage: Unknown}
}

func TestUsage(t *testing.T) {
	volume := func(name string, bytes Bytes) VolumeUsage { return VolumeUsage{name, fsOf(bytes, 1)} }
	pod := Pod{Facts: NewFacts(examplePod(), true), Usage: unknownUsage(), Images: Unknown}
	pod.Usage.Containers = []ContainerUsage{
		{WritableLayer: fsOf(1, 10), Logs: fsOf(2, 20)},
		{WritableLayer: fsOf(Unknown, Unknown), Logs: fsOf(Unknown, Unknown)},
	}
	pod.Usage.Volumes = []VolumeUsage{volume("disk", 4), volume("disk", 4), volume("secret", 100), volume("host", 8)}
	all := Measure{WritableLayers: true, Logs: true, Volumes: true}
	for _, test := range []struct {
		measure Measure
		bytes   Bytes
		inodes  Inodes
	}{{all, 15, 32}, {Measure{Logs: true}, 2, 20}, {Measure{Volumes: true}, 12, 2}} {
		if got, known := pod.Disk(test.measure); got != test.bytes || !known {
			t.Errorf("%+v: %d bytes, known %v", test.measure, got, known)
		}
		if got, known := pod.Inodes(test.measure); got != test.inodes || !known {
			t.Errorf("%+v: %d inodes, known %v", test.measure, got, known)
		}
	}
	if _, known := pod.Disk(Measure{Images: true}); known || pod.Memory().Known || pod.PIDs().Known {
		t.Error("what is absent is unknown, not zero")
	}
	pod.Images = 5
	if got, known := pod.Disk(Measure{WritableLayers: true, Images: true}); got != 6 || !known {
		t.Errorf("with images: %d bytes, known %v", got, known)
	}
	pod.Usage.Memory, pod.Usage.MemoryDate = 3, 5e9
	if got, want := pod.Memory(), Known(Bytes(3), time.Unix(5, 0)); got != want {
		t.Errorf("memory %+v, want %+v", got, want)
	}
	pod.Usage.PIDs, pod.Cgroup = 1, &Memory{}
	if got := pod.PIDs(); got.Amount != 1 || !got.Known {
		t.Errorf("processes by the stats: %+v", got)
	}
	pod.Cgroup.Processes = Known(PIDs(900), time.Time{})
	if got := pod.PIDs(); got.Amount != 900 || !got.Known {
		t.Errorf("the stats are from before the pod began to fork: %+v", got)
	}
	for _, absurd := range []Bytes{maxPlausible + 1, math.MaxInt64, math.MinInt64} {
		pod.Usage.Containers[0].WritableLayer.Bytes = absurd
		if got, known := pod.Disk(all); got != 14 || !known {
			t.Errorf("%d bytes with a layer of %d, which counts as unknown", got, absurd)
		}
	}
}

// TestCertainRelease: anonymous memory is released, and files in memory when their volume is unmounted; page cache may
// stay.
func TestCertainRelease(t *testing.T) {
	usage := func(anonymous Bytes) *Usage {
		u := unknownUsage()
		u.Memory, u.AnonymousMemory = 1000, anonymous
		u.Volumes = []VolumeUsage{{"ram", fsOf(30, 1)}, {"ram", fsOf(30, 1)}, {"disk", fsOf(500, 1)}}
		return u
	}
	facts := NewFacts(examplePod(), true) // its volume "ram" is in memory, "disk" is not
	cgroup := &Memory{Anonymous: Known(Bytes(100), time.Time{})}
	for name, test := range map[string]struct {
		pod  Pod
		want Value[Bytes]
	}{
		"by the stats":            {Pod{Facts: facts, Usage: usage(200)}, Known(Bytes(230), time.Time{})},
		"by the cgroup":           {Pod{Facts: facts, Usage: usage(200), Cgroup: cgroup}, Known(Bytes(130), time.Time{})},
		"without stats":           {Pod{Facts: facts, Cgroup: cgroup}, Known(Bytes(100), time.Time{})},
		"unknown":                 {Pod{Facts: facts}, Value[Bytes]{}},
		"an absurd amount":        {Pod{Facts: facts, Usage: usage(maxPlausible + 1)}, Value[Bytes]{}},
		"a pod without an object": {Pod{Usage: usage(7)}, Known(Bytes(7), time.Time{})},
	} {
		if got := test.pod.CertainRelease(); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	pod := Pod{Facts: facts, Usage: usage(200)}
	if r := pod.Release(Layout{Known: true}); r.CertainMemory != 230 || r.Memory != 1000 {
		t.Errorf("%+v", r)
	}
}

// TestWhatIsUnknownOfAStoppingPodStays: figures of a pod that is being stopped are missing one after the other.
func TestWhatIsUnknownOfAStoppingPodStays(t *testing.T) {
	at := time.Unix(1e9, 0)
	disk := [NumDevices]FsRelease{NodeDevice: {Bytes: 100, Inodes: 10}}
	before := Release{Memory: 1000, CertainMemory: 900, AnonymousMemory: 800, PIDs: 7, Devices: disk}
	less := unknownUsage()
	less.Containers = []ContainerUsage{{WritableLayer: fsOf(20, 2), Logs: fsOf(Unknown, Unknown)}}
	more := unknownUsage()
	more.Containers = []ContainerUsage{{WritableLayer: fsOf(200, 2), Logs: fsOf(Unknown, Unknown)}}
	for name, test := range map[string]struct {
		usage  *Usage
		cgroup *Memory
		want   Release
	}{
		"nothing is known": {nil, nil, before},
		"the cgroup is known": {
			nil, &Memory{WorkingSet: Known[Bytes](500, at), Anonymous: Known[Bytes](400, at)}, Release{500, 400, 400, 7, disk},
		},
		"its anonymous part is not": {nil, &Memory{WorkingSet: Known[Bytes](850, at)}, Release{850, 850, 800, 7, disk}},
		"processes are known":       {nil, &Memory{Processes: Known[PIDs](1, at)}, Release{1000, 900, 800, 1, disk}},
		"one container is reported": {less, nil, before},
		"it has written more": {more, nil, Release{1000, 900, 800, 7,
			[NumDevices]FsRelease{NodeDevice: {Bytes: 200, Inodes: 10}}}},
	} {
		pod := Pod{Facts: NewFacts(examplePod(), true), Usage: test.usage, Cgroup: test.cgroup, Images: Unknown}
		if got := pod.UpdateRelease(before, Layout{Known: true}); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
