package rule

import (
	"fmt"
	"math"
	"math/big"
	"math/rand"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

func TestLevelOf(t *testing.T) {
	for level, want := range map[string]Level{
		"": Shared, "shared_cores": Shared, "reclaimed_cores": Reclaimed, "dedicated_cores": Dedicated,
		"system_cores": Dedicated, "other": Dedicated,
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{arbiter.QoSLevelKey: level}}}
		if got := LevelOf(pod, &arbiter.Levels{}); got != want {
			t.Errorf("%q: %v", level, got)
		}
	}
}

// TestRankIsTotal: whatever the order of the candidates, they are ranked in the same order.
func TestRankIsTotal(t *testing.T) {
	want := []types.UID{"reclaimed-low", "reclaimed-large", "reclaimed-a", "reclaimed-b", "low", "large", "dedicated"}
	list := []Candidate{
		{"reclaimed-low", Reclaimed, -1, 0}, {"reclaimed-large", Reclaimed, 0, 2}, {"reclaimed-a", Reclaimed, 0, 1},
		{"reclaimed-b", Reclaimed, 0, 1}, {"low", Shared, -5, 0}, {"large", Shared, 0, 9}, {"dedicated", Dedicated, 0, 8},
	}
	random := rand.New(rand.NewSource(1))
	for range 200 {
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		before := slices.Clone(list)
		if got := Rank(list); !slices.Equal(got, want) {
			t.Fatalf("%v", got)
		}
		if !slices.Equal(before, list) {
			t.Fatal("the candidates are changed")
		}
	}
	if got := Rank(OnlyReclaimed(list)); !slices.Equal(got, want[:4]) {
		t.Errorf("reclaimed: %v", got)
	}
}

// TestComparisonsAreExact compares with arbitrary precision.
func TestComparisonsAreExact(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	draw := func() int64 {
		n := random.Int63() >> random.Intn(63)
		return []int64{n, n, n, 0, -n, math.MaxInt64, math.MinInt64}[random.Intn(7)]
	}
	for range 100_000 {
		amount, base, ratio := draw(), draw(), Millionths(random.Uint64()>>random.Intn(64))
		if random.Intn(2) == 0 { // close to the threshold
			amount = Times(ratio, base) + random.Int63n(3) - 1
		}
		left := new(big.Int).Mul(big.NewInt(max(0, amount)), big.NewInt(1_000_000))
		right := new(big.Int).Mul(new(big.Int).SetUint64(uint64(ratio)), big.NewInt(max(0, base)))
		if got, want := Exceeds(amount, ratio, base), left.Cmp(right) > 0; got != want {
			t.Fatalf("%d exceeds %v × %d: %v", amount, ratio, base, got)
		}
		if got, want := Below(amount, ratio, base), left.Cmp(right) < 0; got != want {
			t.Fatalf("%d is below %v × %d: %v", amount, ratio, base, got)
		}
	}
	if got := fmt.Sprint(Percent(105), Percent(500), Percent(-1)); got != "1.05 5 0" {
		t.Error(got)
	}
}

func TestSince(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var s Since
	for i, tc := range []struct {
		at     time.Duration
		is     bool
		want   time.Duration
		wantIs bool
	}{
		{0, false, 0, false}, {5, true, 0, true}, {10, true, 5, true}, {10, true, 5, true}, {20, true, 15, true},
		{31, true, 0, true}, // more than 10 s are missing
		{36, true, 5, true}, {41, false, 0, false}, {46, true, 0, true}, {56, true, 10, true},
		{50, true, 0, true}, // earlier than the last one
	} {
		s = s.Observe(tc.is, start.Add(tc.at*time.Second), 10*time.Second)
		if got, is := s.For(); got != tc.want*time.Second || is != tc.wantIs || s.AtLeast(tc.want*time.Second) != is ||
			s.AtLeast(tc.want*time.Second+1) {
			t.Errorf("%d, at %d: for %v, %v", i, tc.at, got, is)
		}
	}
}

// TestRequested: a pod that is given notice instead of being evicted does not keep the next one from being requested.
func TestRequested(t *testing.T) {
	pod := func(name types.UID, notice string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: name, Annotations: map[string]string{arbiter.SoftNoticeKey: notice},
		}}
	}
	pods := []*v1.Pod{pod("a", ""), pod("b", "true"), pod("c", "true"), pod("d", "false")}
	for _, tc := range []struct{ ranked, want []types.UID }{
		{nil, nil}, {[]types.UID{"a", "b"}, []types.UID{"a"}}, {[]types.UID{"b", "a", "d"}, []types.UID{"b", "a"}},
		{[]types.UID{"c", "b", "d", "a"}, []types.UID{"c", "b", "d"}}, {[]types.UID{"b", "c"}, []types.UID{"b", "c"}},
	} {
		if got := Requested(tc.ranked, pods); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.ranked, got, tc.want)
		}
	}
}
