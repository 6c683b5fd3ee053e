package rootfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const gi = int64(1) << 30

func pod(name, level string, priority int32) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{arbiter.QoSLevelKey: level},
	}}
	p.Spec.Priority = &priority
	return p
}

// facts are those of a file system of 100 GiB and 1,000 inodes, with a reclaimed pod, two shared ones and a dedicated
// one.
func facts() *Facts {
	return &Facts{
		FileSystem: [NumKinds]snapshot.Observation{{Available: 50 * gi, Capacity: 100 * gi}, {Available: 500,
			Capacity: 1000}},
		Pods: []*v1.Pod{
			pod("large", "", 9), pod("small", "", 0), pod("reclaimed", "reclaimed_cores", 9), pod("dedicated",
				"dedicated_cores", 0),
		},
		Used: [NumKinds]map[types.UID]int64{
			{"large": 20 * gi, "small": 10 * gi, "reclaimed": 5 * gi, "dedicated": 30 * gi},
			{"large": 20, "small": 100, "reclaimed": 5, "dedicated": 30},
		},
	}
}

func amounts(bytes, inodes v1alpha1.FileSystemAmount) [NumKinds]v1alpha1.FileSystemAmount {
	return [NumKinds]v1alpha1.FileSystemAmount{bytes, inodes}
}

// requested returns the pod that is requested, and its reason.
func requested(t *testing.T, found *rule.Finding) (pod, reason string) {
	t.Helper()
	if found.Threshold.Kind != arbiter.NotMet || len(found.Pods) > 1 {
		t.Errorf("%+v", found)
	}
	if len(found.Pods) == 0 {
		return "", ""
	}
	d := found.Pods[0]
	if d.Force || d.GraceSeconds != nil {
		t.Errorf("%+v: must be soft, without a grace period", d)
	}
	return string(d.UID), d.Reason
}

// TestPressure has free bytes and inodes at, just below and just above each threshold.
func TestPressure(t *testing.T) {
	for name, tc := range map[string]struct {
		settings PressureSettings
		change   func(*Facts)
		want     string
	}{
		"no threshold":   {change: func(f *Facts) { f.FileSystem[Bytes].Available, f.FileSystem[Inodes].Available = 0, 0 }},
		"at":             {PressureSettings{Free: amounts("50Gi", "")}, nil, ""},
		"just above":     {PressureSettings{Free: amounts("53687091199", "")}, nil, ""},
		"just below":     {PressureSettings{Free: amounts("53687091201", "")}, nil, "reclaimed"},
		"percent, at":    {PressureSettings{Free: amounts("50%", "")}, nil, ""},
		"percent, below": {PressureSettings{Free: amounts("50.001%", "")}, nil, "reclaimed"},
		"inodes at":      {PressureSettings{Free: amounts("", "500")}, nil, ""},
		"inodes below":   {PressureSettings{Free: amounts("", "501")}, nil, "reclaimed"},
		"bytes first": {PressureSettings{Free: amounts("60Gi", "600"), PodUsed: amounts("20Gi", "50")}, nil,
			"dedicated"},
		"nobody for bytes": {PressureSettings{Free: amounts("60Gi", "600"), PodUsed: amounts("31Gi", "50")}, nil, "small"},
		"pod at the least": {PressureSettings{Free: amounts("60Gi", ""), PodUsed: amounts("5Gi", "")}, nil, "reclaimed"},
		"pod below": {PressureSettings{Free: amounts("60Gi", ""), PodUsed: amounts("5.1Gi", "")}, nil,
			"dedicated"},
		"pod below a percentage": {PressureSettings{Free: amounts("60%", ""), PodUsed: amounts("5.1%", "")}, nil,
			"dedicated"},
		"usage counts more than priority": {PressureSettings{Free: amounts("60%", "")}, func(f *Facts) {
			f.Pods = f.Pods[:2]
		}, "large"},
		"a pod that uses nothing": {PressureSettings{Free: amounts("60%", "")}, func(f *Facts) {
			f.Used[Bytes] = map[types.UID]int64{"reclaimed": 0}
		}, ""},
		"unknown file system": {PressureSettings{Free: amounts("60%", "")}, func(f *Facts) {
			f.FileSystem[Bytes].Err = errors.New("unknown")
		}, ""},
		"unknown usage": {PressureSettings{Free: amounts("60%", "")}, func(f *Facts) { f.Used[Bytes] = nil }, ""},
		"no fixed number of inodes": {PressureSettings{Free: amounts("", "501")}, func(f *Facts) {
			f.FileSystem[Inodes] = snapshot.Observation{}
		}, ""},
		"enough is being freed": {PressureSettings{Free: amounts("55Gi", "")}, func(f *Facts) {
			f.Ending = map[types.UID]bool{"reclaimed": true}
		}, ""},
		"containers have exited, their layers are there": {PressureSettings{Free: amounts("55Gi", "")}, func(f *Facts) {
			f.Ending = map[types.UID]bool{"reclaimed": true}
			delete(f.Used[Bytes], "reclaimed")
			f.Expected[Bytes] = map[types.UID]int64{"reclaimed": 5 * gi, "small": 50 * gi}
		}, ""},
		"observed before the last release": {PressureSettings{Free: amounts("60Gi", "")}, func(f *Facts) {
			f.Outdated[Bytes] = true
		}, ""},
		"more is being freed than there can be": {PressureSettings{Free: amounts("55Gi", "")}, func(f *Facts) {
			f.Ending = map[types.UID]bool{}
			for i := range 8 {
				uid := types.UID(fmt.Sprint("huge-", i))
				f.Ending[uid], f.Used[Bytes][uid] = true, 1<<60
			}
		}, ""},
		"less than nothing is free": {PressureSettings{Free: amounts("1Gi", "")}, func(f *Facts) {
			f.FileSystem[Bytes].Available = -1
			f.Ending = map[types.UID]bool{"large": true}
			f.Used[Bytes]["large"] = 1
		}, "reclaimed"},
		"not enough is being freed": {PressureSettings{Free: amounts("55.1Gi", "")}, func(f *Facts) {
			f.Ending = map[types.UID]bool{"reclaimed": true}
		}, "dedicated"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts()
			if tc.change != nil {
				tc.change(f)
			}
			found := Pressure(f, &tc.settings)
			if got, reason := requested(t, &found); got != tc.want || (got != "" && !strings.Contains(reason, "free")) {
				t.Errorf("%q, want %q: %s", got, tc.want, reason)
			}
		})
	}
}

