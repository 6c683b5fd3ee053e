package numamemory

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

var (
	settings = Settings{
		CriticalGap: gi, LowGap: 256 * mi, MinInactiveFile: 4 * gi, ReclaimedRounds: 6, AllRounds: 12,
		PodShare: rule.Permille(1), Period: 5 * time.Second,
	}
	start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// With these watermarks free memory is critical below 3 GiB, and low below 8.25 GiB with enough page cache.
const (
	watermarkMin, watermarkLow = 2 * gi, 8 * gi
	critical, low              = 3 * gi, 8*gi + 256*mi
	total                      = 64 * gi
)

// zone has enough page cache.
func zone(node int, free int64) Zone {
	return Zone{Node: node, Total: total, Free: free, Min: watermarkMin, Low: watermarkLow, InactiveFile: 9 * gi}
}

func pod(name, level string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{arbiter.QoSLevelKey: level},
	}}
}

// facts have two pods on NUMA node 0, a reclaimed and a shared one, and a reclaimed one on NUMA node 1.
func facts(zones ...Zone) *Facts {
	return &Facts{
		Now: start, Zones: zones,
		Pods: []*v1.Pod{pod("shared", ""), pod("reclaimed", "reclaimed_cores"), pod("other", "reclaimed_cores")},
		Memory: map[types.UID]map[int]int64{
			"shared": {0: 20 * gi, 1: 0}, "reclaimed": {0: gi, 1: mi}, "other": {0: 0, 1: gi},
		},
	}
}

// rounds plays rounds five seconds apart, each with the free memory of NUMA node 0, and returns the pods that may be
// evicted in each: "-" for none, "r" for reclaimed ones, "a" for all.
func rounds(t *testing.T, change func(round int, f *Facts), free ...int64) string {
	t.Helper()
	var state State
	var got strings.Builder
	at := start
	for i, n := range free {
		f := facts(zone(0, n))
		f.Now = at
		if change != nil {
			change(i, f)
		}
		var found rule.Finding
		found, state = Decide(f, &settings, state)
		switch {
		case len(found.Top) == 0 && found.Threshold.Kind == arbiter.NotMet:
			got.WriteByte('-')
		case slices.Equal(found.Top, []types.UID{"reclaimed"}):
			got.WriteByte('r')
		case slices.Equal(found.Top, []types.UID{"reclaimed", "shared"}):
			got.WriteByte('a')
		default:
			t.Errorf("round %d: %+v", i, found)
		}
		at = at.Add(settings.Period)
	}
	return got.String()
}

func times(n int, free int64) []int64 { return slices.Repeat([]int64{free}, n) }

