package records

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// start is no full hour, nor is its offset from UTC.
var start = time.Date(2026, 3, 1, 12, 40, 7, 9, time.FixedZone("", 20700))

// naive is a second implementation: it keeps each eviction, and counts when it is asked.
type naive struct {
	maxOwners int
	evictions []eviction
}

type eviction struct {
	owner types.UID
	at    time.Time
}

// hour is the number of the hour since 1970.
func (e eviction) hour() int64 { return e.at.Unix() / 3600 }

// owners are the owners by their last evictions, the oldest first.
func (n *naive) owners() (owners []types.UID) {
	last := map[types.UID]time.Time{}
	for _, e := range n.evictions {
		last[e.owner] = e.at
	}
	for uid := range last {
		owners = append(owners, uid)
	}
	slices.SortFunc(owners, func(a, b types.UID) int { return cmp.Or(last[a].Compare(last[b]), cmp.Compare(a, b)) })
	return owners
}

func (n *naive) add(uid types.UID, at time.Time) {
	added := eviction{uid, at}
	drop := func(e eviction) bool {
		return e.owner == uid && max(e.hour(), added.hour())-min(e.hour(), added.hour()) > 24
	}
	if owners := n.owners(); len(owners) == n.maxOwners && !slices.Contains(owners, uid) {
		drop = func(e eviction) bool { return e.owner == owners[0] }
	}
	n.evictions = append(slices.DeleteFunc(n.evictions, drop), added)
}

func (n *naive) buckets(uid types.UID, now time.Time) (buckets []Bucket) {
	for hour := now.Unix()/3600 - 24; hour <= now.Unix()/3600; hour++ {
		b := Bucket{Start: time.Unix(hour*3600, 0).UTC()}
		for _, e := range n.evictions {
			if e.owner == uid && e.hour() == hour {
				b.Count++
			}
		}
		if b.Count > 0 {
			buckets = append(buckets, b)
		}
	}
	return buckets
}

// The history has what the naive one has, whatever the order of evictions and the steps of the clock, and keeps no more
// owners and hours than it may.
func TestHistoryEqualsANaiveOne(t *testing.T) {
	const maxOwners, uids = 4, 7
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		h, n, now := NewHistory(maxOwners), &naive{maxOwners: maxOwners}, start
		for step := range 60 {
			now = now.Add(jump(r))
			uid := types.UID(fmt.Sprint(r.IntN(uids)))
			h.Add(uid, now)
			n.add(uid, now)
			read := now.Add(jump(r))
			for i := range uids {
				uid := types.UID(fmt.Sprint(i))
				got, want := h.Buckets(uid, read), n.buckets(uid, read)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d, owner %s at %v: got %v, want %v", seed, step, uid, read, got, want)
				}
			}
			checkBounds(t, h)
		}
	}
}

// jump is how far the clock goes: mostly on by minutes, at times by hours, back, or not at all.
func jump(r *rand.Rand) time.Duration {
	switch r.IntN(8) {
	case 0:
		return 0
	case 1:
		return time.Duration(r.IntN(30)) * time.Hour
	case 2:
		return -time.Duration(r.IntN(200)) * time.Minute
	case 3:
		return -time.Duration(r.IntN(40)) * time.Hour
	}
	return time.Duration(r.IntN(90)) * time.Minute
}

func checkBounds(t *testing.T, h *History) {
	t.Helper()
	if len(h.owners) > h.maxOwners {
		t.Fatalf("%d owners are kept", len(h.owners))
	}
	for uid, o := range h.owners {
		if len(o.buckets) > 49 {
			t.Fatalf("owner %s has %d buckets", uid, len(o.buckets))
		}
	}
}

// Hours are those of UTC, and a time zone changes nothing.
func TestBuckets(t *testing.T) {
	h := NewHistory(10)
	for _, at := range []time.Duration{0, 10 * time.Minute, 70 * time.Minute} {
		h.Add("a", start.Add(at))
	}
	hour := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	// The first two are at 6:55:07 and 7:05:07 of UTC, the third at 8:05:07.
	want := []Bucket{{hour, 1}, {hour.Add(time.Hour), 1}, {hour.Add(2 * time.Hour), 1}}
	for _, tc := range []struct {
		now  time.Time
		want []Bucket
	}{
		{start.Add(70 * time.Minute), want},
		{start.Add(70 * time.Minute).In(time.UTC), want},
		{start, want[:1]}, // the clock was set back
		{hour.Add(25*time.Hour - 1), want},
		{hour.Add(25 * time.Hour), want[1:]},
		{hour.Add(27 * time.Hour), nil},
		{hour.Add(-time.Nanosecond), nil},
	} {
		if got := h.Buckets("a", tc.now); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("at %v: got %v, want %v", tc.now, got, tc.want)
		}
	}
	if got := h.Buckets("b", start); got != nil {
		t.Errorf("an owner without evictions has %v", got)
	}
	h.Buckets("a", start)[0].Count = 100
	if got := h.Buckets("a", start)[0].Count; got != 1 {
		t.Errorf("a change of an answer has changed the history: %d", got)
	}
}

// Of owners whose last eviction was at one time the one with the lowest UID is dropped, in whatever order they came.
func TestOldestOwnerIsDropped(t *testing.T) {
	for _, order := range [][]types.UID{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}} {
		h := NewHistory(3)
		for _, uid := range order {
			h.Add(uid, start)
		}
		h.Add("a", start.Add(time.Second))
		h.Add("new", start.Add(-time.Hour))
		for uid, want := range map[types.UID]int64{"a": 2, "b": 0, "c": 1, "new": 1} {
			var got int64
			for _, b := range h.Buckets(uid, start.Add(time.Second)) {
				got += b.Count
			}
			if got != want {
				t.Errorf("%v: %s has %d evictions, want %d", order, uid, got, want)
			}
		}
	}
}

func TestOwnerOf(t *testing.T) {
	owner := func(uid types.UID, controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{UID: uid, Controller: controller}
	}
	for _, tc := range []struct {
		owners []metav1.OwnerReference
		want   types.UID
	}{
		{nil, "pod"},
		{[]metav1.OwnerReference{owner("o1", nil), owner("o2", new(false))}, "pod"},
		{[]metav1.OwnerReference{owner("o1", nil), owner("o2", new(true))}, "o2"},
		{[]metav1.OwnerReference{owner("", new(true))}, "pod"},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", OwnerReferences: tc.owners}}
		if got := OwnerOf(pod); got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.owners, got, tc.want)
		}
	}
}

func BenchmarkAddBeyondTheBound(b *testing.B) {
	h := NewHistory(1000)
	for i := 0; b.Loop(); i++ {
		h.Add(types.UID(fmt.Sprint(i)), start.Add(time.Duration(i)*time.Second))
	}
}