// TestOveruse has the usage of pods at, just below and just above the threshold of their level.
func TestOveruse(t *testing.T) {
	shared := func(bytes, inodes v1alpha1.FileSystemAmount) OveruseSettings {
		return OveruseSettings{Shared: amounts(bytes, inodes)}
	}
	reclaimed := func(bytes, inodes v1alpha1.FileSystemAmount) OveruseSettings {
		return OveruseSettings{Reclaimed: amounts(bytes, inodes)}
	}
	for name, tc := range map[string]struct {
		settings OveruseSettings
		change   func(*Facts)
		want     string
	}{
		"no threshold":       {OveruseSettings{}, nil, ""},
		"at":                 {shared("20Gi", ""), nil, ""},
		"just above":         {shared("21474836479", ""), nil, "large"},
		"just below":         {shared("21474836481", ""), nil, ""},
		"percent at":         {shared("20%", ""), nil, ""},
		"percent above":      {shared("19.999%", ""), nil, "large"},
		"inodes at":          {shared("", "100"), nil, ""},
		"inodes above":       {shared("", "99"), nil, "small"},
		"bytes first":        {shared("19Gi", "1"), nil, "large"},
		"reclaimed at":       {reclaimed("5Gi", ""), nil, ""},
		"reclaimed above":    {reclaimed("4Gi", ""), nil, "reclaimed"},
		"reclaimed inodes":   {reclaimed("", "4"), nil, "reclaimed"},
		"reclaimed first":    {OveruseSettings{Shared: amounts("1", ""), Reclaimed: amounts("4.9Gi", "")}, nil, "reclaimed"},
		"the greatest":       {shared("1Gi", ""), nil, "large"},
		"dedicated are left": {shared("25Gi", ""), nil, ""},
		"being stopped":      {shared("15Gi", ""), func(f *Facts) { f.Ending = map[types.UID]bool{"large": true} }, ""},
		"unknown":            {shared("1Gi", ""), func(f *Facts) { f.Used[Bytes] = nil }, ""},
		"percent of an unknown file system": {shared("1%", ""), func(f *Facts) {
			f.FileSystem[Bytes].Err = errors.New("unknown")
		}, ""},
		"percent of no fixed number of inodes": {shared("", "10%"), func(f *Facts) {
			f.FileSystem[Inodes] = snapshot.Observation{}
		}, ""},
		"amount without a fixed number of inodes": {shared("", "99"), func(f *Facts) {
			f.FileSystem[Inodes] = snapshot.Observation{}
		}, "small"},
		"amount on an unknown file system": {shared("19Gi", ""), func(f *Facts) {
			f.FileSystem[Bytes] = snapshot.Observation{Err: errors.New("unknown")}
		}, "large"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts()
			if tc.change != nil {
				tc.change(f)
			}
			found := Overuse(f, &tc.settings)
			got, reason := requested(t, &found)
			if got != tc.want || (got != "" && !strings.Contains(reason, "more than the threshold")) {
				t.Errorf("%q, want %q: %s", got, tc.want, reason)
			}
		})
	}
	found := Overuse(facts(), new(shared("19Gi", "")))
	if _, reason := requested(t, &found); reason !=
		"writable layers use 20Gi, which is more than the threshold 19Gi" {
		t.Error(reason)
	}
}