// TestOverTime has free memory at, just below and just above each threshold, over rounds.
func TestOverTime(t *testing.T) {
	for name, tc := range map[string]struct {
		free []int64
		want string
	}{
		"at the lower threshold":   {times(20, low), strings.Repeat("-", 20)},
		"just below it":            {times(14, low-1), "------rrrrraaa"},
		"at the critical one":      {times(8, critical), "------rr"},
		"just below the critical":  {times(4, critical-1), "raaa"},
		"critical in between":      {[]int64{low, critical - 1, low, critical - 1, critical - 1, low}, "-r-ra-"},
		"seven low ones are count": {append(times(6, low-1), low, low-1, low-1), "-------" + "-" + "r"},
		"one less for each above": {slices.Concat(times(8, low-1), times(3, low), times(2, low-1)),
			"------rr" + "---" + "-r"},
		"not below zero": {slices.Concat(times(9, low), times(7, low-1)), strings.Repeat("-", 15) + "r"},
		"no more than twelve": {slices.Concat(times(50, low-1), times(5, low), times(1, low-1), times(1, low), times(2,
			low-1)),
			"------rrrrr" + strings.Repeat("a", 39) + "-----" + "r" + "-" + "rr"},
		"critical after many low":   {append(times(12, low-1), critical-1), "------rrrrraa"},
		"nothing free, then plenty": {[]int64{0, 0, 60 * gi, 60 * gi}, "ra--"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rounds(t, nil, tc.free...); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestOnlyAll: without a stage in which reclaimed pods alone are requested, all are after AllRounds.
func TestOnlyAll(t *testing.T) {
	defer func(before Settings) { settings = before }(settings)
	settings.AllRounds = 3
	if got := rounds(t, nil, times(4, low-1)...); got != "--aa" {
		t.Error(got)
	}
}

// TestFewInactiveFilePages: the lower threshold is raised while there is little page cache.
func TestFewInactiveFilePages(t *testing.T) {
	for _, tc := range []struct{ low, inactive, want int64 }{
		// low + 256 MiB is above 4 GiB: that much page cache is enough.
		{8 * gi, low, low}, {8 * gi, low - 1, low + gi},
		// 4 GiB count.
		{gi, 4 * gi, gi + 256*mi}, {gi, 4*gi - 1, 4 * gi}, {3 * gi, 4*gi - 1, 4*gi + 256*mi}, {2880 * mi, 0, 4*gi + 64*mi},
		{2816 * mi, 0, 4 * gi},
		{2752 * mi, 0, 4 * gi},
	} {
		z := Zone{Node: 0, Total: total, Free: tc.want - 1, Min: 1, Low: tc.low, InactiveFile: tc.inactive}
		if got := lowThreshold(&z, &settings); got != tc.want {
			t.Errorf("low %d, inactive %d: %d, want %d", tc.low, tc.inactive, got, tc.want)
		}
	}
	got := rounds(t, func(_ int, f *Facts) { f.Zones[0].InactiveFile = low - 1 }, times(8, low+gi-1)...)
	if got != "------rr" {
		t.Error(got)
	}
}

// TestMissingRounds: rounds that are missing do not count, and after three of them those before do not either. A round
// soon after the last one does not count.
func TestMissingRounds(t *testing.T) {
	late := func(from int, by time.Duration) func(int, *Facts) {
		return func(round int, f *Facts) {
			if round >= from {
				f.Now = f.Now.Add(by)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(int, *Facts)
		want   string
	}{
		"two are missing":   {late(4, 10*time.Second), "------rr"},
		"three are missing": {late(4, 10*time.Second+1), "--------"},
		"unknown in one": {func(round int, f *Facts) {
			if round == 4 {
				f.Zones[0].Min = 0
			}
		}, "-------r"},
		"soon after": {func(round int, f *Facts) {
			if round == 5 {
				f.Now = f.Now.Add(-3 * time.Second)
			}
		}, "-------r"},
		"the clock is set back": {late(4, -time.Hour), "--------"},
	} {
		if got := rounds(t, tc.change, times(8, low-1)...); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if got := rounds(t, func(round int, f *Facts) { f.Now = start.Add(time.Duration(round) * time.Second) },
		times(3, critical-1)...); got != "rrr" {
		t.Errorf("critical in rounds soon after another: %s", got)
	}
	// What was allowed stays so: a round that comes early withdraws no request.
	early := func(round int, f *Facts) {
		if round == 3 {
			f.Now = f.Now.Add(-4 * time.Second)
		}
	}
	if got := rounds(t, early, times(5, critical-1)...); got != "raaaa" {
		t.Errorf("soon after rounds in which all pods were requested: %s", got)
	}
	shared := func(round int, f *Facts) { early(round, f); delete(f.Memory, "reclaimed") }
	var state State
	for round := range 4 {
		f := facts(zone(0, critical-1))
		f.Now = start.Add(time.Duration(round) * settings.Period)
		shared(round, f)
		var found rule.Finding
		if found, state = Decide(f, &settings, state); (found.Threshold.Kind == arbiter.Hard) != (round > 0) {
			t.Errorf("without reclaimed pods, round %d: %+v", round, found.Threshold)
		}
	}
}

// TestUnknown: a NUMA node without watermarks or memory is no reason.
func TestUnknown(t *testing.T) {
	for name, z := range map[string]Zone{
		"no watermark min": {Total: total, Low: 1}, "no watermark low": {Total: total, Min: 1}, "no memory": {Min: 1, Low: 1},
	} {
		found, state := Decide(facts(z), &settings, nil)
		if found.Threshold.Kind != arbiter.NotMet || len(state) != 0 {
			t.Errorf("%s: %+v, %v", name, found, state)
		}
	}
}

// TestPods: only pods with a share of that NUMA node are proposed, in order.
func TestPods(t *testing.T) {
	share := int64(68719477) // just above a thousandth of 64 GiB, which is 68719476.7
	for name, tc := range map[string]struct {
		change func(*Facts)
		want   []types.UID
	}{
		"all":             {func(*Facts) {}, []types.UID{"reclaimed", "shared"}},
		"at the share":    {func(f *Facts) { f.Memory["reclaimed"][0] = share }, []types.UID{"reclaimed", "shared"}},
		"below the share": {func(f *Facts) { f.Memory["reclaimed"][0] = share - 1 }, []types.UID{"shared"}},
		"unknown":         {func(f *Facts) { delete(f.Memory, "reclaimed") }, []types.UID{"shared"}},
		"being stopped":   {func(f *Facts) { f.Ending = map[types.UID]bool{"reclaimed": true} }, []types.UID{"shared"}},
		"priority counts more than memory": {func(f *Facts) {
			f.Memory["other"][0] = 2 * gi
			f.Pods[2].Spec.Priority = new(int32(1))
		}, []types.UID{"reclaimed", "other", "shared"}},
		"more memory there first": {func(f *Facts) { f.Memory["other"][0] = 2 * gi },
			[]types.UID{"other", "reclaimed", "shared"}},
	} {
		f := facts(zone(0, 0))
		tc.change(f)
		_, state := Decide(f, &settings, nil)
		f.Now = f.Now.Add(settings.Period)
		found, _ := Decide(f, &settings, state)
		if !slices.Equal(found.Top, tc.want) || !slices.Equal(found.Threshold.Candidates, tc.want) {
			t.Errorf("%s: %v, want %v", name, found.Top, tc.want)
		}
	}
}

// TestNUMANodes: of several NUMA nodes, the one in greatest trouble that has pods counts, whatever their order.
func TestNUMANodes(t *testing.T) {
	for name, tc := range map[string]struct {
		zones []Zone
		want  types.UID
		says  string
	}{
		"only the other":   {[]Zone{zone(0, 60*gi), zone(1, 0)}, "other", "NUMA node 1"},
		"less is free":     {[]Zone{zone(0, gi), zone(1, gi-1)}, "other", "NUMA node 1"},
		"as much is free":  {[]Zone{zone(0, gi), zone(1, gi)}, "reclaimed", "NUMA node 0"},
		"one without pods": {[]Zone{zone(0, gi), zone(2, 0)}, "reclaimed", "NUMA node 0"},
		"four, one is in want": {[]Zone{zone(0, 60*gi), zone(1, gi), zone(2, 60*gi), zone(3, 60*gi)}, "other",
			"NUMA node 1"},
		"unknown ones are calm":  {[]Zone{{Node: 0}, zone(1, gi)}, "other", "NUMA node 1"},
		"nobody, there are none": {[]Zone{zone(7, 0)}, "", ""},
	} {
		random := rand.New(rand.NewSource(1))
		for range 20 {
			random.Shuffle(len(tc.zones), func(i, j int) { tc.zones[i], tc.zones[j] = tc.zones[j], tc.zones[i] })
			found, _ := Decide(facts(tc.zones...), &settings, nil)
			if tc.want == "" {
				if found.Threshold.Kind != arbiter.NotMet || found.Notes != nil {
					t.Errorf("%s: %+v", name, found)
				}
				continue
			}
			if found.Top[0] != tc.want || !strings.Contains(found.Notes[0].Text, tc.says) ||
				found.Threshold.Observed >= found.Threshold.Target || !found.Threshold.LessThan {
				t.Errorf("%s: %+v", name, found)
			}
		}
	}
}

// TestRandomRounds: whatever the rounds, pods are proposed only while free memory is below a threshold, the state is
// bounded, and the last state is unchanged.
func TestRandomRounds(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 300 {
		var state State
		at := start
		for range 60 {
			at = at.Add(time.Duration(random.Int63n(int64(20 * time.Second))))
			var zones []Zone
			for node := range random.Intn(4) {
				z := zone(node, random.Int63n(12)*gi)
				z.InactiveFile = random.Int63n(12) * gi
				zones = append(zones, z)
			}
			f := facts(zones...)
			f.Now = at
			before := fmt.Sprint(state)
			found, next := Decide(f, &settings, state)
			if fmt.Sprint(state) != before {
				t.Fatal("the state is changed")
			}
			state = next
			met := &found.Threshold
			if met.Kind == arbiter.Hard && (len(found.Top) == 0 || met.Observed >= met.Target) {
				t.Fatalf("%+v", found)
			}
			for _, n := range state {
				if n.Rounds < 0 || n.Rounds > settings.AllRounds {
					t.Fatalf("%+v", n)
				}
			}
		}
	}
}