// TestOverTime: a pod that writes is requested from the round on in which it exceeds its threshold, and not while it
// ends.
func TestOverTime(t *testing.T) {
	f := facts()
	var in []int
	for round, used := range []int64{1, 9, 10, 11, 12, 13, 10} {
		f.Used[Bytes]["small"] = used * gi
		f.Ending = map[types.UID]bool{"small": round == 5}
		found := Overuse(f, &OveruseSettings{Shared: amounts("10Gi", "")})
		f.Used[Bytes]["large"] = gi
		if got, _ := requested(t, &found); got == "small" {
			in = append(in, round)
		}
	}
	if !slices.Equal(in, []int{3, 4}) {
		t.Errorf("requested in %v", in)
	}
}

// TestFactsOf: the file system is that of the writable layers, whatever the layout, and logs and volumes do not count.
func TestFactsOf(t *testing.T) {
	for signal, layout := range map[snapshot.Signal]snapshot.Layout{
		snapshot.NodeFsAvailable:      {Known: true},
		snapshot.ImageFsAvailable:     {Known: true, DedicatedImageFs: true},
		snapshot.ContainerFsAvailable: {Known: true, DedicatedImageFs: true, SplitContainerFs: true},
	} {
		usage := &snapshot.Usage{Containers: []snapshot.ContainerUsage{
			{WritableLayer: snapshot.FsUsage{Bytes: 5, Inodes: 2}, Logs: snapshot.FsUsage{Bytes: 100, Inodes: 100}},
			{WritableLayer: snapshot.FsUsage{Bytes: 6, Inodes: snapshot.Unknown}},
		}}
		s := &snapshot.Snapshot{Layout: layout, Signals: snapshot.Unobserved(), Pods: []snapshot.Pod{
			{Facts: snapshot.NewFacts(pod("a", "", 0), true), Usage: usage}, {Facts: snapshot.NewFacts(pod("b", "", 0), true)},
		}}
		s.Signals[signal] = snapshot.Observation{Available: 7, Capacity: 9}
		f := FactsOf(s, nil, nil)
		if f.FileSystem[Bytes].Available != 7 || f.FileSystem[Inodes].Known() {
			t.Errorf("%s: %+v", signal, f.FileSystem)
		}
		s.Layout.Known = false
		if f := FactsOf(s, nil, nil); f.FileSystem[Bytes].Known() {
			t.Errorf("%s, the layout is unknown: %+v", signal, f.FileSystem)
		}
		_, known := f.Used[Bytes]["b"]
		if f.Used[Bytes]["a"] != 11 || f.Used[Inodes]["a"] != 2 || known {
			t.Errorf("%+v", f.Used)
		}
	}
}

// TestRelease: what a pod that is being evicted releases counts also when its containers have exited, and after its
// release an observation from before that is outdated.
func TestRelease(t *testing.T) {
	taken := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	s := &snapshot.Snapshot{
		Taken: taken, WallTime: taken.Add(time.Hour), Layout: snapshot.Layout{Known: true}, Signals: snapshot.Unobserved(),
	}
	var release snapshot.Release
	release.Devices[snapshot.NodeDevice] = snapshot.FsRelease{Bytes: 7, Inodes: 3}
	s.InFlight = []snapshot.InFlight{{UID: "a", State: snapshot.Stopped, Expected: release}}
	if f := FactsOf(s, nil, nil); f.Expected[Bytes]["a"] != 7 || f.Expected[Inodes]["a"] != 3 {
		t.Errorf("%v", f.Expected)
	}
	for name, tc := range map[string]struct {
		age, released time.Duration
		want          bool
	}{
		"before": {10 * time.Second, 9 * time.Second, true}, "at the same time": {9 * time.Second, 9 * time.Second, false},
		"after": {time.Second, 9 * time.Second, false}, "the clock was set back": {-time.Hour, 0, false},
	} {
		s.Signals[snapshot.NodeFsAvailable] = snapshot.Observation{Capacity: 1, At: s.WallTime.Add(-tc.age)}
		s.LastRelease = taken.Add(-tc.released)
		if f := FactsOf(s, nil, nil); f.Outdated[Bytes] != tc.want || f.Outdated[Inodes] {
			t.Errorf("%s: %v", name, f.Outdated)
		}
	}
	s.LastRelease = time.Time{}
	if f := FactsOf(s, nil, nil); f.Outdated[Bytes] {
		t.Error("before the first release")
	}
}
